"""A rank: DistributedOptimizer(shard=True) against one process with the batches of all ranks.

`sharded.py equal` compares each kind of optimizer. `sharded.py save FILE` trains three steps and saves the state,
`sharded.py load FILE` loads it, on any number of ranks, and trains three more.
"""

import sys

import gradbus.torch as gradbus
import torch
from lamb import Lamb

gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
ROWS = 12  # of all ranks together: 2, 3 and 4 ranks have the same


class Model(torch.nn.Module):
    """Parameters of several sizes, one that no loss uses, one that some ranks use in some steps, and a frozen one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(7, 33)
        self.second = torch.nn.Linear(33, 5)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.extra = torch.nn.Parameter(torch.full((3, 5), 0.1))
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x, with_extra):
        out = self.second(torch.tanh(self.first(x))) * self.scale
        if with_extra.any():
            out = out + (x[:, :3] @ self.extra) * with_extra[:, None]
        return out


def loss_of(model, step, rank=None):
    data = torch.randn(ROWS, 7, generator=torch.Generator().manual_seed(step)).to(model.scale.dtype)
    extra = torch.zeros(ROWS, dtype=data.dtype)
    extra[: (0, ROWS // 4, ROWS)[step % 3]] = 1  # no rank uses it, the first one, all
    if rank is not None:
        data, extra = data.chunk(SIZE)[rank], extra.chunk(SIZE)[rank]
    return model(data, extra).square().mean()


def groups(model):
    return [{"params": model.first.parameters(), "lr": 0.02},
            {"params": [*model.second.parameters(), model.scale, model.unused, model.extra, model.frozen]}]  # fmt: skip


KINDS = {
    "SGD": lambda m: torch.optim.SGD(groups(m), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda m: torch.optim.Adam(groups(m), lr=0.01, amsgrad=True),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), lr=0.01, weight_decay=0.1),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.05, initial_accumulator_value=0.1),
    "RMSprop": lambda m: torch.optim.RMSprop(groups(m), lr=0.01, centered=True, momentum=0.5),
    "Lamb": lambda m: Lamb([p for p in m.parameters() if p.requires_grad], lr=0.01),
}
if hasattr(torch.optim, "Muon"):
    KINDS["Muon"] = lambda m: torch.optim.Muon([m.first.weight, m.second.weight], lr=0.02)
if hasattr(torch.optim, "Adafactor"):
    KINDS["Adafactor"] = lambda m: torch.optim.Adafactor(m.parameters(), lr=0.05)


HOOKS = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")


def by_value(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)
    return 1


def by_hand(model):
    """Norms of each parameter, gradients that are replaced and taken away."""
    model.scale.grad = None
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad * 0.5
            parameter.grad.data.mul_(0.5)
    return sum(float(p.grad.detach().norm()) for p in model.parameters() if p.grad is not None)


CLIPS = (
    lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02, norm_type=float("inf")),
    lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.02, norm_type=1.0, foreach=HOOKS or None),
    by_value,
    by_hand,
)


def sharded(kind, model, **options):
    return gradbus.DistributedOptimizer(KINDS[kind](model), model.named_parameters(), shard=True, **options)


def check_same(ours, alone, what):
    for (name, mine), one in zip(ours.named_parameters(), alone.parameters()):
        assert torch.allclose(mine, one, rtol=0, atol=1e-5), (what, name, (mine - one).abs().max())
    everywhere = gradbus.allgather_object([p.tolist() for p in ours.parameters()])
    assert all(other == everywhere[0] for other in everywhere), what


def train(ours, optimizer, alone, reference, steps, clip=None, passes=1, closure=False):
    """``clip``: how to clip a model's gradients. It returns a number that must be the same."""
    for step in steps:
        reference.zero_grad(set_to_none=True)
        for each in range(passes):
            loss_of(alone, step * passes + each).backward()
        expected = clip(alone) if clip else None
        reference.step()

        def backward(step=step):
            optimizer.zero_grad()
            for each in range(passes):
                loss = loss_of(ours, step * passes + each, RANK)
                loss.backward()
            return loss

        if closure:
            assert optimizer.step(backward).item() > 0
            continue
        backward()
        if clip:
            found = clip(ours) if HOOKS else optimizer.clip_grad_norm_(0.05)
            assert abs(float(found) - float(expected)) <= 1e-5 * float(expected), (found, expected)
        optimizer.step()


