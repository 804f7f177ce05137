"""The training loop of examples/mnist, cifar, imagenet and bert: a workload, ranks, and one JSON line at the end.

Every rank takes its part of the same global batches. Rank 0 reports what a user wants to compare: samples per second,
the time of a step, and how long a rank only waited for others in it (exposed communication).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from common import backends, devices, parameters, step_times, tensorboard
from common.progress import Progress

REPORT_STEPS = 10

Batch = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained."""

    name: str
    make_model: Callable[[], torch.nn.Module]
    make_optimizer: Callable[[torch.nn.Module], torch.optim.Optimizer]
    batch: Callable[[int], Batch]  # of a step and all ranks; the first dimension of each tensor is the sample
    loss: Callable[[torch.nn.Module, Batch], torch.Tensor]  # the mean over the samples
    evaluate: Callable[[torch.nn.Module], dict[str, float]] = lambda _: {}  # after the last step, on every rank


def add_options(parser: argparse.ArgumentParser, steps: int, batch_size: int) -> None:
    """The options of every program; these are their defaults."""
    parser.add_argument("--steps", type=int, default=steps, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=batch_size, help="of all ranks together")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters and the batches")
    parser.add_argument("--save-params", metavar="FILE", help="rank 0 writes the parameters (npz)")
    tensorboard.add_options(parser)
    devices.add_options(parser)
    backends.add_peer_options(parser)


def parse(parser: argparse.ArgumentParser, words: list[str] | None = None) -> argparse.Namespace:
    """Checked before a job is joined."""
    arguments = parser.parse_args(words)
    if min(arguments.steps, arguments.batch_size) < 1 or arguments.seed < 0:
        parser.error("--steps and --batch-size must be at least 1, --seed 0")
    devices.check(parser, arguments.device)
    backends.check_peer_options(parser, arguments)
    return arguments


class Trainer:
    """One rank's part of the training."""

    def __init__(self, backend: Any, workload: Workload, arguments: argparse.Namespace) -> None:
        self.backend = backend
        self.workload = workload
        self.arguments = arguments
        torch.manual_seed(arguments.seed + backend.rank)  # every rank gets rank 0's numbers later
        self.device = devices.take(arguments.device, backend)
        self.model = workload.make_model().to(self.device)
        self.board = tensorboard.Board(arguments.tensorboard, backend.rank)
        self.times = step_times.StepTimes()
        self.alone = step_times.StepTimes()
        self.waited: list[float] = []  # seconds in each step; empty where the library does not say
        self.losses: list[float] = []

    def _step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        batch = tuple(backends.my_part(self.backend, one).to(self.device) for one in self.workload.batch(step))
        optimizer.zero_grad()
        loss = self.workload.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    @contextlib.contextmanager
    def _waiting(self, optimizer: Any) -> Iterator[None]:
        """Notes how long this rank waited for others in the block."""
        if not hasattr(optimizer, "exposed_communication"):
            yield
            return
        before = optimizer.exposed_communication()
        yield
        self.waited.append(optimizer.exposed_communication() - before)

    def train(self) -> dict[str, Any]:
        """All steps; returns what the JSON line says about them."""
        arguments, samples = self.arguments, self.arguments.batch_size
        if arguments.time:
            self.alone = step_times.time_alone(
                self.backend, self.model, self.workload.make_optimizer, self._step, arguments.steps
            )
        model, optimizer = self.backend.distribute(self.model, self.workload.make_optimizer(self.model))
        shows = self.backend.rank == 0
        progress = Progress(-(-arguments.steps // REPORT_STEPS), REPORT_STEPS, shows, "part", "samples")
        for step in range(arguments.steps):
            began = time.perf_counter()
            with self.times.step(), self._waiting(optimizer):
                loss = self._step(model, optimizer, step)
            self._note(optimizer, step, loss.item(), time.perf_counter() - began)
            part, inside = divmod(step, REPORT_STEPS)
            progress.step(part, inside, samples, self.losses[-1])
            if inside == REPORT_STEPS - 1 or step == arguments.steps - 1:
                progress.round(part, f"loss {self.losses[-1]:.4f}")
        backends.flush(optimizer)
        self.board.close()
        return {"steps": arguments.steps, "samples_per_s": round(progress.units_per_s, 2), **self._summary()}

    def _note(self, optimizer: Any, step: int, loss: float, seconds: float) -> None:
        self.losses.append(loss)
        backends.report_loss(optimizer, loss)
        values = {"loss": loss, "samples_per_s": self.arguments.batch_size / seconds, "step_ms": seconds * 1e3}
        if self.waited:
            values["exposed_ms"] = self.waited[-1] * 1e3
        self.board.step(step, **values)

    def _summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {"first_loss": self.losses[0], "loss": self.losses[-1]}
        if self.waited:
            counted = self.waited[min(step_times.WARM_UP_STEPS, len(self.waited) // 2) :]
            found["exposed_ms"] = round(sum(counted) / len(counted) * 1e3, 3)
        return found


def run(workload: Workload, arguments: argparse.Namespace) -> None:
    """One rank, from its start to its end."""
    backend = backends.connect(arguments)
    if arguments.batch_size % backend.size != 0:
        sys.exit(f"--batch-size {arguments.batch_size} is not divisible by {backend.size} ranks")
    trainer = Trainer(backend, workload, arguments)
    result = {"model": workload.name, "backend": backend.name, **trainer.train()}
    trainer.model.eval()
    with torch.no_grad():
        result.update(workload.evaluate(trainer.model))
    param_hash = parameters.digest(trainer.model)
    parameters.check_identical(backend, param_hash)
    parameters.save(backend, arguments.save_params, trainer.model)
    result.update(param_hash=param_hash, world_size=backend.size, ranks_identical=True)
    result["parameters"] = sum(parameter.numel() for parameter in trainer.model.parameters())
    if arguments.time:
        result.update(step_times.report(backend, trainer.model, trainer.times, trainer.alone))
    if backend.rank == 0:
        print(json.dumps(result), flush=True)
    backend.close()
