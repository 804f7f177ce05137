"""init(), and what a graph asks when it runs: ranks and sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from ..._errors import bad_argument
from ..._session import current
from ...tensorflow._calls import run
from .._basics import Comm, Sets, init_with
from .._process_sets import set_of_number


def init(comm: Comm = None, process_sets: Sets = None) -> None:
    """Joins the job and waits until every rank has. Arguments and errors: init_with() of ``../_basics.py``."""
    init_with(None, comm, process_sets)


def cuda_built() -> bool:
    """Whether this TensorFlow has CUDA. Gradbus takes its tensors then."""
    return bool(tf.test.is_built_with_cuda())


def join() -> NoReturn:
    """Raises InvalidError: it is implemented for PyTorch only."""
    raise bad_argument(
        "join: a rank of TensorFlow cannot add zeros to the gradients of others",
        "give every rank the same number of batches, e.g. with dataset.repeat().take(steps), or use PyTorch",
    )


def _number(ask: Callable[[], int]) -> Any:
    """A scalar tensor. In a graph the question is asked each time the graph runs."""
    return run(lambda: [np.int32(ask())], [], [tf.int32], [()])[0]


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The size of a process set, as a tensor."""
    return _number(lambda: set_of_number(process_set_id).size())


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """1 on members of a process set, else 0, as a tensor."""
    return _number(lambda: set_of_number(process_set_id).included())


def rank_op(name: str | None = None) -> Any:
    """The rank, as a tensor."""
    return _number(lambda: current().rank)


def local_rank_op(name: str | None = None) -> Any:
    """The number of this rank on its node, as a tensor."""
    return _number(lambda: current().local_rank)


def local_size_op(name: str | None = None) -> Any:
    """How many ranks the node has, as a tensor."""
    return _number(lambda: current().local_size)
