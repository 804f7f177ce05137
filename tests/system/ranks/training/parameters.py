"""A rank: parameters that change while they are trained, against one process on the global batch.

Frozen and unfrozen parameters, gradients that users put into other storage, other dtypes and layouts.
"""

import functools
import sys

import gradbus.torch as gradbus
import torch
from optimizer import assert_same, batches, loss_of, mine, pair, sgd, wrap


def train(ours, alone, make, between=lambda step, model: None, zero=None, **options):
    """Both models on the same batches; `between(step, model)` comes before each backward()."""
    optimizer, reference = wrap(make(ours.parameters()), ours, **options), make(alone.parameters())
    zero = zero or (lambda optimizer, model: optimizer.zero_grad())
    for step, (x, y) in enumerate(batches()):
        for one, model, inputs, targets in (
            (optimizer, ours, mine(x), mine(y)),
            (reference, alone, x, y),
        ):
            zero(one, model)
            between(step, model)
            loss_of(model, inputs, targets).backward()
            one.step()
    assert_same(ours, alone)
    return optimizer


def decaying(parameters):
    return sgd(parameters, weight_decay=0.1)


def case_frozen_parameters_stay():
    """Neither momentum nor weight decay moves them; unfrozen, they go on."""

    def freeze(step, model):
        model[0].requires_grad_(step not in (2, 3))

    for make in (decaying, torch.optim.Adam):
        train(*pair(), make, freeze)
        ours, alone = pair()
        train(ours, alone, make, freeze, lambda one, model: one.zero_grad(set_to_none=False))
        train(*pair(), make, freeze, lambda one, model: model.zero_grad())


def case_frozen_for_ever():
    def freeze(step, model):
        model[0].requires_grad_(step < 2)

    ours, alone = pair()
    optimizer = train(ours, alone, decaying, freeze, bucket_bytes=600)
    optimizer.zero_grad(set_to_none=True)
    assert ours[0].weight.grad is None and ours[0].bias.grad is None
    assert ours[2].weight.grad is not None


def case_all_frozen():
    def freeze(step, model):
        model[2].requires_grad_(step != 2)
        model[0].requires_grad_(step not in (1, 2))
        if step == 2:
            model[2].bias.requires_grad_(True)

    train(*pair(), decaying, freeze)


def case_frozen_in_diloco():
    """The outer momentum moves no frozen parameter."""
    ours, _ = pair()
    optimizer = wrap(decaying(ours.parameters()), ours, mode="diloco:H=1,outer_lr=0.5")
    for step, (x, y) in enumerate(batches()):
        if step == 3:
            ours[0].requires_grad_(False)
            before = ours[0].weight.clone()
        optimizer.zero_grad(set_to_none=True)
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
    assert torch.equal(ours[0].weight, before)


def shards_case_frozen():
    """Shards step, so a parameter that they hold cannot be frozen."""
    ours, _ = pair()
    optimizer = wrap(decaying(ours.parameters()), ours, mode="ps:async")
    x, y = batches()[0]

    def step():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()

    step()
    ours[0].requires_grad_(False)
    refused(step, "frozen", "'0.bias'", "shards")


def case_gradients_are_no_views():
    def detach(optimizer, model):
        for parameter in model.parameters():
            if parameter.grad is not None:
                assert not parameter.grad._is_view()
                parameter.grad.detach_().zero_()

    train(*pair(), sgd, zero=detach)
    # Torch 1.13's own zero_grad(set_to_none=False) and GradScaler look at these.
    ours, _ = pair()
    optimizer = wrap(sgd(ours.parameters()), ours)
    loss_of(ours, torch.ones(2, 5), torch.zeros(2, dtype=torch.long)).backward()
    optimizer.step()
    assert all(p.grad.is_leaf and not p.grad.requires_grad for p in ours.parameters())


def case_other_storage():
    """.grad.data = ...: the same object elsewhere in memory, with the values it is to have."""

    def clone(step, model):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.data = parameter.grad.data.clone()

    train(*pair(), sgd, clone)

    def strange(step, model):
        for parameter in model.parameters():
            if parameter.grad is None:
                continue
            if step == 1:
                parameter.grad.data = torch.zeros_like(parameter).t().contiguous().t()
            elif step == 2:
                parameter.grad.set_(torch.zeros_like(parameter))
            elif step == 3:
                parameter.grad = torch.zeros_like(parameter)

    train(*pair(), sgd, strange)


