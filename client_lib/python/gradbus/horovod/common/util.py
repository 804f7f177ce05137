"""Helpers that scripts and Horovod's own tests import from ``horovod.common.util``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..._errors import bad_argument
from .. import _basics

_cache = functools.lru_cache(maxsize=None)


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Does nothing: Gradbus has one extension for all frameworks, which is loaded by now."""


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """Does nothing: Gradbus is not built for one version of a framework."""


def get_ext_suffix() -> str:
    """How the names of Python's extensions end, such as ``.cpython-311-x86_64-linux-gnu.so``."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework of this name sees a GPU: "torch", "tensorflow" or "mxnet". False: it is not installed."""
    try:
        framework = importlib.import_module(ext_base_name)
    except ImportError:
        return False
    if ext_base_name == "tensorflow":
        return bool(framework.config.list_physical_devices("GPU"))
    if ext_base_name == "mxnet":
        return bool(framework.context.num_gpus())
    return bool(framework.cuda.is_available())


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


def split_list(l: Sequence[Any], n: int) -> list[Any]:  # noqa: E741
    """``n`` parts of a list in its order, of equal lengths; the first ones may have one entry more."""
    least, longer = divmod(len(l), n)
    parts = []
    start = 0
    for part in range(n):
        end = start + least + (part < longer)
        parts.append(l[start:end])
        start = end
    return parts


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """A function of ``op`` and ``average`` that returns an operation of ``reduce_ops``. It refuses both at once."""

    def chosen(op: Any, average: bool | None) -> Any:
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise bad_argument(f"average={average!r} and op={op!r} are both given", "pass op= only")
        warnings.warn("average= is deprecated; pass op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=2)
        return reduce_ops.Average if average else reduce_ops.Sum

    return chosen


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version ``ver`` is ``target``, such as "2.1.0", or newer. A pre-release is older than its release."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise bad_argument(f"is_version_greater_equal_than: {ver!r} or {target!r} is no text", 'pass "1.2.3"')
    if target.count(".") != 2:
        raise bad_argument(f"is_version_greater_equal_than: target={target!r}", 'pass three numbers, as "1.2.3"')
    return _version(ver) >= _version(target)


def _version(text: str) -> tuple[list[int], bool]:
    """Its numbers without zeros at the end, and whether it is a release."""
    match = re.match(r"v?(\d+(?:\.\d+)*)(.*)", text.strip())
    if match is None:
        raise bad_argument(f"is_version_greater_equal_than: {text!r} is no version", 'pass "1.2.3"')
    numbers = [int(number) for number in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers, re.match(r"[-_.]?(a|b|c|rc|alpha|beta|pre|preview|dev)", match[2].lower()) is None
