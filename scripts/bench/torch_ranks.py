"""One rank of torch.distributed (Gloo) or Horovod, timing all-reduces as mpi_allreduce.c does.

    python torch_ranks.py gloo --ranks 2 sizes 4 1048576          starts both ranks itself
    horovodrun -np 2 --gloo python torch_ranks.py horovod sizes 4
    gradbus run -np 2 --agents 2 --link 1gbit -- python torch_ranks.py gloo --store FILE sizes 4

A sample is the slowest rank's time, begun at a barrier, of one operation; of small ones as many in a row as fill
BATCH_SECONDS, divided by their number, as `gradbus bench` does. f32, sum, in place. Rank 0 prints one JSON array.
Runs with torch 1.13, which is what Horovod needs.
"""

from __future__ import annotations

import argparse
import datetime
import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Iterator

import torch

SAMPLES_MIN = 3
BATCH_MAX, BATCH_BYTES_MAX, BATCH_SECONDS = 128, 64 << 10, 200e-6
CHECK_BLOCK = 1_000_000  # elements; a multiple of the period of the known data
BUCKET_BYTES = 25 << 20  # DistributedDataParallel's default
SIOCGIFADDR = 0x8915  # linux/sockios.h
START_DEADLINE = datetime.timedelta(seconds=60)


class Gloo:
    """The newest torch.distributed on its CPU backend."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch.distributed as dist

        self._dist = dist
        self.rank = int(os.environ.get("RANK", os.environ.get("GRADBUS_RANK", "0")))
        self.size = int(os.environ.get("WORLD_SIZE", os.environ.get("GRADBUS_SIZE", "1")))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", network_interface())
        dist.init_process_group("gloo", init_method=f"file://{arguments.store}", rank=self.rank,
                                world_size=self.size, timeout=START_DEADLINE)

    def sum(self, tensor: torch.Tensor) -> None:
        """Sums in place and waits."""
        self._dist.all_reduce(tensor)

    def max(self, tensor: torch.Tensor) -> None:
        """The largest of all ranks, in place."""
        self._dist.all_reduce(tensor, op=self._dist.ReduceOp.MAX)

    def barrier(self) -> None:
        """Returns when all ranks are here."""
        self._dist.barrier()

    def sum_all(self, tensors: list[torch.Tensor]) -> None:
        """Starts all sums, then waits for all."""
        for work in [self._dist.all_reduce(t, async_op=True) for t in tensors]:
            work.wait()

    def forms(self, flat: torch.Tensor, parts: list[torch.Tensor]) -> dict[str, Callable[[], None]]:
        """The ways to exchange a step's gradients. Buckets and the flat form are laid out
        beforehand, as gradient_as_bucket_view does, so they pay for no copy."""
        buckets = list(flat.split(BUCKET_BYTES // 4))
        return {"sequential": lambda: [self.sum(t) for t in parts] and None,
                "async": lambda: self.sum_all(parts),
                "buckets": lambda: self.sum_all(buckets),
                "flat": lambda: self.sum(flat)}

    def close(self) -> None:
        """Leaves the group."""
        self._dist.destroy_process_group()


class Horovod:
    """Horovod over Gloo: what `horovodrun --gloo` starts."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import horovod.torch as hvd

        hvd.init()
        self._hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()

    def sum(self, tensor: torch.Tensor) -> None:
        """Sums in place and waits; one name a size, so responses are cached."""
        self._hvd.allreduce_(tensor, op=self._hvd.Sum, name=f"sum/{tensor.numel()}")

    def max(self, tensor: torch.Tensor) -> None:
        """The largest of all ranks, in place."""
        every = self._hvd.allgather(tensor.reshape(1, -1), name=f"max/{tensor.numel()}")
        tensor.copy_(every.max(dim=0).values)

    def barrier(self) -> None:
        """Returns when all ranks are here."""
        self._hvd.barrier()

    def sum_all(self, tensors: list[torch.Tensor]) -> None:
        """Starts all sums, then waits for all; Horovod fuses them itself."""
        handles = [self._hvd.allreduce_async_(t, op=self._hvd.Sum, name=f"part/{i}")
                   for i, t in enumerate(tensors)]
        for handle in handles:
            self._hvd.synchronize(handle)

    def forms(self, flat: torch.Tensor, parts: list[torch.Tensor]) -> dict[str, Callable[[], None]]:
        """The ways to exchange a step's gradients."""
        grouped = lambda: self._hvd.grouped_allreduce_(parts, op=self._hvd.Sum, name="group")  # noqa: E731
        return {"async": lambda: self.sum_all(parts), "grouped": grouped, "flat": lambda: self.sum(flat)}

    def close(self) -> None:
        """Leaves the job."""
        self._hvd.shutdown()


def network_interface() -> str:
    """The interface ranks reach each other by: the first with an address that is not loopback when
    this process is in a network namespace of a job, else loopback."""
    if "GRADBUS_RANK" not in os.environ:
        return "lo"
    return next((name for _, name in socket.if_nameindex() if name != "lo" and has_address(name)), "lo")