def case_other_storage_after_backward():
    """Between backward() and step(), when the exchange of the last round is over."""
    ours, alone = pair()
    optimizer, reference = wrap(sgd(ours.parameters()), ours), sgd(alone.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.synchronize()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        for model in (ours, alone):
            for parameter in model.parameters():
                parameter.grad.data = parameter.grad.data * 0.5
        optimizer.step()
        reference.step()
    assert_same(ours, alone)


def case_transposed_in_place():
    """The same memory in another order."""
    layer = torch.nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.zero_()
    optimizer = wrap(torch.optim.SGD(layer.parameters(), lr=1.0), layer)
    (layer.weight * 0).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    values = torch.arange(9.0).view(3, 3) + gradbus.rank()
    layer.weight.grad.copy_(values)
    layer.weight.grad.data = layer.weight.grad.data.t()
    optimizer.step()
    mean = torch.arange(9.0).view(3, 3).t() + (gradbus.size() - 1) / 2
    assert torch.allclose(layer.weight, -mean), layer.weight


def case_shared_memory():
    def share(step, model):
        if step == 2:
            model.share_memory()

    train(*pair(), sgd, share)


def case_memory_format():
    def build():
        torch.manual_seed(3)
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * 3 * 3, 3)
        )

    adam = functools.partial(torch.optim.AdamW, eps=1e-2)  # or it amplifies rounding
    optimizers = [sgd, adam]
    if hasattr(torch, "compile"):  # torch 2
        optimizers.append(functools.partial(adam, fused=True))
    for make in optimizers:
        ours, alone = build(), build()
        optimizer, reference = wrap(make(ours.parameters()), ours), make(alone.parameters())
        for step, (x, y) in enumerate(batches()):
            x = x.repeat(1, 15)[:, :75].reshape(-1, 3, 5, 5)
            for one, model, inputs, targets in (
                (optimizer, ours, mine(x), mine(y)),
                (reference, alone, x, y),
            ):
                if step == 2:
                    model.to(memory_format=torch.channels_last)
                one.zero_grad()
                loss_of(model, inputs, targets).backward()
                one.step()
        assert_same_values(ours, alone)


def assert_same_values(ours, alone):
    for a, b in zip(ours.parameters(), alone.parameters()):
        assert torch.allclose(a, b, atol=2e-6), (a - b).abs().max()
        assert torch.equal(gradbus.broadcast(a.detach().contiguous(), 0), a)


def refused(call, *parts):
    try:
        call()
    except gradbus.InvalidError as error:
        text = str(error)
        assert all(part in text for part in ("GB-O900", " | next: ", *parts)), text
        assert "\n" not in text
    else:
        raise AssertionError(f"not refused: {parts}")


def case_other_dtype_is_refused():
    """On every rank alike, at whatever comes first."""
    x, y = batches()[0]

    def step(optimizer, model, zero=True):
        if zero:
            optimizer.zero_grad()
        loss_of(model, mine(x).to(model[0].weight.dtype), mine(y)).backward()
        optimizer.step()

    for zero in (True, False):
        ours, _ = pair()
        optimizer = wrap(sgd(ours.parameters()), ours)
        step(optimizer, ours)
        ours.double()
        refused(lambda: step(optimizer, ours, zero), "parameter '", "float64", "float32")  # noqa: B023
    ours, _ = pair()
    optimizer = wrap(sgd(ours.parameters()), ours)
    ours.double()
    refused(lambda: step(optimizer, ours), "float64 of shape", "float32")


def case_other_shape_is_refused():
    ours, _ = pair()
    optimizer = wrap(sgd(ours.parameters()), ours)
    ours[2].bias.data = torch.zeros(1)
    x, y = batches()[0]

    def step():
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()

    refused(step, "'2.bias'", "(1,)", "(3,)")


def case_other_things_for_named_parameters():
    """What users pass instead gets one line that names the right call."""
    ours, _ = pair()
    for wrong, text in (
        (ours.parameters(), "parameters without names"),
        (list(ours.parameters()), "parameters without names"),
        (ours, "a Linear"),
        (ours.named_parameters, "has a method"),
        ([("0.weight",)], "a tuple"),
        (dict(enumerate(ours.parameters())), "a tuple"),
        (ours.state_dict().keys(), "a str"),
    ):

        def call(wrong=wrong):
            gradbus.DistributedOptimizer(sgd(ours.parameters()), wrong)

        refused(call, text, "model.named_parameters()")


def case_gradient_with_a_graph_is_refused():
    ours, _ = pair()
    optimizer = wrap(sgd(ours.parameters()), ours)
    x, y = batches()[0]
    refused(lambda: loss_of(ours, mine(x), mine(y)).backward(create_graph=True), "graph")
    del optimizer


def main():
    torch.set_num_threads(1)
    gradbus.init()
    prefix, *words = sys.argv[1:] or ["case_"]
    for name, case in sorted(globals().items()):
        if name.startswith(prefix) and all(word in name for word in words):
            case()
            print(name, flush=True)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()
