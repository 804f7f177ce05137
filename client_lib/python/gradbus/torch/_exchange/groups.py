"""The groups of an optimizer, found by parameter: a script may edit ``param_groups`` between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._errors import bad_argument
from .._buckets.gradient_buckets import Bucket
from .._buckets.slots import Slot


class ParameterGroups:
    """Looked up once a round, before the first bucket goes that wants to know."""

    def __init__(self, optimizer: Callable[[], Any]) -> None:
        self._optimizer = optimizer
        self._group_of: dict[int, dict[str, Any]] | None = None  # by id() of the parameter; None: to be looked up

    def forget(self) -> None:
        """A new round begins."""
        self._group_of = None

    def look_up(self, buckets: Sequence[Bucket]) -> None:
        """As they are now, if this round has not done so.

        Raises InvalidError, before the first bucket goes, if shards that step on these know something else, of the
        options or of the parameters.
        """
        if self._group_of is not None:
            return
        group_of = {id(p): group for group in self._optimizer().param_groups for p in group["params"]}
        for bucket in buckets:
            if bucket.on_shards is not None:
                bucket.on_shards.refuse_edits(group_of)
                bucket.on_shards.refuse_writes()
        self._group_of = group_of

    def learning_rate(self, slots: Sequence[Slot]) -> float:
        """Of these parameters, which are exchanged together; 0 where a script has removed them.

        Raises InvalidError if they have different ones.
        """
        found: dict[float, Slot] = {}
        last: Any = None
        for slot in slots:
            group = self._of(slot)
            if group is not None and group is not last:
                last = group
                found.setdefault(float(group["lr"]), slot)
        if len(found) > 1:
            raise _rates_differ_error(found)
        return next(iter(found), 0.0)

    def _of(self, slot: Slot) -> dict[str, Any] | None:
        assert self._group_of is not None
        return self._group_of.get(id(slot.parameter))


def _rates_differ_error(found: dict[float, Slot]) -> Exception:
    (one, first), (other, second), *_ = found.items()
    return bad_argument(
        f"parameters '{first.name}' and '{second.name}' were in one group when the optimizer was made distributed, and "
        f"have learning rates {one} and {other} now",
        "make a new optimizer with these groups and call DistributedOptimizer() again",
    )
