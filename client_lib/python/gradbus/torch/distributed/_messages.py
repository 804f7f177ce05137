"""Errors of the daemons in the words of torch.distributed, whose users name no tensors. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..._errors import ClosedError, GradbusError

_NEXT = {
    "O902": "make all ranks of the group pass the same sizes, dtypes, operations and roots",
    "O903": "make all ranks of the group call the same operations in the same order, with the same sizes and dtypes",
}
_NOBODY_NAMED = (
    "call torch.distributed.monitored_barrier() there, which names the ranks that do not come, or see gradbus status"
)
_DESTROYED = (
    "GB-O900 BAD_ARGUMENT: the process group was destroyed before this operation ended | next: wait() for operations "
    "before destroy_process_group()"
)


# "rank 1", "ranks 0, 2", "ranks 0-3": numbers of the job, if no other word says whose they are.
_RANKS = re.compile(r"(?<!local )(?<!global )\b(ranks?) (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*)\b(?! \(global)")
_LISTED_MAX = 8


def for_torch(error: GradbusError, global_ranks: Sequence[int] = ()) -> GradbusError:
    """The same error, with a next step that fits. ``global_ranks``: by rank of the job that it is of."""
    if isinstance(error, ClosedError) and error.id in ("O900", "O908"):
        return ClosedError(_DESTROYED)
    what = with_global_ranks(error.what, global_ranks)
    step = _NEXT.get(error.id) or (_NOBODY_NAMED if _names_nobody(error) else None)
    if step is None and what == error.what:
        return error
    step = step or str(error).partition(" | next: ")[2]
    return type(error)(f"{what} | next: {step}" if step else what)


def _names_nobody(error: GradbusError) -> bool:
    """A wait ended before the coordinator knew who is late: the only rank in the text is the one that waited."""
    return error.id == "P110" and len(_RANKS.findall(error.what)) <= 1 and "local rank" not in error.what


def closed_error() -> ClosedError:
    """Of an operation that its group's end has interrupted."""
    return ClosedError(_DESTROYED)


def with_global_ranks(text: str, global_ranks: Sequence[int]) -> str:
    """Behind ranks of a job, those of the whole program where they differ."""
    if all(known == rank for rank, known in enumerate(global_ranks)):
        return text

    def named(match: re.Match[str]) -> str:
        ends = [[int(end) for end in part.split("-")] for part in match[2].split(", ")]
        ranks = [rank for end in ends for rank in range(end[0], end[-1] + 1)]
        if any(rank >= len(global_ranks) for rank in ranks):
            return match[0]
        names = [str(global_ranks[rank]) for rank in ranks[:_LISTED_MAX]]
        return f"{match[0]} (global {match[1]} {', '.join(names)}{', ...' if len(ranks) > _LISTED_MAX else ''})"

    return _RANKS.sub(named, text)
