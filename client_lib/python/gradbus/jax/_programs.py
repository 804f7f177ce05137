"""The names of operations in a compiled program: one for each place that performs the operation.

JAX lowers a jitted function once for each program, however often the program calls it. Two calls of one name could then
meet each other's counterparts on other ranks, as XLA may order them differently there. So functions with operations are
lowered for each call. Where JAX may share one nevertheless, compiling a program that does is an error.
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


def _is_unshared(rule_context: Any) -> bool:
    """All caches of this program are of this kind from now on. Those of a copy of its context are others."""
    context = rule_context.module_context
    for cache in _CACHES:
        if type(getattr(context, cache, None)) is dict:
            setattr(context, cache, _Unshared(getattr(context, cache)))
    is_copy = rule_context.platforms is not None or hasattr(context.axis_context, "mesh")
    return not is_copy and all(isinstance(getattr(context, cache, None), _Unshared) for cache in _CACHES)


def text_at_place(rule_context: Any, text: str) -> str:
    """``rule_context``: JAX's, while it lowers the operation, in the same order on all ranks."""
    keepalives = rule_context.module_context.keepalives
    program = next((one for one in keepalives if isinstance(one, _Program)), None)
    if program is None:
        program = _Program()
        keepalives.append(program)
    operation = _calls.parsed(text)
    program.places[operation["name"]] += 1
    number = program.places[operation["name"]]
    if number > 1 and operation["verb"] in ("before_step", "after_step", "step_on_shards"):
        raise bad_argument(
            f"a program makes several steps of '{operation['of']}', whose mode exchanges parameters",
            "compile one step, or make the steps in jax.lax.scan without unrolling",
        )
    name = operation["name"] if number == 1 else f"{operation['name']}/call{number}"
    checked = {} if _is_unshared(rule_context) else {"program": program.serial}
    return json.dumps({**operation, "name": name, **checked}, sort_keys=True)


_compiled: set[str] = set()


def check_place(text: str) -> None:
    """XLA calls it once for each place of a program that it compiles."""
    operation = _calls.parsed(text)
    if "program" not in operation:
        return
    if text in _compiled:
        raise bad_argument(
            f"'{operation['name']}' is in a jitted function that a program calls several times: ranks may mix up calls",
            "remove the inner jax.jit from the function: the outer one compiles it",
        )
    _compiled.add(text)
