"""A rank: under every schedule a training has the parameters that one process has, however they are read.

    schedules.py SCHEDULE
"""

import copy
import gc
import io
import os
import pickle
import sys
import threading

import gradbus.torch as gradbus
import torch
from changing_model import Changing
from gradbus.torch._exchange.holders import sees_all_readers
from lamb import CheckpointedLamb, Lamb
from optimizer import BATCH, assert_same, batches, loss_of, mine, new_model, pair
from torch import nn

SCHEDULE = sys.argv[1]


def wrap(optimizer, model, **options):
    return gradbus.DistributedOptimizer(
        optimizer, model.named_parameters(), schedule=SCHEDULE, bucket_bytes=300, **options
    )


class LayerwiseLamb(Lamb):
    """The length of a step is that of a layer, and no layer knows of another one."""

    steps_each_parameter_alone = True


class Counting(torch.optim.SGD):
    """Its group counts steps, so it cannot be stepped in parts; nobody says that it can."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
            group["lr"] = 0.1 / group["count"]
        return super().step(closure)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "lamb": lambda p: LayerwiseLamb(p, lr=0.05, weight_decay=0.01),
    "counting": lambda p: Counting(p, lr=0.1),
}


def train(ours, alone, make, use=lambda model, optimizer: None, loss=loss_of, steps=5, **options):
    """`use(model, optimizer)` looks at both after each step: what it returns must agree."""
    optimizer, reference = wrap(make(ours.parameters()), ours, **options), make(alone.parameters())
    for x, y in (batches() * 2)[:steps]:
        seen = []
        for model, stepper, a, b in ((ours, optimizer, mine(x), mine(y)), (alone, reference, x, y)):
            stepper.zero_grad()
            loss(model, a, b).backward()
            stepper.step()
            seen.append(use(model, stepper))
        close(*seen)
    assert_same(ours, alone, tolerance=1e-5)
    return optimizer


def close(ours, alone):
    if isinstance(alone, torch.Tensor):
        assert torch.allclose(ours, alone, atol=1e-5), (ours, alone)
    elif isinstance(alone, (list, tuple)):
        assert len(ours) == len(alone)
        for one, other in zip(ours, alone):
            close(one, other)
    else:
        assert ours == alone, (ours, alone)


def case_optimizers():
    for name, make in OPTIMIZERS.items():
        for passes in (1, 2):
            ours, alone = pair()

            def loss(model, x, y, passes=passes):
                if passes == 1 or not torch.is_grad_enabled():
                    return loss_of(model, x, y)
                half = len(x) // 2
                (loss_of(model, x[:half], y[:half]) / 2).backward()
                return loss_of(model, x[half:], y[half:]) / 2

            print(name, passes, flush=True)
            train(ours, alone, make, loss=loss, backward_passes_per_step=passes)


# Every way to look at a model after step(), and before its next forward pass.
READERS = {
    "state_dict": lambda m, o: [t.clone() for t in m.state_dict().values()],
    "deepcopy": lambda m, o: [p.detach() for p in copy.deepcopy(m).parameters()],
    "pickle": lambda m, o: [p.detach() for p in pickle.loads(pickle.dumps(m)).parameters()],
    "save": lambda m, o: torch.save(m.state_dict(), io.BytesIO()),
    "data": lambda m, o: [p.data.clone() for p in m.parameters()],
    "numpy": lambda m, o: torch.from_numpy(m[2].weight.detach().numpy().copy()),
    "vector": lambda m, o: nn.utils.parameters_to_vector(m.parameters()).detach(),
    "item": lambda m, o: torch.tensor(m[0].bias[3].item()),
    "norm": lambda m, o: sum(p.norm() for p in m.parameters()).detach(),
    "foreach": lambda m, o: [n.detach() for n in foreach_norm([p for p in m.parameters()])],
    "stack": lambda m, o: torch.cat([p.flatten() for p in m.parameters()]).detach(),
    "functional": lambda m, o: torch.nn.functional.linear(torch.ones(2, 5), m[0].weight, m[0].bias).detach(),
    "matmul": lambda m, o: (torch.ones(2, 40) @ m[2].weight.t()).detach(),
    "evaluation": lambda m, o: m.eval()(torch.ones(3, 5)).detach(),
    "no_grad": lambda m, o: torch.no_grad()(lambda: m(torch.ones(3, 5)))(),
    "last layer": lambda m, o: m[2](torch.ones(3, 40)).detach(),
    "optimizer's state": lambda m, o: [v.clone() for p in m.parameters() for v in state_of(o, p)],
    "optimizer's state_dict": lambda m, o: [
        v.clone() for _, s in sorted(o.state_dict()["state"].items()) for v in s.values() if torch.is_tensor(v)
    ],
    "gradients": lambda m, o: [p.grad.clone() for p in m.parameters()],
    "in place": lambda m, o: torch.no_grad()(lambda: [p.clamp_(-0.05, 0.05).clone() for p in m.parameters()])(),
    "data assigned": lambda m, o: [setattr(p, "data", p.data * 0.9) for p in m.parameters()],
    "threads": lambda m, o: in_threads(lambda: [p.detach().clone() for p in m.parameters()])[0],
    "thread": lambda m, o: in_thread(lambda: [p.detach().clone() for p in m.parameters()]),
    "repr": lambda m, o: len(repr(m[2].bias)) > 0,
    "facts": lambda m, o: [(tuple(p.shape), p.requires_grad, p.numel(), str(p.dtype)) for p in m.parameters()],
}


def foreach_norm(parameters):
    return torch._foreach_norm(parameters)


def state_of(optimizer, parameter):
    return [v for v in optimizer.state[parameter].values() if torch.is_tensor(v)]


def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.extend(call()))
    thread.start()
    thread.join()
    return found


def in_threads(call):
    """Four threads at once: all find the same."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(call())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(torch.equal(a, b) for one in found for a, b in zip(one, found[0])), found
    return found


