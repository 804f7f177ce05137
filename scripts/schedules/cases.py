"""What is measured: a job for each model and link, and in it one arm for each schedule, codec and peer."""

from __future__ import annotations

import dataclasses

from schedules.workloads import WORKLOADS

MIB = 1 << 20
PLANNED = "+plan"  # at the end of a schedule: GRADBUS_PLAN=1
PEERS = ("ddp", "ddp-fp16")
SCHEDULES = ("auto", "auto+plan", "wfbp", "ddp", "fusion", "bytescheduler", "dear", "mg-wfbp", "mergecomp")

Arm = tuple[str, str, str, int | None]  # who, schedule, codec ("none": dense), bytes of a bucket (None: its own)


@dataclasses.dataclass(frozen=True)
class Job:
    """One launch."""

    model: str
    batch_size: int
    ranks: int
    link: str
    arms: tuple[Arm, ...]

    @property
    def key(self) -> str:
        """For messages."""
        return f"{self.model} {self.batch_size} {self.ranks} {self.link}"


def is_of_older_torch(who: str) -> bool:
    """Whether its steps are of Horovod's PyTorch, in a launch of its own."""
    return who.startswith("horovod") or who == "gradbus-older"


def name_of(arm: Arm) -> str:
    """For a row."""
    who, schedule, codec, bucket_bytes = arm
    with_codec = "" if codec == "none" else f", `{codec}`"
    if not who.startswith("gradbus"):
        names = {"compute": "compute alone", "ddp": "DDP", "ddp-fp16": "DDP, fp16 hook", "horovod": "Horovod"}
        return names[who] + with_codec
    size = f", {bucket_bytes / MIB:.3g} MiB" if bucket_bytes else ""
    named = f"`{schedule.removesuffix(PLANNED)}`" + (", planned" if schedule.endswith(PLANNED) else "")
    return f"{named}{size}{with_codec}" + (", with Horovod's PyTorch" if is_of_older_torch(who) else "")


def grid(models: list[str], batch_size: int | None, ranks: int, links: list[str], schedules: list[str],
         codecs: list[str], groups: int | None, coded: list[str] | None = None) -> list[Job]:  # fmt: skip
    """Every combination; codecs with the schedules in ``coded`` only, if it is given."""
    jobs = []
    for model in models:
        workload = WORKLOADS[model]
        size = None
        if groups is not None:
            size = -(-sum(p.numel() * 4 for p in workload.make().parameters()) // groups)
        ours: list[Arm] = [("gradbus", schedule, codec, size)
                           for codec in codecs for schedule in schedules
                           if codec == "none" or coded is None or schedule in coded]  # fmt: skip
        arms: list[Arm] = [("compute", "", "none", None), *((peer, "", "none", None) for peer in PEERS), *ours]
        jobs += [Job(model, batch_size or workload.batch_size, ranks, link, tuple(arms)) for link in links]
    return jobs
