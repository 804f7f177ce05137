"""Errors of the daemons in the words of torch.distributed, whose users name no tensors. Pure."""

from __future__ import annotations

from ..._errors import ClosedError, GradbusError

_NEXT = {
    "O902": "make all ranks of the group pass the same sizes, dtypes, operations and roots",
    "O903": "make all ranks of the group call the same operations in the same order, with the same sizes and dtypes",
}
_DESTROYED = (
    "GB-O900 BAD_ARGUMENT: the process group was destroyed before this operation ended | next: wait() for operations "
    "before destroy_process_group()"
)


def for_torch(error: GradbusError) -> GradbusError:
    """The same error, with a next step that fits."""
    if isinstance(error, ClosedError) and error.id == "O900":
        return ClosedError(_DESTROYED)
    step = _NEXT.get(error.id)
    return error if step is None else type(error)(f"{error.what} | next: {step}")
