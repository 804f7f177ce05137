"""Helpers that scripts import from ``horovod.tensorflow.util``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    """Whether operations run at once, and are not put into a graph."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Any:
    """tf.function()."""
    return tf.function(function)


def _cache(function: Callable[..., Any]) -> Callable[..., Any]:
    """Remembers results by the arguments, those of eager calls and of graphs apart."""

    @functools.lru_cache(maxsize=None)
    def of(is_eager: bool, *arguments: Any) -> Any:
        return function(*arguments)

    return functools.wraps(function)(lambda *arguments: of(_executing_eagerly(), *arguments))


def vars_to_refs(vars: Any) -> Any:
    """A variable's reference, which can be a key. A list, also of lists, becomes a tuple."""
    return tuple(map(vars_to_refs, vars)) if isinstance(vars, list) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """What vars_to_refs() was given."""
    return list(map(refs_to_vars, refs)) if isinstance(refs, tuple) else refs.deref()