def compare(kind, **how):
    ours, alone = Model(), Model()
    passes = how.get("passes", 1)
    optimizer = sharded(kind, ours, backward_passes_per_step=passes)
    reference = KINDS[kind](alone)
    train(ours, optimizer, alone, reference, range(5), **how)
    check_same(ours, alone, (kind, how))
    return ours, optimizer, alone, reference


def check_equal():
    for kind in KINDS:
        compare(kind)
    compare("Adam", clip=lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05))
    if HOOKS:
        for kind in ("Adam", "Lamb"):
            for clip in CLIPS:
                compare(kind, clip=clip)
    compare("SGD", passes=3)
    compare("AdamW", closure=True)


def check_memory():
    ours, optimizer, alone, reference = compare("AdamW")
    whole = sum(v.numel() * v.element_size() for s in reference.state.values() for v in s.values())
    assert optimizer.shard_bytes() <= whole / SIZE + 256, (optimizer.shard_bytes(), whole)
    optimizer.zero_grad()
    if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        (loss_of(ours, 9, RANK) + ours.unused.sum()).backward()
        kept = [p.grad.share for p in ours.parameters() if p.grad is not None]  # the rest was freed in backward()
        elements = sum(p.numel() for p in ours.parameters())
        assert sum(share.numel() for share in kept if share is not None) <= elements / SIZE + 1
        reference.zero_grad(set_to_none=True)
        (loss_of(alone, 9) + alone.unused.sum()).backward()
        for one, whole in zip(ours.parameters(), alone.parameters()):
            assert (one.grad is None) == (whole.grad is None)
            assert whole.grad is None or torch.allclose(one.grad.full_tensor(), whole.grad, rtol=0, atol=1e-5)
        optimizer.zero_grad()


def check_scaler():
    """A loss of the last rank overflows, and no rank steps; also with a fused optimizer, which scales by itself."""
    for kind, make in (("SGD", KINDS["SGD"]), ("Lamb", KINDS["Lamb"]),
                       ("fused", lambda m: torch.optim.Adam(m.parameters(), lr=0.01, fused=True))):  # fmt: skip
        ours, alone = Model(), Model()
        optimizer = gradbus.DistributedOptimizer(make(ours), ours.named_parameters(), shard=True)
        reference = make(alone)
        scalers = [torch.amp.GradScaler("cpu", init_scale=64.0) for _ in range(2)]
        for step in range(6):
            overflows = step == 2
            both = (ours, optimizer, scalers[0], RANK), (alone, reference, scalers[1], None)
            for model, wrapped, scaler, rank in both:
                model.zero_grad()
                loss = loss_of(model, step, rank)
                if overflows and rank in (None, SIZE - 1):
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                if step % 2 and kind != "fused":
                    scaler.unscale_(wrapped)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(wrapped)
                scaler.update()
            assert scalers[0].get_scale() == scalers[1].get_scale() == (32.0 if step >= 2 else 64.0)
        check_same(ours, alone, ("scaler", kind))


def check_hooks_that_come_later():
    """A user's hooks on gradients, made before and after, work on this rank's gradients."""
    if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        return
    ours, alone = Model(), Model()

    def halve(parameter):
        parameter.grad.mul_(0.5)

    for model in (ours, alone):
        for parameter in model.second.parameters():
            parameter.register_post_accumulate_grad_hook(halve)
    optimizer, reference = sharded("SGD", ours), KINDS["SGD"](alone)
    for model in (ours, alone):
        for parameter in [*model.first.parameters(), model.scale]:
            parameter.register_post_accumulate_grad_hook(halve)
    train(ours, optimizer, alone, reference, range(4))
    check_same(ours, alone, "hooks")


