"""Errors of operations that are those of Gradbus and of tf.errors at once, as scripts for Horovod expect them.

Errors of arguments, too: public functions have the decorator @as_tensorflow_errors().
TensorFlow makes its own errors of those inside graphs: InvalidArgumentError of InvalidError, and else UnknownError.
Those of a tf.function become errors of Gradbus, too, where they leave it. Those of sessions of tf.compat.v1 do not.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import atomic_function

from .. import _errors


class _TextOnly:
    """Of an error that has no operation of a graph, only a message.

    It is made as TensorFlow makes its errors. So AutoGraph, which adds the line of the program, makes it again.
    """

    def __init__(self, node_def: None, op: None, message: str, *_arguments: object) -> None:
        tf.errors.OpError.__init__(self, None, None, message, self.tensorflow_code)
        _errors.GradbusError.__init__(self, message)  # the last one, because it sets the arguments

    tensorflow_code = tf.errors.UNKNOWN

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[None, None, str]]:
        return type(self), (None, None, str(self))

    args: tuple[object, ...]


class MismatchError(_TextOnly, _errors.MismatchError, tf.errors.FailedPreconditionError):  # type: ignore[misc,unused-ignore]
    """Ranks disagree about a tensor."""

    tensorflow_code = tf.errors.FAILED_PRECONDITION


class InvalidError(_TextOnly, _errors.InvalidError, tf.errors.InvalidArgumentError):  # type: ignore[misc,unused-ignore]
    """An argument is wrong."""

    tensorflow_code = tf.errors.INVALID_ARGUMENT


class UnsupportedError(_errors.InvalidError, NotImplementedError):
    """Something that neither Horovod nor Gradbus has."""


@contextlib.contextmanager
def as_tensorflow_errors() -> Iterator[None]:
    """Raises errors of Gradbus as the ones above."""
    try:
        yield
    except (MismatchError, InvalidError, UnsupportedError):
        raise
    except _errors.MismatchError as error:
        raise MismatchError(None, None, str(error)).with_traceback(error.__traceback__) from None
    except _errors.InvalidError as error:
        raise InvalidError(None, None, str(error)).with_traceback(error.__traceback__) from None


class _InGraph(_TextOnly):
    """Of an error inside a tf.function. The text is TensorFlow's, which says where in the graph."""

    @property
    def what(self) -> str:
        """The message of Gradbus without what to do next."""
        return (_errors.error_in(str(self)) or _errors.GradbusError(str(self))).what

    def __reduce__(self) -> tuple[Any, ...]:
        return error_in_graph, (self.plain(None, None, str(self)),)

    plain: type[tf.errors.OpError]  # TensorFlow's class for it


@functools.cache
def _class_in_graph(ours: type, plain: type) -> Any:
    """One that is both. Ranks that disagree are a FailedPreconditionError, too, as outside of graphs."""
    bases = (MismatchError,) if ours is _errors.MismatchError else (ours,)
    return type(ours.__name__, (_InGraph, *bases, plain), {"__module__": __name__, "plain": plain})


def error_in_graph(error: tf.errors.OpError) -> Exception:
    """The same error, also as one of Gradbus if it comes from there."""
    found = _errors.error_in(str(error))
    if found is None:
        return error  # type: ignore[no-any-return,unused-ignore]
    return _class_in_graph(type(found), type(error))(None, None, str(error))  # type: ignore[no-any-return]


def _see_errors_of_functions() -> None:
    """Python's ``except`` looks at the class alone, so TensorFlow's error is replaced where it leaves a tf.function."""
    place = getattr(atomic_function, "InterpolateRuntimeError", None)  # private: without it errors stay TensorFlow's
    leave = getattr(place, "__exit__", None)
    if place is None or leave is None:
        return

    @functools.wraps(leave)
    def replace(self: Any, kind: Any, error: Any, traceback: Any) -> Any:
        result = leave(self, kind, error, traceback)  # adds where in the graph to the text
        made = error_in_graph(error) if isinstance(error, tf.errors.OpError) else error
        if made is error:
            return result
        try:
            raise made.with_traceback(traceback) from None
        finally:
            del made, error, traceback  # the exception holds this frame, which must not hold it

    place.__exit__ = replace


_see_errors_of_functions()
