"""Trains a small classifier on the UCI optical digits, data-parallel with Gradbus.

    gradbus run -np 4 --agents 2 -- python examples/digits/train.py     # four ranks
    python examples/digits/train.py                                     # one process, same batches

Every rank takes its slice of the same global batches, so the mean of the ranks' gradients is the
gradient of the global batch, and the result depends on the number of ranks only by rounding.
The last line on stdout, from rank 0, is one JSON object. README.md defines the model; --backend
trains the same with another library, for comparison.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

import dataset
import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common.progress import Progress  # noqa: E402

from common import backends, devices, optimizers, pace, parameters, step_times, traffic  # noqa: E402


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The options; their defaults reach an accuracy of 0.97 in seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images")
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate")
    parser.add_argument("--last-lr-share", type=float, default=1.0, metavar="SHARE",
                        help="of --lr, to which it falls along a cosine; 1: it stays")  # fmt: skip
    parser.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters and the batches")
    parser.add_argument("--fold", type=int, default=0, choices=range(dataset.TEST_EVERY),
                        help="image i is for testing when i mod 5 is this")  # fmt: skip
    parser.add_argument("--save-params", metavar="FILE", help="rank 0 writes the parameters (npz)")
    parser.add_argument("--traffic", action="store_true", help="report what agents sent to each other (takes 3 s)")
    optimizers.add_options(parser, momentum=0.9)
    optimizers.adam_options(parser)
    pace.add_options(parser)
    devices.add_options(parser)
    backends.add_options(parser)
    arguments = parser.parse_args(words)
    if min(arguments.epochs, arguments.batch_size, arguments.hidden) < 1:
        parser.error("--epochs, --batch-size and --hidden must be at least 1")
    devices.check(parser, arguments.device)
    return arguments


def build_model(hidden: int, seed: int, rank: int) -> torch.nn.Module:
    """64 pixels, a hidden layer of tanh units, 10 classes; every rank gets rank 0's numbers later."""
    first = torch.nn.Linear(dataset.PIXELS, hidden)
    second = torch.nn.Linear(hidden, dataset.CLASSES)
    if rank == 0:
        layers = dataset.initial_layers([dataset.PIXELS, hidden, dataset.CLASSES], seed)
        with torch.no_grad():
            for layer, (weight, bias) in zip((first, second), layers):
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(bias))
    return torch.nn.Sequential(first, torch.nn.Tanh(), second)


class Trainer:
    """One rank's part of the training."""

    def __init__(self, backend: Any, arguments: argparse.Namespace) -> None:
        self.backend = backend
        self.arguments = arguments
        self.device = devices.take(arguments.device, backend)
        images_and_labels = (torch.from_numpy(array).to(self.device) for array in dataset.load(arguments.fold))
        self.train_x, self.train_y, self.test_x, self.test_y = images_and_labels
        self.steps = len(self.train_x) // arguments.batch_size
        self.model = build_model(arguments.hidden, arguments.seed, backend.rank).to(self.device)
        self.times = step_times.StepTimes()
        self.alone = step_times.StepTimes()
        self.pace = pace.Pace(arguments, backend.rank, backend.size)

    def _make_optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return optimizers.chosen(model, self.arguments, self.arguments.lr)

    def _learning_rate(self, done: int) -> float:
        """After `done` steps of all epochs."""
        share, steps = self.arguments.last_lr_share, self.arguments.epochs * self.steps
        return self.arguments.lr * (share + (1 - share) * 0.5 * (1 + math.cos(math.pi * done / steps)))

    def _step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: np.ndarray) -> torch.Tensor:
        mine = torch.from_numpy(backends.my_part(self.backend, batch)).to(self.device)
        with self.pace.computing():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(self.train_x[mine]), self.train_y[mine])
            loss.backward()
        optimizer.step()
        return loss.detach()

    def _batch(self, order: np.ndarray, step: int) -> np.ndarray:
        return order[step * self.arguments.batch_size : (step + 1) * self.arguments.batch_size]

    def time_alone(self) -> None:
        """Steps without an exchange, for --time."""
        order = dataset.epoch_order(len(self.train_x), self.arguments.seed, 0)
        self.alone = step_times.time_alone(
            self.backend,
            self.model,
            self._make_optimizer,
            lambda model, optimizer, step: self._step(model, optimizer, self._batch(order, step)),
            self.steps,
        )

    def test_accuracy(self) -> float:
        """Each rank tests every size-th image; the counts are summed."""
        mine = slice(self.backend.rank, None, self.backend.size)
        with torch.no_grad():
            right = (self.model(self.test_x[mine]).argmax(1) == self.test_y[mine]).sum().reshape(1)
        return self.backend.total(right, "test/right").item() / len(self.test_y)

    def train(self) -> dict[str, Any]:
        """All epochs; returns what the JSON line says about them."""
        if self.arguments.time:
            self.time_alone()
        model, optimizer = self.backend.distribute(self.model, self._make_optimizer(self.model))
        sent = traffic.Traffic(self.backend) if self.arguments.traffic else None
        epochs = self.arguments.epochs
        progress = Progress(epochs, self.steps, show=self.backend.rank == 0)
        loss_sum = torch.zeros(1, device=self.device)
        for epoch in range(epochs):
            order = dataset.epoch_order(len(self.train_x), self.arguments.seed, epoch)
            loss_sum.zero_()
            for step in range(self.steps):
                batch = self._batch(order, step)
                optimizers.set_learning_rate(optimizer, self._learning_rate(epoch * self.steps + step))
                with self.times.step(), self.pace.step():
                    loss = self._step(model, optimizer, batch)
                loss_sum += loss
                progress.step(epoch, step, len(batch), loss.item())
            backends.flush(optimizer)
            total = self.backend.total(loss_sum, "train/loss").item()
            mean_loss = total / self.steps / self.backend.size
            accuracy = self.test_accuracy()
            progress.round(epoch, f"loss {mean_loss:.4f}  test accuracy {accuracy:.4f}")
        result = {
            "accuracy": accuracy,
            "loss": mean_loss,
            "samples_per_s": round(progress.units_per_s, 1),
            "epochs": epochs,
            "steps": epochs * self.steps,
            "seconds": round(progress.seconds, 3),
            **self.pace.report(self.backend),
        }
        return {**result, **sent.report(self.model)} if sent else result


def run(backend: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """One rank's training from beginning to end; what the JSON line says."""
    trainer = Trainer(backend, arguments)
    result = {"model": "digits", **trainer.train()}
    param_hash = parameters.digest(trainer.model)
    parameters.check_identical(backend, param_hash)
    parameters.save(backend, arguments.save_params, trainer.model)
    result.update(param_hash=param_hash, world_size=backend.size, ranks_identical=True)
    if arguments.time:
        result.update(step_times.report(backend, trainer.model, trainer.times, trainer.alone))
    return result


def main() -> None:
    """One rank."""
    arguments = parse_arguments()
    backend = backends.connect(arguments)
    if arguments.batch_size % backend.size != 0:
        sys.exit(f"--batch-size {arguments.batch_size} is not divisible by {backend.size} ranks")
    result = run(backend, arguments)
    if backend.rank == 0:
        print(json.dumps(result), flush=True)
    backend.close()


if __name__ == "__main__":
    main()
