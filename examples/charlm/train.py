"""Trains a small transformer on the King James Bible, character by character, data-parallel.

    gradbus run -np 4 --agents 2 -- python examples/charlm/train.py     # four ranks
    python examples/charlm/train.py                                     # one process, same batches

Every rank takes its slice of the same global batches, so the mean of the ranks' gradients is the
gradient of the global batch, and the result depends on the number of ranks only by rounding.
Rank 0 prints a sample of what the model writes and, as the last line, one JSON object. README.md
explains text and model; --backend trains the same with another library, for comparison.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
from typing import Any

import torch
from model import HEAD_WIDTH, CharModel
from text import Corpus, read
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common.progress import Progress  # noqa: E402

from common import backends, devices, optimizers, pace, parameters, step_times, traffic  # noqa: E402

REPORT_STEPS = 20
WARM_UP_STEPS = 20
LAST_LR_SHARE = 0.1
HELD_OUT_WINDOWS = 1024
HELD_OUT_BATCH = 64
TEMPERATURE = 0.7
PROMPT = "And "
OPTIMIZERS = {"adamw": optimizers.adamw, "sgd": optimizers.sgd}


def parse_arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The options; their defaults take a minute or two on two cores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps")
    parser.add_argument("--batch-size", type=int, default=32, help="windows of text, of all ranks together")
    parser.add_argument("--context", type=int, default=64, help="characters in a window")
    parser.add_argument("--width", type=int, default=128, help=f"of the model, a multiple of {HEAD_WIDTH}")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--lr", type=float, default=4e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters, the batches and the sample")
    parser.add_argument("--sample", type=int, default=300, metavar="CHARACTERS", help="to write at the end")
    parser.add_argument("--save-params", metavar="FILE", help="rank 0 writes the parameters (npz)")
    parser.add_argument("--traffic", action="store_true", help="report what agents sent to each other (takes 3 s)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw")
    parser.add_argument("--validate", action="store_true",
                        help="hold out the end of what is learned otherwise, to choose options by")  # fmt: skip
    optimizers.add_options(parser, momentum=0.9)
    pace.add_options(parser)
    devices.add_options(parser)
    backends.add_options(parser)
    arguments = parser.parse_args(words)
    sizes = ("steps", "batch_size", "context", "width", "layers")
    if min(getattr(arguments, name) for name in sizes) < 1 or min(arguments.seed, arguments.sample) < 0:
        parser.error("--steps, --batch-size, --context, --width and --layers must be at least 1, the rest 0")
    if arguments.width % HEAD_WIDTH != 0:
        parser.error(f"--width {arguments.width} is not a multiple of {HEAD_WIDTH}")
    devices.check(parser, arguments.device)
    return arguments


def learning_rate(step: int, arguments: argparse.Namespace) -> float:
    """Rises linearly, then falls along a cosine to a tenth."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / arguments.steps))
    share = LAST_LR_SHARE + (1 - LAST_LR_SHARE) * cosine
    return arguments.lr * share * min(1.0, (step + 1) / WARM_UP_STEPS)


