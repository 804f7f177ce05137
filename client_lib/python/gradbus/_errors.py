"""The exceptions of Gradbus: one class per code of the C interface.

Each message is one line, ``GB-<id> <NAME>: what and who | next: what to do``; ``gradbus explain <id>``
prints the page behind it. Where Python has a class of the same meaning, ours is also one of those.
"""

from __future__ import annotations

import builtins
import enum
import re


class Code(enum.IntEnum):
    """The codes of gradbus.h; append-only."""

    BUSY = 1
    INVALID = 2
    MISMATCH = 3
    UNAVAILABLE = 4
    CLOSED = 5
    CORRUPT = 6
    TIMEOUT = 7
    PEER_LOST = 8
    EXHAUSTED = 9
    PERMISSION = 10
    VERSION_SKEW = 11
    INTERNAL = 12


class GradbusError(RuntimeError):
    """Base of all; ``code`` says which kind, the text says what, who and what to do next."""

    code: Code = Code.INTERNAL
    failures = 0  # errors of this process that end a job

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        if self.code in (Code.PEER_LOST, Code.CORRUPT, Code.UNAVAILABLE, Code.CLOSED):
            GradbusError.failures += 1

    @property
    def id(self) -> str:
        """The number in the message, as in "P104"; "" when it has none."""
        found = re.search(r"GB-([A-Z]\d{3})", str(self))
        return found[1] if found else ""

    @property
    def what(self) -> str:
        """The message without what to do next."""
        return str(self).partition(" | next: ")[0]


class BusyError(GradbusError):
    """The tensor's last round has not been waited for, or another thread is using the handle."""

    code = Code.BUSY


class InvalidError(GradbusError, ValueError):
    """An argument is wrong: a dtype, a device, a layout, a rank, a variable of the launcher."""

    code = Code.INVALID


class MismatchError(GradbusError):
    """Ranks disagree about a tensor (name, size, dtype, op, root), a rank or the world size."""

    code = Code.MISMATCH


class UnavailableError(GradbusError):
    """The agent or the coordinator does not answer."""

    code = Code.UNAVAILABLE


class ClosedError(GradbusError):
    """The session is not there: before init(), after shutdown(), in a forked child, job stopped."""

    code = Code.CLOSED


class NotInitializedError(ClosedError, ValueError):
    """Before init(), or after shutdown(). Horovod raises ValueError then."""


class CorruptError(GradbusError):
    """Bytes from another process are not what the format allows."""

    code = Code.CORRUPT


class TimeoutError(GradbusError, builtins.TimeoutError):
    """A deadline passed; the text names the ranks that are waited for."""

    code = Code.TIMEOUT


class PeerLostError(GradbusError, ConnectionError):
    """A rank, an agent or the coordinator died."""

    code = Code.PEER_LOST


class ExhaustedError(GradbusError):
    """Shared memory or a quota is used up."""

    code = Code.EXHAUSTED


class PermissionError(GradbusError, builtins.PermissionError):
    """The operating system or the agent said no."""

    code = Code.PERMISSION


class VersionSkewError(GradbusError):
    """Library and agent are of different versions."""

    code = Code.VERSION_SKEW


class InternalError(GradbusError):
    """A defect in Gradbus itself."""

    code = Code.INTERNAL


_CLASSES: dict[int, type[GradbusError]] = {
    int(row.code): row
    for row in (
        BusyError,
        InvalidError,
        MismatchError,
        UnavailableError,
        ClosedError,
        CorruptError,
        TimeoutError,
        PeerLostError,
        ExhaustedError,
        PermissionError,
        VersionSkewError,
        InternalError,
    )
}


def error_of(code: int, message: str) -> GradbusError:
    """The exception for a code of the C interface; called by the extension."""
    return _CLASSES.get(code, InternalError)(message)


def bad_argument(what: str, next_step: str) -> InvalidError:
    """An InvalidError in the form that all messages have."""
    return InvalidError(f"GB-O900 BAD_ARGUMENT: {what} | next: {next_step}")


def error_in(text: str) -> GradbusError | None:
    """The error of Gradbus in the text of a framework's error, of the class whose name is in front of it."""
    found = re.search(r"(?:\b([A-Za-z]+Error): )?(GB-[A-Z]\d{3} [A-Z_]+: .*)", text)
    if found is None:
        return None
    named = (row for row in _CLASSES.values() if row.__name__ == found[1])
    return next(named, GradbusError)(found[2])
