"""Step times of a 25.6 M-parameter perceptron (3072-4096-2560-1000) on synthetic data.

    gradbus run -np 2 --no-prefix -- python examples/mlp/train.py
    gradbus run -np 2 --no-prefix -- python examples/mlp/train.py --backend ddp

As many parameters as a ResNet-50 but little to compute, so the exchange of 102.5 MB of gradients
shows in the step. Every rank takes its slice of the same global batches. The last line on stdout,
from rank 0, is one JSON object (examples/charlm/README.md lists the fields of the step times).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import backends, pace, parameters, step_times  # noqa: E402

WIDTHS = (3072, 4096, 2560, 1000)  # input, two hidden layers, classes


def parse_arguments() -> argparse.Namespace:
    """The options; their defaults take less than a minute on two cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=16, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters and the batches")
    pace.add_options(parser)
    backends.add_options(parser)
    arguments = parser.parse_args()
    arguments.time = True  # there is nothing else to see
    if min(arguments.steps, arguments.batch_size) < 1 or arguments.seed < 0:
        parser.error("--steps and --batch-size must be at least 1, --seed 0")
    return arguments


def build_model(seed: int) -> nn.Module:
    """Linear layers with rectified units between them."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(WIDTHS, WIDTHS[1:]):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Trainer:
    """One rank's part of the run."""

    def __init__(self, backend: Any, arguments: argparse.Namespace) -> None:
        self.backend = backend
        self.arguments = arguments
        self.model = build_model(arguments.seed + backend.rank)
        random = torch.Generator().manual_seed(arguments.seed)
        inputs = torch.randn(arguments.batch_size, WIDTHS[0], generator=random)
        labels = torch.randint(WIDTHS[-1], (arguments.batch_size,), generator=random)
        # One batch for all steps: making another would cost as much as a layer.
        self.inputs, self.labels = backends.my_part(backend, inputs), backends.my_part(backend, labels)
        self.pace = pace.Pace(arguments, backend.rank, backend.size)

    def _make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.arguments.lr)

    def _step(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        with self.pace.computing():
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(self.inputs), self.labels)
            loss.backward()
        optimizer.step()
        return loss.detach()

    def run(self) -> dict[str, Any]:
        """All steps; returns the JSON line."""
        steps = self.arguments.steps
        alone = step_times.time_alone(self.backend, self.model, self._make_optimizer, self._step, steps)
        model, optimizer = self.backend.distribute(self.model, self._make_optimizer(self.model))
        times = step_times.StepTimes()
        losses = []
        for step in range(steps):
            with times.step(), self.pace.step():
                loss = self._step(model, optimizer, step)
            losses.append(loss.item())
        backends.flush(optimizer)
        param_hash = parameters.digest(self.model)
        parameters.check_identical(self.backend, param_hash)
        return {
            "model": "mlp",
            "steps": steps,
            "first_loss": losses[0],
            "loss": losses[-1],
            "param_hash": param_hash,
            "world_size": self.backend.size,
            "ranks_identical": True,
            **step_times.report(self.backend, self.model, times, alone),
            **self.pace.report(self.backend),
        }


def main() -> None:
    """One rank."""
    arguments = parse_arguments()
    backend = backends.connect(arguments)
    if arguments.batch_size % backend.size != 0:
        sys.exit(f"--batch-size {arguments.batch_size} is not divisible by {backend.size} ranks")
    result = Trainer(backend, arguments).run()
    if backend.rank == 0:
        print(json.dumps(result), flush=True)
    backend.close()


if __name__ == "__main__":
    main()
