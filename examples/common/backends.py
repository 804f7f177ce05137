"""One training program, several ways to exchange gradients: Gradbus, DistributedDataParallel, FSDP2, Horovod.

A backend has `rank`, `size` and `local_rank()`; `distribute` gives the model and the optimizer to train with, after
every rank got rank 0's parameters; `total`, `gather` and `barrier` are for loss and checks, not for
speed; `close` ends it. A library is imported by the backend that uses it and by nothing else, so the
programs run where the other two are not installed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from typing import Any

import torch

from common import rendezvous

MIB = 1 << 20
START_TIMEOUT_S = 60
DDP_BUCKET_MIB = 25  # PyTorch's default


class Gradbus:
    """Shared memory and daemons: gradients are born where they are reduced."""

    name = "gradbus"

    def __init__(self, bucket_mib: int | None) -> None:
        import gradbus.torch as gradbus

        gradbus.init()
        self.gradbus = gradbus
        self.rank = gradbus.rank()
        self.size = gradbus.size()
        self.compression: str | None = None  # of gradients that are distributed from now on; None: the job's
        self.schedule: str | None = None  # None: the job's
        self._bucket_bytes = bucket_mib * MIB if bucket_mib else None

    def local_rank(self) -> int:
        """Its number among the ranks of its node."""
        return self.gradbus.local_rank()

    def distribute(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        """(model, optimizer): the optimizer's step() waits for the mean gradient."""
        self.gradbus.broadcast_parameters(model.state_dict(), root_rank=0)
        if isinstance(optimizer, (self.gradbus.OneBitAdam, self.gradbus.ZeroOneAdam)):
            return model, optimizer  # they exchange by themselves
        optimizer = self.gradbus.DistributedOptimizer(
            optimizer, model.named_parameters(), bucket_bytes=self._bucket_bytes, compression=self.compression,
            schedule=self.schedule,
        )  # fmt: skip
        return model, optimizer

    def total(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The sum over all ranks."""
        return self.gradbus.allreduce(tensor, name=name, op=self.gradbus.Sum)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        return self.gradbus.allgather_object(value)

    def barrier(self) -> None:
        """Returns when every rank is here."""
        self.gradbus.barrier()

    def close(self) -> None:
        """Leaves the job."""
        self.gradbus.shutdown()


class Ddp:
    """torch.nn.parallel.DistributedDataParallel over Gloo."""

    name = "ddp"
    process_group = "gloo"
    hook: str | None = None  # a codec for gradbus.torch.hook()

    def __init__(self, bucket_mib: int | None) -> None:
        import torch.distributed as dist

        # Its functions take the group of the moment of import as a default, and would keep it alive
        # past close() if DistributedDataParallel were the first to import it.
        import torch.distributed.nn.functional  # noqa: F401

        self.rank, self.size = rendezvous.prepare(START_TIMEOUT_S)
        dist.init_process_group(
            self.process_group, rank=self.rank, world_size=self.size, timeout=rendezvous.timeout(START_TIMEOUT_S)
        )
        self.dist = dist
        self.compression: str | None = None  # fp16 is its only one
        self._bucket_mib = bucket_mib or DDP_BUCKET_MIB

    def local_rank(self) -> int:
        """Its number among the ranks of its node, from torchrun or `gradbus run`."""
        return int(os.environ.get("LOCAL_RANK", os.environ.get("GRADBUS_LOCAL_RANK", "0")))

    def distribute(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        """(wrapped model, optimizer); gradients are views of the buckets, which saves a copy."""
        model = torch.nn.parallel.DistributedDataParallel(
            model, bucket_cap_mb=self._bucket_mib, gradient_as_bucket_view=True
        )
        if self.compression == "fp16":
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        if self.hook is not None:
            import gradbus.torch as gradbus

            model.register_comm_hook(None, gradbus.hook(self.hook))
        return model, optimizer

    def total(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The sum over all ranks."""
        tensor = tensor.clone()
        self.dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        values = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Returns when every rank is here."""
        self.dist.barrier()

    def close(self) -> None:
        """Leaves the process group. Its threads have ended then: one that still let go of a tensor
        while Python ends would abort the process."""
        gc.collect()  # a model wrapped in DistributedDataParallel refers to itself, and to the group
        self.dist.destroy_process_group()


class DdpOnGradbus(Ddp):
    """DistributedDataParallel over the process group of Gradbus."""

    name = "ddp-gradbus"
    process_group = "gradbus"


class Fsdp(Ddp):
    """FSDP2 over Gloo: each layer with parameters is sharded, and then the rest."""

    name = "fsdp"

    def distribute(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        """(sharded model, an optimizer like the given one over the shards)."""
        from torch.distributed.fsdp import fully_shard

        for parameter in model.parameters():
            self.dist.broadcast(parameter.detach(), 0)
        for child in model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
        fully_shard(model)
        return model, type(optimizer)(model.parameters(), **optimizer.defaults)


class FsdpOnGradbus(Fsdp):
    """FSDP2 over the process group of Gradbus."""

    name = "fsdp-gradbus"
    process_group = "gradbus"


class Horovod:
    """Horovod's DistributedOptimizer; started by horovodrun."""

    name = "horovod"

    def __init__(self, bucket_mib: int | None) -> None:
        if int(os.environ.get("GRADBUS_SIZE", "1")) > 1:
            sys.exit("--backend horovod: gradbus run does not start Horovod | next: horovodrun -np N --gloo python ...")
        # Horovod's name for a bucket; a value given from outside wins.
        if bucket_mib:
            os.environ.setdefault("HOROVOD_FUSION_THRESHOLD", str(bucket_mib * MIB))
        try:
            import horovod.torch as hvd
        except ImportError as error:
            sys.exit(f"--backend horovod: {error} | next: install horovod with PyTorch support into {sys.prefix}")
        hvd.init()
        self.hvd = hvd
        self.rank = hvd.rank()
        self.size = hvd.size()
        self.compression: str | None = None  # fp16 is its only one

    def local_rank(self) -> int:
        """Its number among the ranks of its node."""
        return self.hvd.local_rank()

    def distribute(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Any:
        """(model, optimizer): the optimizer's step() waits for the mean gradient."""
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        compression = self.hvd.Compression.fp16 if self.compression == "fp16" else self.hvd.Compression.none
        return model, self.hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=compression)

    def total(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """The sum over all ranks."""
        return self.hvd.allreduce(tensor, name=name, op=self.hvd.Sum)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        return self.hvd.allgather_object(value)

    def barrier(self) -> None:
        """Returns when every rank is here."""
        self.hvd.allreduce(torch.zeros(1), name="barrier")

    def close(self) -> None:
        """Leaves the job."""
        self.hvd.shutdown()


BACKENDS = {backend.name: backend for backend in (Gradbus, Ddp, DdpOnGradbus, Fsdp, FsdpOnGradbus, Horovod)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """--backend, --hook, --bucket-mib and --time."""
    parser.add_argument("--backend", choices=BACKENDS, default="gradbus", help="who exchanges gradients")
    parser.add_argument("--hook", metavar="CODEC", help="of gradbus.torch.hook() on DDP, such as efsignsgd")
    parser.add_argument("--bucket-mib", type=int, default=25, help="gradients travel in pieces of about this size")
    parser.add_argument("--time", action="store_true", help="report step times in the JSON line")


def add_peer_options(parser: argparse.ArgumentParser) -> None:
    """Those, --ddp, --horovod, --schedule and --compression; buckets have the size that each library gives them."""
    add_options(parser)
    parser.set_defaults(bucket_mib=None)
    parser.add_argument("--ddp", dest="backend", action="store_const", const="ddp", help="as --backend ddp")
    parser.add_argument("--horovod", dest="backend", action="store_const", const="horovod", help="as --backend horovod")
    parser.add_argument("--schedule", help="when gradients are exchanged (Gradbus): docs/concepts/schedules.md")
    parser.add_argument("--compression", help="codec of gradients between nodes; the peers have fp16 only")


def check_peer_options(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Ends the program, before it joins a job, when the peer cannot do what is asked."""
    if arguments.backend == "gradbus":
        return
    if arguments.schedule is not None:
        parser.error(f"--schedule is an option of Gradbus, and --backend is {arguments.backend}")
    if arguments.compression not in (None, "none", "fp16"):
        parser.error(f"--compression {arguments.compression}: {arguments.backend} has none and fp16")


def connect(arguments: argparse.Namespace) -> Any:
    """The chosen backend, joined. One thread computes: ranks share the cores."""
    torch.set_num_threads(1)
    backend = BACKENDS[arguments.backend](arguments.bucket_mib)
    backend.compression = getattr(arguments, "compression", None)
    if getattr(arguments, "schedule", None):
        backend.schedule = arguments.schedule
    if getattr(arguments, "hook", None):
        if not isinstance(backend, Ddp) or isinstance(backend, Fsdp):
            sys.exit(f"--hook: --backend {arguments.backend} has no hooks | next: use --backend ddp or ddp-gradbus")
        backend.hook = arguments.hook
    return backend


def flush(optimizer: Any) -> None:
    """Ends the exchanges of a sync mode; afterwards all ranks have the same parameters."""
    if hasattr(optimizer, "flush"):  # not DDP's or Horovod's, which always have
        optimizer.flush()


def report_loss(optimizer: Any, loss: float) -> None:
    """For `gradbus run --loss-percent` and `gradbus status --json`."""
    if hasattr(optimizer, "report_loss"):  # not DDP's or Horovod's
        optimizer.report_loss(loss)


def my_part(backend: Any, batch: Any) -> Any:
    """This rank's contiguous part of a global batch."""
    part = len(batch) // backend.size
    return batch[backend.rank * part : (backend.rank + 1) * part]