def case_readers():
    for name, read in READERS.items():
        print(name, flush=True)
        train(*pair(), OPTIMIZERS["adam"], read)


def case_last_step_counts():
    """Without flush(), and when the optimizer is dropped before anybody looks."""
    for drop in ("", "freed at once", "collected"):
        ours, alone = pair()
        optimizer = train(ours, alone, OPTIMIZERS["sgd"], steps=1)
        reference = OPTIMIZERS["sgd"](alone.parameters())
        fresh, x_y = new_model(0), batches()[0]
        del optimizer
        ours.load_state_dict(fresh.state_dict())
        alone.load_state_dict(fresh.state_dict())
        optimizer = wrap(OPTIMIZERS["sgd"](ours.parameters()), ours)
        for model, stepper, a, b in (
            (ours, optimizer, *map(mine, x_y)), (alone, reference, *x_y)
        ):  # fmt: skip
            stepper.zero_grad()
            loss_of(model, a, b).backward()
            if stepper is optimizer:
                stepper.trainer = [stepper] if drop == "collected" else None  # a cycle
                stepper.step()
        torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True).step()
        if drop:
            del optimizer, stepper
            gc.collect()
        assert_same(ours, alone, tolerance=1e-5)


def case_aliases():
    """Tensors of the parameters' memory that were made before: they are no calls, and see each step."""
    ours, alone = pair()
    views = {id(m): [p.detach() for p in m.parameters()] for m in (ours, alone)}
    train(ours, alone, OPTIMIZERS["sgd"], lambda m, o: [v.clone() for v in views[id(m)]])
    ours, alone = pair()
    for model in (ours, alone):  # all parameters in one vector
        vector = nn.utils.parameters_to_vector(model.parameters()).detach()
        nn.utils.vector_to_parameters(vector, model.parameters())
        views[id(model)] = vector
    train(ours, alone, OPTIMIZERS["adam"], lambda m, o: views[id(m)].clone())
    ours, alone = pair()
    kept = {}

    def keep(model, optimizer):
        kept[id(model)] = kept.get(id(model)) or model.state_dict()
        return [t.clone() for t in kept[id(model)].values()]

    train(ours, alone, OPTIMIZERS["adam"], keep)