def check_models_that_differ():
    """As without shards: the first step says so."""
    ours = Model()
    with torch.no_grad():
        ours.second.bias[RANK] += 1.0
    optimizer = sharded("SGD", ours)
    loss_of(ours, 1, RANK).backward()
    try:
        optimizer.step()
    except gradbus.MismatchError as error:
        assert "GB-O906" in str(error) and "parameter 'second.bias'" in str(error), error
    else:
        raise AssertionError("not noticed")
    gradbus.broadcast_parameters(ours, root_rank=0)
    optimizer.step()
    check_same(ours, ours, "broadcast")


def check_scheduler():
    """One made before, and parameters that are written between steps."""
    ours, alone = Model(), Model()
    plain, reference = KINDS["SGD"](ours), KINDS["SGD"](alone)
    schedules = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5) for each in (plain, reference)]
    optimizer = gradbus.DistributedOptimizer(plain, ours.named_parameters(), shard=True)
    assert optimizer is plain and isinstance(optimizer, torch.optim.SGD)
    for step in range(4):
        train(ours, optimizer, alone, reference, [step])
        for schedule in schedules:
            schedule.step()
        with torch.no_grad():
            for model in (ours, alone):
                model.second.bias.add_(0.25)
    check_same(ours, alone, "scheduler")


def check_newest_has_the_parameters():
    """A new optimizer for each epoch, sharded or not; the earlier ones stay alive, or are collected."""
    ours, alone, kept = Model().double(), Model().double(), []  # many steps, so in double precision
    for epoch in range(12):
        kind = "SGD" if epoch % 4 < 2 else "Adam"
        options = {"shard": True} if epoch % 3 else {}
        optimizer = gradbus.DistributedOptimizer(KINDS[kind](ours), ours.named_parameters(), **options)
        reference = KINDS[kind](alone)
        for step in range(2 * epoch, 2 * epoch + 2):
            optimizer.zero_grad()
            (loss_of(ours, step, RANK) + ours.unused.sum()).backward()
            optimizer.step()
            reference.zero_grad(set_to_none=True)
            (loss_of(alone, step) + alone.unused.sum()).backward()
            reference.step()
        if epoch < 6:
            kept.append(optimizer)
        hooks = [len(getattr(p, "_post_accumulate_grad_hooks", None) or ()) for p in ours.parameters()]
        assert max(hooks) <= 1, hooks
    check_same(ours, alone, "epochs")
    for old in kept:
        for call in (old.step, old.zero_grad, old.synchronize):
            try:
                call()
            except gradbus.ClosedError as error:
                assert "a newer DistributedOptimizer (" in str(error) and " | next: " in str(error), error
            else:
                raise AssertionError(call)


