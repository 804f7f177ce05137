"""Errors of operations that are those of Gradbus and of tf.errors at once, as scripts for Horovod expect them.

TensorFlow makes its own errors of those inside graphs: InvalidArgumentError of InvalidError, and else UnknownError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from .. import _errors


class _TextOnly:
    """Of an error that has no operation of a graph, only a message."""

    def __init__(self, message: str) -> None:
        tf.errors.OpError.__init__(self, None, None, message, self.tensorflow_code)
        _errors.GradbusError.__init__(self, message)  # the last one, because it sets the arguments

    tensorflow_code = tf.errors.UNKNOWN

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (str(self),)

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
        raise MismatchError(str(error)).with_traceback(error.__traceback__) from None
    except _errors.InvalidError as error:
        raise InvalidError(str(error)).with_traceback(error.__traceback__) from None
