"""A process group of torch.distributed for rank programs: the ranks meet in a file."""

import datetime
import os
import sys

import torch.distributed as dist

RANK = int(os.environ["GRADBUS_RANK"])
SIZE = int(os.environ["GRADBUS_SIZE"])


def init(backend="gradbus", part="", seconds=60):
    """``part``: another word for each group that a program opens."""
    dist.init_process_group(
        backend,
        init_method=f"file://{sys.argv[1]}{part}",
        rank=RANK,
        world_size=SIZE,
        timeout=datetime.timedelta(seconds=seconds),
    )


def raises(kind, words, call):
    """``call`` raises an error of this kind with these words in it."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no error about {words}")
