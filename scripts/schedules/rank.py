"""A rank that trains one model in several ways by turns, in the same process: what disturbs one disturbs all.

    python -m schedules.rank MODEL BATCH ARMS ROUNDS STEPS STORE

ARMS is a JSON list of [who, schedule, compression, bucket bytes or null]; who is compute (no exchange), gradbus, ddp
or ddp-fp16. STORE is a file that does not exist yet, where ranks of DDP meet. Rank 0 prints one JSON object: by arm,
in order, the seconds of a step, and for Gradbus the seconds that the rank waited, and the plan at the end. These are
means of each turn: a step leaves a part of its work to the next one, so the time of one alone says little.
The schedule "auto+plan" is `auto` with GRADBUS_PLAN=1.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import time
from typing import Any

import gradbus.torch as gradbus
import torch
import torch.distributed as dist
from bench.horovod_in_lab import reachable_interface
from gradbus._ops import is_choice
from gradbus.torch._schedules import schedule_of, wants_plan
from torch.nn.parallel import DistributedDataParallel

from schedules.cases import PLANNED
from schedules.workloads import WORKLOADS

WARM_STEPS = 3  # buckets are formed again after the first one
RECORD_STEPS = 12
PLAN_STEPS_MAX = 120  # in which a plan of the coordinator must have been made and tried


class Training:
    """A copy of the model with its optimizer."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """Makes a step; the seconds in which this rank waited, where that is known."""
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        return 0.0


class WithGradbus(Training):
    """Under one schedule after another: they share the model and the optimizer."""

    def __init__(self, model: torch.nn.Module, compression: str | None) -> None:
        super().__init__(model)
        self.optimizer = gradbus.DistributedOptimizer(
            self.optimizer, model.named_parameters(), compression=compression, broadcast=True
        )

    def step(self, x: torch.Tensor, y: torch.Tensor) -> float:
        """With the wait."""
        before = self.optimizer.exposed_communication()
        super().step(x, y)
        return float(self.optimizer.exposed_communication() - before)

    def begin_turn(self, schedule: str, bucket_bytes: int | None) -> None:
        """Nothing is measured yet."""
        self.optimizer.change_schedule(schedule, bucket_bytes)


class WithPlan(WithGradbus):
    """Under one schedule, whose buckets or codecs are planned after some steps. They stay for all turns."""

    def __init__(self, model: torch.nn.Module, compression: str | None, schedule: str, bucket_bytes: int | None,
                 batch: tuple[torch.Tensor, torch.Tensor]) -> None:  # fmt: skip
        super().__init__(model, compression)
        os.environ["GRADBUS_PLAN"] = "1" if schedule.endswith(PLANNED) else "0"
        self.optimizer.change_schedule(schedule.removesuffix(PLANNED), bucket_bytes)
        del os.environ["GRADBUS_PLAN"]
        for _ in range(PLAN_STEPS_MAX):
            self.step(*batch)
            if self.optimizer.exchange_plan()["is_final"]:
                break
        else:
            sys.exit(f"{schedule}: no plan after {PLAN_STEPS_MAX} steps")

    def begin_turn(self, schedule: str, bucket_bytes: int | None) -> None:
        """The plan stays."""


class WithDdp(Training):
    """Gloo over the same link."""

    def __init__(self, model: torch.nn.Module, half: bool) -> None:
        super().__init__(model)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        if half:
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            self.model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def record(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The first optimizer of a job writes down what its steps compute."""
    training = WithGradbus(model, None)
    for _ in range(RECORD_STEPS):
        training.step(*batch)
    training.optimizer.flush()


def main() -> None:
    """As the module says."""
    name, batch_size, arms_text, rounds, steps, store = sys.argv[1:]
    torch.set_num_threads(1)
    gradbus.init()
    arms = json.loads(arms_text)
    if any(arm[0].startswith("ddp") for arm in arms):
        os.environ["GLOO_SOCKET_IFNAME"] = reachable_interface()[0]
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=gradbus.rank(), world_size=gradbus.size()
        )
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    model, x = workload.make(), workload.inputs(int(batch_size))
    y = torch.randint(workload.classes, (int(batch_size),))
    trainings: dict[Any, Training] = {}

    def training_of(who: str, schedule: str, compression: str | None, size: int | None) -> Training:
        planned = (
            schedule.endswith(PLANNED) or wants_plan(schedule_of(schedule or None)) or is_choice(compression or "none")
        )
        key = (who, compression, (schedule, size) if planned else None)
        if key not in trainings:
            own = copy.deepcopy(model)
            trainings[key] = (
                WithPlan(own, compression, schedule, size, (x, y)) if who == "gradbus" and planned
                else WithGradbus(own, compression) if who == "gradbus"
                else WithDdp(own, who == "ddp-fp16") if who.startswith("ddp")
                else Training(own)
            )  # fmt: skip
        return trainings[key]

    if os.environ.get("GRADBUS_RECORD"):
        record(copy.deepcopy(model), (x, y))
    found: list[dict[str, Any]] = [{"seconds": [], "waited": []} for _ in arms]
    for _ in range(int(rounds)):
        for arm, result in zip(arms, found):
            who, schedule, compression, bucket_bytes = arm
            training = training_of(who, schedule, compression, bucket_bytes)
            if isinstance(training, WithGradbus):
                training.begin_turn(schedule, bucket_bytes)
            gradbus.barrier()
            for _ in range(WARM_STEPS):
                training.step(x, y)
            begin = time.monotonic()
            result["waited"].append(sum(training.step(x, y) for _ in range(int(steps))) / int(steps))
            result["seconds"].append((time.monotonic() - begin) / int(steps))
            if isinstance(training, WithGradbus):
                training.optimizer.flush()  # nothing of it is left to another arm's turn
                result["plan"] = training.optimizer.exchange_plan()
    if gradbus.rank() == 0:
        bytes_of_model = sum(p.numel() * 4 for p in model.parameters())
        print(json.dumps({"bytes": bytes_of_model, "arms": found}), flush=True)
    gradbus.barrier()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()
    gradbus.shutdown()


if __name__ == "__main__":
    main()