def has_address(interface: str) -> bool:
    """Whether it has an IPv4 address. Asked of the kernel: /sys shows the interfaces of another namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            fcntl.ioctl(query.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return False
    return True


def count_wrong(group: Any, tensor: torch.Tensor, exchange: Callable[[], None]) -> int:
    """Elements whose sum is not the known one, on all ranks. Whole numbers, so f32 is exact. Block by
    block: fresh memory of the tensor's size costs more than the exchange."""
    blocks = tensor.split(CHECK_BLOCK)
    index = torch.arange(min(tensor.numel(), CHECK_BLOCK), dtype=torch.float32) % 1000
    mine, expected = index + group.rank, index * group.size + group.size * (group.size - 1) // 2
    for block in blocks:
        block.copy_(mine[: block.numel()])
    exchange()
    wrong = torch.tensor([float(sum(int((block != expected[: block.numel()]).sum()) for block in blocks))])
    group.sum(wrong)
    tensor.zero_()
    return int(wrong.item())


def sample(group: Any, batch: int, exchange: Callable[[], None]) -> float:
    """Seconds of one operation on this rank."""
    group.barrier()
    began = time.perf_counter()
    for _ in range(batch):
        exchange()
    return (time.perf_counter() - began) / batch


def warm_up(group: Any, arguments: argparse.Namespace, size: int, exchange: Callable[[], None]) -> tuple[int, int]:
    """(operations of a sample, samples that fit into the bound), the same on every rank."""
    best = torch.tensor([min(sample(group, 1, exchange) for _ in range(arguments.warmup))], dtype=torch.float64)
    group.max(best)
    one = max(best.item(), 1e-9)
    batch = min(int(BATCH_SECONDS / one) + 1, BATCH_MAX) if size < BATCH_BYTES_MAX else 1
    if arguments.seconds <= 0:
        return batch, arguments.iterations
    return batch, min(max(int(arguments.seconds / (one * batch)), SAMPLES_MIN), arguments.iterations)


def measure(group: Any, arguments: argparse.Namespace, label: str, tensor: torch.Tensor,
            exchange: Callable[[], None]) -> dict[str, Any]:
    """One row; times in microseconds."""
    wrong = count_wrong(group, tensor, exchange)
    batch, count = warm_up(group, arguments, tensor.numel() * 4, exchange)
    times = torch.tensor([sample(group, batch, exchange) for _ in range(count)], dtype=torch.float64)
    group.max(times)
    wrong += count_wrong(group, tensor, exchange)
    ordered = sorted(t * 1e6 for t in times.tolist())
    return {"form": label, "size": tensor.numel() * 4, "samples": count, "batch": batch, "time": ordered[0],
            "time_p50": ordered[count // 2], "time_p99": ordered[round((count - 1) * 0.99)],
            "#wrong": wrong}


def run_sizes(group: Any, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per size."""
    for size in map(int, arguments.what):
        tensor = torch.zeros(size // 4)
        yield measure(group, arguments, "single", tensor, lambda t=tensor: group.sum(t))


def run_storm(group: Any, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per form of exchanging the tensors whose counts the file lists."""
    counts = [int(line) for line in pathlib.Path(arguments.what[0]).read_text().split()]
    flat = torch.zeros(sum(counts))
    for label, exchange in group.forms(flat, list(flat.split(counts))).items():
        yield measure(group, arguments, label, flat, exchange)


def print_rows(rows: Iterator[dict[str, Any]], show: bool) -> None:
    """One JSON array, written row by row: one that is done counts even when a later one meets the
    deadline."""
    separator = "["
    for row in rows:
        if show:
            print(separator + json.dumps(row), flush=True)
            separator = ","
    if show:
        print("]", flush=True)


def start_ranks(arguments: argparse.Namespace) -> int:
    """Runs this program once per rank; ends all of them when one fails, and on SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="gradbus-bench-") as folder:
        command = [sys.executable, *sys.argv, "--store", f"{folder}/store"]
        ranks = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank),
                                                "WORLD_SIZE": str(arguments.ranks)})
                 for rank in range(arguments.ranks)]
        try:
            while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
                time.sleep(0.02)
            return max((abs(rank.poll() or 0) for rank in ranks), default=0)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def parse_arguments() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend", choices=("gloo", "horovod"))
    parser.add_argument("--ranks", type=int, default=0, help="start so many ranks of Gloo here")
    parser.add_argument("--store", help="a file all ranks see, for Gloo to meet in")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0, help="what one row may take; 0: no bound")
    parser.add_argument("mode", choices=("sizes", "storm"))
    parser.add_argument("what", nargs="+", help="bytes, or the file of counts")
    return parser.parse_args()


def main() -> int:
    """One rank, or all of them."""
    arguments = parse_arguments()
    if arguments.ranks > 0 and "RANK" not in os.environ:
        return start_ranks(arguments)
    torch.set_num_threads(1)  # ranks share the cores
    group = (Gloo if arguments.backend == "gloo" else Horovod)(arguments)
    rows = (run_sizes if arguments.mode == "sizes" else run_storm)(group, arguments)
    print_rows(rows, show=group.rank == 0)
    group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
