"""Waits that advance, and waits in several process sets: `waits.py MODE [ARGUMENTS...]`."""

import json
import sys
import threading
import time

import gradbus
import numpy as np
from gradbus._session import current


def barrier_beside_stream(rounds: str, megabytes: str) -> None:
    """Rank 0 waits in a barrier while the others wait for a large all-reduce, which it has started, too.

    Prints the shortest of such rounds and of those in which all ranks wait for the all-reduce, by turns.
    """
    big = np.ones(int(megabytes) * (1 << 20) // 4, np.float32)
    seconds = {"mixed": [], "plain": []}
    for turn in range(2 * int(rounds)):
        mixed = turn % 2 == 0
        began = time.monotonic()
        handle = gradbus.allreduce_async(big, name="big", op=gradbus.Sum)
        if mixed and gradbus.rank() == 0:
            gradbus.barrier()
        result = gradbus.synchronize(handle)
        if not mixed or gradbus.rank() != 0:
            gradbus.barrier()
        seconds["mixed" if mixed else "plain"].append(time.monotonic() - began)
        assert result[0] == result[-1] == gradbus.size()
    print(json.dumps({kind: min(of_kind) for kind, of_kind in seconds.items()}), flush=True)


def default_limit() -> None:
    assert current().op_timeout_ms == 1_800_000, current().op_timeout_ms


def two_sets(threads: str) -> None:
    """Names are new in each turn, so each operation has to be registered while its ranks wait for another."""
    pair = gradbus.add_process_set([0, 1])
    sets = [gradbus.global_process_set, *([pair] if gradbus.rank() < 2 else [])]
    for turn in range(3):
        value = np.full(3_000_000 if turn == 2 else 3, 1.0)
        handles = [gradbus.allreduce_async(value, name=f"x{turn}", op=gradbus.Sum, process_set=one) for one in sets]
        order = handles if gradbus.rank() == 0 else handles[::-1]
        if int(threads):
            workers = [threading.Thread(target=gradbus.synchronize, args=[handle]) for handle in order]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            continue
        for handle in order:
            assert gradbus.synchronize(handle)[-1] in (2, 3)


if __name__ == "__main__":
    gradbus.init()
    globals()[sys.argv[1]](*sys.argv[2:])
    gradbus.shutdown()
    print("ok")
