"""The name of a job of torchrun on several nodes, whose ranks it may start again. Main thread.

The library makes names of torchrun's variables, with the number of the attempt. But every node counts only the
failures of its own ranks, so after one the nodes have different numbers. Here the ranks agree on a name instead.
"""

from __future__ import annotations

import datetime
import os
import secrets

from .._errors import TimeoutError
from .agreement import agree

_RUN_BYTES_MAX = 60  # of a name's 127
_START_TIMEOUT_S = 60.0  # as in the library


def agreed_name(start_timeout_s: float | None) -> str | None:
    """A new name for each attempt, the same on all ranks; None where the library makes it.

    Raises TimeoutError, which names the missing ranks, or torchrun's store if that does not answer.
    """
    if not _nodes_count_differently():
        return None
    try:
        from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
    except ImportError:
        return None
    if not hasattr(TCPStore, "multi_get"):  # as in torch 1.13
        return None
    timeout_s = start_timeout_s or _seconds_of_environment()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = TCPStore(host, port, is_master=False, timeout=datetime.timedelta(seconds=timeout_s))
    except RuntimeError as error:
        raise TimeoutError(
            f"GB-J404 START_TIMEOUT: torchrun's store at {host}:{port} does not answer ({type(error).__name__})"
            " | next: see whether torchrun still runs on the first node, or name each attempt with GRADBUS_JOB"
        ) from error
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return agree(PrefixStore("gradbus.init", store), rank, size, round(timeout_s * 1000), _new_name, "gradbus.init()")


def _nodes_count_differently() -> bool:
    """torchrun's ranks are on several nodes, may start again, and no variable of ours says who they are."""
    read = os.environ.get
    if read("GRADBUS_JOB") or read("GRADBUS_RANK") or read("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return False
    numbers = [read(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")]
    starts_again = read("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    return starts_again and bool(read("MASTER_ADDR")) and all(map(str.isdecimal, numbers)) and numbers[1] != numbers[2]


def _seconds_of_environment() -> float:
    try:
        seconds = float(os.environ.get("GRADBUS_START_TIMEOUT", ""))
    except ValueError:
        return _START_TIMEOUT_S  # the library refuses a wrong one
    return seconds if 0 < seconds <= 1e7 else _START_TIMEOUT_S


def _new_name() -> str:
    run = os.environ.get("TORCHELASTIC_RUN_ID", "").encode()[:_RUN_BYTES_MAX].decode(errors="ignore")
    return f"torchrun-u{os.geteuid()}-{run}-{secrets.token_hex(6)}"
