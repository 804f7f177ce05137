"""A rank: sequences of backward(), zero_grad() and step() that are valid in one process give the same here.

    sequences.py            all cases
    sequences.py WORD...    those with these words in their name

Besides named cases, random programs: the same on all ranks and in one process on the global batch.
"""

import copy
import random
import sys

import gradbus.torch as gradbus
import torch
from torch.utils.checkpoint import checkpoint

BATCH = 4
PROGRAMS = 25
LENGTH = 14


def mine(tensor):
    return tensor[gradbus.rank() * BATCH : (gradbus.rank() + 1) * BATCH]


def batch(seed):
    return torch.randn(
        BATCH * gradbus.size(), 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def net(outputs, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, outputs)
    ).double()


class Gan:
    """A generator, a discriminator and their optimizers; plain SGD, which zeros do not move."""

    def __init__(self, part, distributed, **options):
        self.part = part
        self.g, self.d = net(4, 1), net(1, 2)
        self.optimizers = {}
        for name, model in (("g", self.g), ("d", self.d)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            if distributed:
                optimizer = gradbus.DistributedOptimizer(
                    optimizer, model.named_parameters(), bucket_bytes=200, **options
                )
            self.optimizers[name] = optimizer

    def backward_d(self, x):
        fake = self.g(self.part(x)).detach()
        (self.d(fake).tanh().mean() - self.d(self.part(x)).tanh().mean()).backward()

    def backward_g(self, x):
        """Fills the discriminator's gradients as well."""
        (-self.d(self.g(self.part(x))).tanh().mean()).backward()

    def models(self):
        return {"g": self.g, "d": self.d}

    def run(self, operation, number):
        verb, which, *option = operation
        model, optimizer = self.models()[which], self.optimizers[which]
        if verb == "backward":
            getattr(self, f"backward_{which}")(batch(number))
        elif verb == "zero":
            (optimizer if option[0] else model).zero_grad(set_to_none=option[1])
        elif verb == "step":
            optimizer.step()
        elif verb == "freeze":
            model[0].requires_grad_(option[0])
        elif verb == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        elif verb == "storage":
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.data = parameter.grad.data.clone()


def assert_same(ours, alone, what):
    for which, model in ours.models().items():
        for (name, a), b in zip(model.named_parameters(), alone.models()[which].parameters()):
            worst = (a - b).abs().max().item()
            assert worst < 1e-9, (what, which, name, worst)
            assert torch.equal(gradbus.broadcast(a.detach(), 0), a), (what, which, name)


def both(program, **options):
    ours, alone = Gan(mine, True, **options), Gan(lambda x: x, False)
    for number, operation in enumerate(program):
        ours.run(operation, number)
        alone.run(operation, number)
    assert_same(ours, alone, program)


def case_gan():
    """The generator's backward() fills the discriminator's gradients, which are dropped."""
    for by_optimizer in (True, False):
        for to_none in (True, False):
            zero_d = ("zero", "d", by_optimizer, to_none)
            zero_g = ("zero", "g", by_optimizer, to_none)
            one = [
                zero_d, ("backward", "d"), ("step", "d"),
                zero_g, ("backward", "g"), ("step", "g"),
            ]  # fmt: skip
            both(one * 4)
            other = [zero_g, ("backward", "g"), ("step", "g"), zero_d, ("backward", "d"), ("step", "d")]
            both(other * 4)
            both([("freeze", "d", False), zero_g, ("backward", "g"), ("step", "g"),
                  ("freeze", "d", True), zero_d, ("backward", "d"), ("step", "d")] * 4)  # fmt: skip


def case_random_programs():
    operations = [
        ("backward", "g"), ("backward", "d"), ("step", "g"), ("step", "d"),
        ("clip", "g"), ("clip", "d"), ("storage", "d"), ("freeze", "d", True), ("freeze", "d", False),
        *[("zero", which, a, b) for which in "gd" for a in (True, False) for b in (True, False)],
    ]  # fmt: skip
    weights = [4, 4, 3, 3, 1, 1, 1, 1, 1, *[0.6] * 8]
    for seed in range(PROGRAMS):
        both(random.Random(seed).choices(operations, weights, k=LENGTH))


def case_reentrant_checkpoint_of_a_shared_layer():
    """Its gradient comes once per use."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

        def forward(self, x):
            for _ in range(3):
                x = checkpoint(lambda y: torch.tanh(self.shared(y)), x, use_reentrant=True)
            return self.last(x)

    torch.manual_seed(3)
    alone = Model().double()
    ours = copy.deepcopy(alone)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9), ours.named_parameters()
    )
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for number in range(5):
        x = batch(number)
        for one, model, inputs in ((optimizer, ours, mine(x)), (reference, alone, x)):
            one.zero_grad()
            model(inputs.clone().requires_grad_()).tanh().mean().backward()
            one.step()
    for a, b in zip(ours.parameters(), alone.parameters()):
        assert torch.allclose(a, b, atol=1e-12), (a - b).abs().max()


def main():
    torch.set_num_threads(1)
    gradbus.init()
    for name, case in sorted(globals().items()):
        if name.startswith("case_") and all(word in name for word in sys.argv[1:]):
            case()
            print(name, flush=True)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()