class Attention(nn.Module):
    """Torch's layer reads the weight of its part `out_proj` without calling it. The embedding is tied."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.unused = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        hidden = self.embedding(x)
        hidden = self.norm(hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0])
        hidden = self.lstm(hidden)[0] * self.scale
        return torch.nn.functional.linear(hidden, self.embedding.weight)


def case_layers_that_read_others():
    torch.manual_seed(3)
    alone = Attention()
    ours = copy.deepcopy(alone)
    words = torch.randint(11, (40, BATCH * gradbus.size(), 6), generator=torch.Generator().manual_seed(5))

    def loss(model, x, y):
        # The norm reads all parameters before the forward pass.
        decay = 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
        return nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()) + decay

    # Not Adam: the gradient of the keys' bias is rounding alone, which Adam would make a step of full length.
    optimizer, reference = wrap(OPTIMIZERS["sgd"](ours.parameters()), ours), OPTIMIZERS["sgd"](alone.parameters())
    for x in words[:6]:
        for model, stepper, a in ((ours, optimizer, mine(x)), (alone, reference, x)):
            stepper.zero_grad()
            loss(model, a, None).backward()
            stepper.step()
    assert_same(ours, alone, tolerance=1e-4)


def case_rates_of_the_step():
    """A schedule changes the rate after step(): the step that was made keeps its own, also as a tensor."""
    for as_tensor in (False, True):
        ours, alone = pair()

        def make(parameters, as_tensor=as_tensor):
            rate = torch.tensor(0.05) if as_tensor else 0.05
            return torch.optim.Adam(parameters, lr=rate, foreach=False)

        def decay(model, optimizer):
            for group in optimizer.param_groups:
                if torch.is_tensor(group["lr"]):
                    group["lr"].mul_(0.5)
                else:
                    group["lr"] *= 0.5

        if as_tensor and torch.__version__ < "2.1":
            continue
        train(ours, alone, make, decay)


def case_hooks_see_one_step():
    if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
        return
    seen = []

    def make(parameters):
        optimizer = OPTIMIZERS["adam"](parameters)
        parameters = optimizer.param_groups[0]["params"]
        optimizer.register_step_post_hook(lambda *_: seen.append(sum(p.sum().item() for p in parameters)))
        return optimizer

    train(*pair(), make)
    assert len(seen) == 10 and all(abs(a - b) < 1e-4 for a, b in zip(seen[::2], seen[1::2])), seen


def case_frozen_and_unfrozen():
    for after in (True, False):
        count = {}

        def freeze(model, optimizer, after=after, count=count):
            count[id(model)] = number = count.get(id(model), 0) + 1
            if not after:
                optimizer.zero_grad()
            model[0].requires_grad_(number not in (2, 3))

        train(*pair(), OPTIMIZERS["sgd"], freeze)


def case_fork():
    ours, alone = pair()

    def read_in_child(model, optimizer):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, pickle.dumps([p.sum().item() for p in model.parameters()]))
            os._exit(0)
        os.wait()
        found = torch.tensor(pickle.loads(os.read(reader, 65536)))
        os.close(reader)
        os.close(writer)
        return found

    train(ours, alone, OPTIMIZERS["sgd"], read_in_child, steps=3)


def case_graphs_that_change():
    """Nested modules, a shared weight, an unused layer, and a branch of every other step: SGD, Adam and LAMB."""
    for name in ("sgd", "adam", "lamb"):
        for passes in (1, 2):
            ours, alone = Changing(), Changing()
            optimizer = wrap(OPTIMIZERS[name](ours.parameters()), ours, backward_passes_per_step=passes)
            reference = OPTIMIZERS[name](alone.parameters())
            for x, y in batches() * 2:
                for model, stepper, a, b in ((ours, optimizer, mine(x), mine(y)), (alone, reference, x, y)):
                    stepper.zero_grad(set_to_none=False)  # a branch that was not used counts as zero
                    for _ in range(passes):
                        (loss_of(model, a, b) / passes).backward()
                    stepper.step()
            assert_same(ours, alone, tolerance=1e-5)


def case_checkpoint_in_the_middle():
    for make in (OPTIMIZERS["sgd"], OPTIMIZERS["adam"], lambda p: CheckpointedLamb(p, lr=0.05, weight_decay=0.01)):
        ours, alone = pair()
        for model, part in ((ours, mine), (alone, lambda t: t)):
            stepper = make(model.parameters())
            train_from_checkpoint(model, wrap(stepper, model) if model is ours else stepper, part)
        assert_same(ours, alone, tolerance=1e-5)


def train_from_checkpoint(model, stepper, part):
    """Goes back to the third step after the sixth one."""
    kept = None
    for number, (x, y) in enumerate(batches() + batches()):
        if number == 3:
            kept = io.BytesIO()
            torch.save((model.state_dict(), stepper.state_dict()), kept)
        if number == 6:
            kept.seek(0)
            weights, state = torch.load(kept)
            model.load_state_dict(weights)
            stepper.load_state_dict(state)
        stepper.zero_grad()
        loss_of(model, part(x), part(y)).backward()
        stepper.step()


def case_scripted():
    """C++ runs a scripted module: it reads parameters without a call."""
    for call in (lambda m, a: m(a), lambda m, a: m.forward(a)):
        torch.manual_seed(1)
        alone = torch.jit.script(new_model(0))
        ours = torch.jit.script(new_model(0))

        def loss(model, x, y, call=call):
            return nn.functional.cross_entropy(call(model, x), y)

        train(ours, alone, OPTIMIZERS["sgd"], loss=loss)


def case_order_of_the_backward_pass():
    """Layers that are used in another order than they are made in: buckets follow the gradients."""

    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.last = nn.Linear(40, 3)
            self.middle = nn.Linear(40, 40)
            self.first = nn.Linear(5, 40)

        def forward(self, x):
            return self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))

    ours, alone = Backwards(), Backwards()
    optimizer = train(ours, alone, OPTIMIZERS["adam"])
    names = [slot.name for bucket in optimizer._gradbus.exchange.buckets for slot in bucket.slots]
    in_order = [name.partition(".")[0] for name in names] == ["last"] * 2 + ["middle"] * 2 + ["first"] * 2
    auto = SCHEDULE == "auto" and gradbus.size() > 1 and sees_all_readers()
    follows = SCHEDULE.partition(":")[0] in ("ddp", "bytescheduler", "dear", "mg-wfbp", "mergecomp") or auto
    assert in_order == follows, names


def case_changes():
    """From one schedule to the next while the training runs; compression keeps its residual."""
    for compression in (None, "topk:ratio=0.5"):
        models = [new_model(4), new_model(4)]
        steppers = [
            wrap(OPTIMIZERS["sgd"](model.parameters()), model, compression=compression) for model in models
        ]
        names = ["wfbp", "ddp", "dear", "fusion", "bytescheduler", "auto"]
        for number, (x, y) in enumerate(batches() * 2):
            steppers[0].change_schedule(names[number % len(names)], bucket_bytes=300 if number % 2 else None)
            for model, stepper in zip(models, steppers):
                stepper.zero_grad()
                loss_of(model, mine(x), mine(y)).backward()
                stepper.step()
        assert_same(*models, tolerance=1e-5 if compression is None else 0.2)
    try:
        steppers[0].change_schedule("soon")
    except gradbus.InvalidError as error:
        assert "'soon' is unknown | next: take one of wfbp" in str(error), error
    else:
        raise AssertionError("soon")


def main():
    gradbus.init()
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            print(name, flush=True)
            case()
    gradbus.flush()
    gradbus.shutdown()
    print("ok", flush=True)


if __name__ == "__main__":
    main()
