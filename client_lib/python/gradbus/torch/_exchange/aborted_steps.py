"""Steps that a rank has aborted, by Ctrl-C, a deadline or an exception: where replicas would drift apart.

Other ranks may have stepped on what this one dropped, or on the zeros that it sent in its place. Nobody would see that
later, because replicas are compared in the first step only. So the rank that gave up is refused until it has taken the
result. Where its parameters can differ already, only a new optimizer after a broadcast goes on.

A rank that left backward() by an exception tells the others by NaN in the flags of what it had not sent
(../_buckets/used_flags.py). They are looked at in host memory only.
"""

from __future__ import annotations

from ..._errors import BusyError
from ..._process_sets import ProcessSet, session_of

_RESTART = "on all ranks, broadcast the parameters and make a new optimizer, or restart the job"


class AbortedSteps:
    """What a rank has given up of one optimizer's steps, and what it may do therefore."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self.wait = ""  # of this exchange: why this rank does not wait for it any more
        self._refusal = ""  # of all that comes

    def record_interrupted_wait(self, error: BaseException) -> None:
        """A wait ended without the result, which is still to be taken."""
        self.wait = _kind(error)

    def clear_interrupted_wait(self) -> None:
        """The result was taken."""
        self.wait = ""

    def record_partial_step(self, error: BaseException) -> None:
        """This rank has stepped in part, and others wholly."""
        who = f"rank {session_of(self._process_set, 'step').rank}"
        self._refusal = (
            f"GB-O905 IN_FLIGHT: {who} gave up a step ({_kind(error)}); its parameters may differ from those of others "
            f"| next: {_RESTART}"
        )

    def error_of_remote_abort(self) -> BusyError:
        """Another rank has given up the step whose result came. Nothing may go on."""
        self._refusal = (
            "GB-O905 IN_FLIGHT: another rank left backward() by an exception and gave up this step, whose gradients "
            f"are wrong | next: look for the exception in its output; then {_RESTART}"
        )
        return BusyError(self._refusal)

    def clear(self) -> None:
        """All ranks have the same parameters again."""
        self.wait = self._refusal = ""

    def refuse(self) -> None:
        """Raises BusyError if parameters may differ."""
        if self._refusal:
            raise BusyError(self._refusal)

    def refuse_to_drop(self) -> None:
        """Raises BusyError if others may use a result that this rank has not taken."""
        if self.wait:
            who = f"rank {session_of(self._process_set, 'zero_grad').rank}"
            raise BusyError(
                f"GB-O905 IN_FLIGHT: {who} gave up waiting for gradients ({self.wait}); others may have stepped on "
                "them | next: call step() on it, which waits again; to leave this step out, call synchronize() and "
                "zero_grad() on all ranks"
            )


def _kind(error: BaseException) -> str:
    return f"{type(error).__name__} {getattr(error, 'id', '')}".rstrip()