def check_refusals():
    def refused(words, call):
        try:
            call()
        except (gradbus.InvalidError, gradbus.BusyError) as error:
            assert all(word in str(error) for word in words) and " | next: " in str(error), error
        else:
            raise AssertionError(words)

    model = Model()
    refused(["LBFGS", "all parameters at once"],
            lambda: gradbus.DistributedOptimizer(torch.optim.LBFGS(model.parameters()), shard=True))  # fmt: skip
    for option in ({"compression": "topk:ratio=0.01"}, {"mode": "delayed:k=1"}, {"schedule": "wfbp"}):
        refused([f"{next(iter(option))}= does not go"], lambda option=option: sharded("SGD", model, **option))
    frozen = Model()
    frozen.first.requires_grad_(False)
    optimizer = sharded("SGD", frozen)
    frozen.first.requires_grad_(True)
    refused([str(tuple(frozen.first.weight.shape)), "trains now"], optimizer.step)
    optimizer = sharded("SGD", model)
    refused(["copied"], lambda: __import__("copy").deepcopy(optimizer))
    refused(["already distributed"], lambda: gradbus.DistributedOptimizer(optimizer, shard=True))
    if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        for parameter in model.parameters():
            parameter.grad = None
        loss = (loss_of(model, 0, RANK) + model.unused.sum()) * 1.0
        loss.backward(retain_graph=True)
        refused(["GB-O905", "backward_passes_per_step=2"], lambda: loss.backward(retain_graph=True))
        refused(["sharded optimizer", "full_tensor()"], lambda: model.scale.grad.sum())
        refused(["sharded optimizer", "full_tensor()"], lambda: model.first.bias.grad.mul_(torch.ones(33)))
        refused(["add_()", "full_tensor()"], lambda: model.first.bias.data.add_(model.first.bias.grad * 0.1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def check_checkpoints_of_changing_use():
    """A reentrant checkpoint brings a gradient after the exchange has begun."""
    if not HOOKS:
        return
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(4, 4)
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), shard=True, broadcast=True)
    for uses in (1, 3):
        x = torch.ones(2, 4, requires_grad=True)
        for _ in range(uses):
            x = checkpoint(layer, x, use_reentrant=True)
        optimizer.zero_grad()
        try:
            x.sum().backward()
        except gradbus.BusyError as error:
            assert uses == 3 and "in this backward()" in str(error) and "use_reentrant=False" in str(error), error
            optimizer.zero_grad()
        else:
            assert uses != 3, uses
            optimizer.step()


def check_profiler():
    """Ranges of both kinds of optimizers."""
    for options, names in (({}, ["gradbus::wait"]), ({"shard": True}, ["gradbus::wait", "gradbus::gather"])):
        model = Model()
        optimizer = gradbus.DistributedOptimizer(KINDS["SGD"](model), model.named_parameters(), **options)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss_of(model, 0, RANK).backward()
            optimizer.step()
            optimizer.flush()
            model.second.weight.sum().item()  # in the next forward pass, where results may be waited for
            loss_of(model, 1, RANK)
        known = {event.key for event in profile.key_averages()}
        assert known >= set(names), (options, sorted(known))


def save(file):
    for kind in ("Adam", "Lamb" if not hasattr(torch.optim, "Muon") else "Muon"):
        ours, optimizer, _, _ = compare(kind)
        state = optimizer.state_dict()  # all ranks call it
        if RANK == 0:
            torch.save({"model": ours.state_dict(), "optimizer": state}, f"{file}.{kind}")


def load(file):
    """Goes on from five steps, also without Gradbus."""
    for kind in ("Adam", "Muon"):
        if kind not in KINDS:
            continue
        ours, alone, apart = Model(), Model(), Model()
        reference, optimizer, plain = KINDS[kind](alone), sharded(kind, ours), KINDS[kind](apart)
        for step in range(9):
            if step == 5:
                saved = torch.load(f"{file}.{kind}")
                for model, each in ((ours, optimizer), (apart, plain)):
                    model.load_state_dict(saved["model"])
                    each.load_state_dict(saved["optimizer"])
            reference.zero_grad(set_to_none=True)
            loss_of(alone, step).backward()
            reference.step()
            if step >= 5:
                plain.zero_grad(set_to_none=True)
                loss_of(apart, step).backward()
                plain.step()
                optimizer.zero_grad()
                loss_of(ours, step, RANK).backward()
                optimizer.step()
        check_same(ours, alone, kind)
        check_same(apart, alone, kind)


if sys.argv[1] == "equal":
    check_equal()
    check_memory()
    check_hooks_that_come_later()
    check_models_that_differ()
    check_scheduler()
    if hasattr(torch.amp, "GradScaler"):
        check_scaler()
    check_newest_has_the_parameters()
    check_refusals()
    check_checkpoints_of_changing_use()
    check_profiler()
else:
    {"save": save, "load": load}[sys.argv[1]](sys.argv[2])
gradbus.barrier()
print("ok")
