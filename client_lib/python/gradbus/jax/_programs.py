"""The names of operations in a compiled program: one for each place that performs the operation.

JAX lowers a jitted function once for each program, however often the program calls it. Two calls of one name could then
meet each other's counterparts on other ranks, as XLA may order them differently there. So functions with operations are
lowered for each call. Where JAX shares one nevertheless, compiling the program is an error.
"""

from __future__ import annotations

import collections
import itertools
import json
from typing import Any

from .._errors import bad_argument
from . import _calls

_serials = itertools.count()
_CACHES = ("cached_primitive_lowerings", "lowering_cache")  # of jax.interpreters.mlir.ModuleContext


class _Program:
    """JAX keeps it as long as the program."""

    def __init__(self) -> None:
        self.serial = next(_serials)
        self.places: collections.Counter[str] = collections.Counter()


class _Unshared(dict[Any, Any]):
    """A cache of lowered functions without those that have side effects."""

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = [key, *key] if isinstance(key, tuple) else [key]
        if not any(getattr(part, "effects", None) for part in parts):
            super().__setitem__(key, value)


def text_at_place(context: Any, text: str) -> str:
    """``context``: the ModuleContext of the program that is being lowered, in the same order on all ranks."""
    for cache in _CACHES:
        if type(getattr(context, cache, None)) is dict:
            setattr(context, cache, _Unshared(getattr(context, cache)))
    program = next((one for one in context.keepalives if isinstance(one, _Program)), None)
    if program is None:
        program = _Program()
        context.keepalives.append(program)
    operation = _calls.parsed(text)
    program.places[operation["name"]] += 1
    number = program.places[operation["name"]]
    name = operation["name"] if number == 1 else f"{operation['name']}/call{number}"
    return json.dumps({**operation, "name": name, "program": program.serial}, sort_keys=True)


_compiled: set[str] = set()


def check_place(text: str) -> None:
    """XLA calls it once for each place of a program that it compiles."""
    if text in _compiled:
        name = _calls.parsed(text)["name"]
        raise bad_argument(
            f"'{name}' is in a jitted function that the program calls several times, which ranks could mix up",
            "remove the inner jax.jit from the function: the outer one compiles it",
        )
    _compiled.add(text)
