"""Steps of one PyTorch model by turns in the same processes: over Gradbus, over Gloo, and without an exchange.

    gradbus run -np 2 --no-prefix -- python scripts/frameworks/torch_turns.py --model mlp|charlm [--fsdp] [--hook CODEC]

A machine's speed can change by a factor of two within a minute, so figures of two runs cannot be compared. Here each
round has a few steps of each, one after the other, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
from common import rendezvous  # noqa: E402

START_TIMEOUT_S = 60
WARM_UP_ROUNDS = 2
BATCH = 16  # of all ranks together
CONTEXT = 64
WIDTH, LAYERS, VOCABULARY = 128, 5, 64


def example(folder: str, file: str) -> Any:
    """A module of an example. Two examples have a train.py, so the name alone does not say which."""
    path = EXAMPLES / folder / f"{file}.py"
    spec = importlib.util.spec_from_file_location(f"{folder}_{file}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mlp() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """25.6 M parameters and little to compute; model, inputs and labels of a rank."""
    model = example("mlp", "train").build_model(seed=1)
    part = BATCH // dist.get_world_size()
    inputs, labels = torch.randn(part, model[0].in_features), torch.randint(model[-1].out_features, (part,))
    return model, inputs, labels


def charlm() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A transformer of 1 M parameters on random characters."""
    torch.manual_seed(1)
    model = example("charlm", "model").CharModel(VOCABULARY, WIDTH, LAYERS, CONTEXT)
    text = torch.randint(VOCABULARY, (2 * BATCH // dist.get_world_size(), CONTEXT + 1))
    return model, text[:, :-1], text[:, 1:].flatten()


MODELS = {"mlp": mlp, "charlm": charlm}


def sharded(model: torch.nn.Module, backend: str) -> torch.nn.Module:
    """FSDP2: each layer with parameters, and then the rest."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(dist.new_group(backend=backend), "cpu")
    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def wrapped(model: torch.nn.Module, backend: str, arguments: argparse.Namespace) -> torch.nn.Module:
    """A copy of the model that exchanges its gradients over a group of its own."""
    model = copy.deepcopy(model)
    if arguments.fsdp:
        return sharded(model, backend)
    group = dist.new_group(backend=backend)
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if arguments.hook and backend == "gradbus":
        import gradbus.torch as gradbus

        model.register_comm_hook(None, gradbus.hook(arguments.hook))
    return model


def stepper(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    """A function that makes one step of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(inputs)
        torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels).backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], count: int) -> float:
    """Milliseconds of one of ``count`` steps, on the slowest rank."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        step()
    slowest = torch.tensor(time.perf_counter() - began)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest) / count * 1e3


def measure(steps: dict[str, Callable[[], None]], rounds: int, count: int) -> dict[str, list[float]]:
    """Of each one the milliseconds in each round; who begins changes from round to round."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + WARM_UP_ROUNDS):
        names = list(steps)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            milliseconds = timed(steps[name], count)
            if number >= WARM_UP_ROUNDS:
                times[name].append(milliseconds)
    return times


def main() -> None:
    """Rank 0 prints one JSON object: medians in ms, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 instead of DDP")
    parser.add_argument("--hook", metavar="CODEC", help="of gradbus.torch.hook(), for DDP over Gradbus")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=3, help="of each one in a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # ranks share the cores
    import gradbus.torch  # noqa: F401  # registers the backend

    rank, size = rendezvous.prepare(START_TIMEOUT_S)
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=rendezvous.timeout(START_TIMEOUT_S))
    torch.manual_seed(1)
    model, inputs, labels = MODELS[arguments.model]()
    steps = {backend: stepper(wrapped(model, backend, arguments), inputs, labels) for backend in ("gradbus", "gloo")}
    steps["alone"] = stepper(model, inputs, labels)
    times = measure(steps, arguments.rounds, arguments.steps)
    ours, theirs, alone = (statistics.median(times[name]) for name in ("gradbus", "gloo", "alone"))
    share = statistics.median(max(0.0, 1 - a / b) for a, b in zip(times["alone"], times["gloo"]))
    if rank == 0:
        print(json.dumps({
            "ours_ms": round(ours, 3), "theirs_ms": round(theirs, 3), "alone_ms": round(alone, 3),
            "communication_share": round(share, 4),
            "ratio": round(statistics.median(b / a for a, b in zip(times["gradbus"], times["gloo"])), 4),
        }), flush=True)  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