def next_character_loss(model: torch.nn.Module, batch: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy in nats of every window's next characters."""
    logits = model(batch[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction=reduction)


class Trainer:
    """One rank's part of the training."""

    def __init__(self, backend: Any, corpus: Corpus, arguments: argparse.Namespace) -> None:
        self.backend = backend
        self.corpus = corpus
        self.arguments = arguments
        torch.manual_seed(arguments.seed + backend.rank)  # every rank gets rank 0's numbers later
        self.device = devices.take(arguments.device, backend)
        model = CharModel(len(corpus.vocabulary), arguments.width, arguments.layers, arguments.context)
        self.model = model.to(self.device)
        self.pace = pace.Pace(arguments, backend.rank, backend.size)
        self.times = step_times.StepTimes()
        self.alone = step_times.StepTimes()

    def _my_batch(self, step: int) -> torch.Tensor:
        batch = self.corpus.batch(self.arguments.seed, step, self.arguments.batch_size, self.arguments.context)
        return backends.my_part(self.backend, batch).to(self.device)

    def _step(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> torch.Tensor:
        optimizers.set_learning_rate(optimizer, learning_rate(step, self.arguments))
        with self.pace.computing():
            optimizer.zero_grad()
            loss = next_character_loss(model, self._my_batch(step))
            loss.backward()
        optimizer.step()
        return loss.detach()

    def _make_optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        """The learning rate is set anew before every step."""
        return OPTIMIZERS[self.arguments.optimizer](model, self.arguments, lr=0.0)

    def train(self) -> dict[str, Any]:
        """All steps; returns what the JSON line says about them."""
        steps = self.arguments.steps
        if self.arguments.time:
            self.alone = step_times.time_alone(self.backend, self.model, self._make_optimizer, self._step, steps)
        model, optimizer = self.backend.distribute(self.model, self._make_optimizer(self.model))
        sent = traffic.Traffic(self.backend) if self.arguments.traffic else None
        tokens = self.arguments.batch_size * self.arguments.context
        progress = Progress(math.ceil(steps / REPORT_STEPS), REPORT_STEPS, self.backend.rank == 0, "part", "tokens")
        losses = []
        for step in range(steps):
            with self.times.step(), self.pace.step():
                loss = self._step(model, optimizer, step)
            losses.append(loss.item())
            backends.report_loss(optimizer, losses[-1])
            part, inside = divmod(step, REPORT_STEPS)
            progress.step(part, inside, tokens, losses[-1])
            if inside == REPORT_STEPS - 1 or step == steps - 1:
                recent = losses[part * REPORT_STEPS :]
                progress.round(part, f"loss {sum(recent) / len(recent):.4f}")
        backends.flush(optimizer)
        result = {
            "steps": steps,
            "tokens_per_s": round(progress.units_per_s, 1),
            "seconds": round(progress.seconds, 3),
            **self.pace.report(self.backend),
        }
        return {**result, **sent.report(self.model)} if sent else result

    @torch.no_grad()
    def held_out_loss(self) -> float:
        """Nats per character; each rank reads every size-th window, the sums are added."""
        held_out = self.corpus.held_out_windows(HELD_OUT_WINDOWS, self.arguments.context)
        total = torch.zeros(1, dtype=torch.float64)
        for batch in held_out[self.backend.rank :: self.backend.size].split(HELD_OUT_BATCH):
            total += next_character_loss(self.model, batch.to(self.device), reduction="sum").item()
        return self.backend.total(total, "held_out/loss").item() / (HELD_OUT_WINDOWS * self.arguments.context)

    @torch.no_grad()
    def sample(self) -> str:
        """What the model writes after PROMPT."""
        random = torch.Generator().manual_seed(self.arguments.seed)
        text = self.corpus.encode(PROMPT)
        for _ in range(self.arguments.sample):
            logits = self.model(text[None, -self.arguments.context :].to(self.device))[0, -1].cpu()
            chances = torch.softmax(logits / TEMPERATURE, dim=0)
            text = torch.cat([text, torch.multinomial(chances, 1, generator=random)])
        return self.corpus.decode(text)


def run(backend: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """One rank's training from beginning to end; what the JSON line says."""
    trainer = Trainer(backend, Corpus(read(), arguments.validate), arguments)
    result = {"model": "charlm", **trainer.train()}
    loss = trainer.held_out_loss()
    param_hash = parameters.digest(trainer.model)
    parameters.check_identical(backend, param_hash)
    parameters.save(backend, arguments.save_params, trainer.model)
    if backend.rank == 0 and arguments.sample:
        print(trainer.sample() + "\n", flush=True)
    result.update(loss_nats_per_char=loss, loss_bits_per_char=loss / math.log(2))
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
