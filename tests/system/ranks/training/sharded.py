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
    """Parameters of several sizes, one that no loss uses, and a frozen one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first = torch.nn.Linear(7, 33)
        self.second = torch.nn.Linear(33, 5)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x))) * self.scale


def loss_of(model, step, rank=None):
    data = torch.randn(ROWS, 7, generator=torch.Generator().manual_seed(step))
    return model(data if rank is None else data.chunk(SIZE)[rank]).square().mean()


def groups(model):
    return [{"params": model.first.parameters(), "lr": 0.02},
            {"params": [*model.second.parameters(), model.scale, model.unused, model.frozen]}]  # fmt: skip


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


def sharded(kind, model, **options):
    return gradbus.DistributedOptimizer(KINDS[kind](model), model.named_parameters(), shard=True, **options)


def check_same(ours, alone, what):
    for (name, mine), one in zip(ours.named_parameters(), alone.parameters()):
        assert torch.allclose(mine, one, rtol=0, atol=1e-5), (what, name, (mine - one).abs().max())
    everywhere = gradbus.allgather_object([p.tolist() for p in ours.parameters()])
    assert all(other == everywhere[0] for other in everywhere), what


def zero_unused(model):
    """A parameter that no loss used counts as zero here, and is left alone in one process."""
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def train(ours, optimizer, alone, reference, steps, clip=None, passes=1, closure=False):
    for step in steps:
        reference.zero_grad()
        for each in range(passes):
            loss_of(alone, step * passes + each).backward()
        zero_unused(alone)
        if clip:
            expected = torch.nn.utils.clip_grad_norm_(alone.parameters(), clip)
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
            norm = optimizer.clip_grad_norm_(clip)
            assert abs(norm - float(expected)) <= 1e-5 * float(expected), (norm, expected)
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
    compare("Adam", clip=0.05)
    compare("SGD", passes=3)
    compare("AdamW", closure=True)


def check_memory():
    ours, optimizer, alone, reference = compare("AdamW")
    whole = sum(v.numel() * v.element_size() for s in reference.state.values() for v in s.values())
    assert optimizer.shard_bytes() <= whole / SIZE + 256, (optimizer.shard_bytes(), whole)
    if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        (loss_of(ours, 9, RANK) + ours.unused.sum()).backward()
        assert ours.first.weight.grad is None and ours.second.weight.grad is None  # freed in backward()
        optimizer.zero_grad()


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
    ours, alone, kept = Model(), Model(), []
    for epoch in range(12):
        kind = "SGD" if epoch % 4 < 2 else "Adam"
        options = {"shard": True} if epoch % 3 else {}
        optimizer = gradbus.DistributedOptimizer(KINDS[kind](ours), ours.named_parameters(), **options)
        reference = KINDS[kind](alone)
        for step in range(2 * epoch, 2 * epoch + 2):
            optimizer.zero_grad()
            (loss_of(ours, step, RANK) + ours.unused.sum()).backward()
            optimizer.step()
            reference.zero_grad()
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
    optimizer = sharded("SGD", model)
    refused(["copied"], lambda: __import__("copy").deepcopy(optimizer))
    refused(["already distributed"], lambda: gradbus.DistributedOptimizer(optimizer, shard=True))
    if hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
        for parameter in model.parameters():
            parameter.grad = None
        loss = (loss_of(model, 0, RANK) + model.unused.sum()) * 1.0
        loss.backward(retain_graph=True)
        refused(["GB-O905", "backward_passes_per_step=2"], loss.backward)
        optimizer.zero_grad()


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
            reference.zero_grad()
            loss_of(alone, step).backward()
            zero_unused(alone)
            reference.step()
            if step >= 5:
                plain.zero_grad()
                loss_of(apart, step).backward()
                zero_unused(apart)
                plain.step()
                optimizer.zero_grad()
                loss_of(ours, step, RANK).backward()
                optimizer.step()
        check_same(ours, alone, kind)
        check_same(apart, alone, kind)


if sys.argv[1] == "equal":
    check_equal()
    check_memory()
    check_scheduler()
    check_newest_has_the_parameters()
    check_refusals()
    check_profiler()
else:
    {"save": save, "load": load}[sys.argv[1]](sys.argv[2])
gradbus.barrier()
print("ok")
