"""Helpers that scripts and Horovod's own tests import from ``horovod.common.util``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterable, Iterator

from .. import _basics


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework is installed: Gradbus has one extension for all of them."""
    return importlib.util.find_spec(ext_base_name) is not None


def mpi_built(verbose: bool = False) -> bool:
    """False: Gradbus uses no MPI."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """False: Gradbus has its own transports."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """False: ranks do not use NCCL."""
    return bool(_basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """False: Gradbus has its own transports."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """False: Gradbus has its own transports."""
    return _basics.ccl_built()


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Sets environment variables for a while. Those with None stay as they are."""
    given = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: object) -> bool:
    """Whether iter() takes it."""
    return isinstance(x, Iterable) or hasattr(x, "__getitem__")
