"""Questions to the coordinator that the lowest rank asks for all ranks of a process set."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

from ..._data_movement import broadcast_
from ..._errors import GradbusError
from ..._process_sets import ProcessSet, lowest_rank, session_of
from .._buckets.retire import retire_names


def ask_for_all(process_set: ProcessSet, name: str, make_question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, the same on all ranks, or ``{"error": text}``. ``make_question`` is called on the lowest rank.

    ``name`` is that of the operations that share the answer. All ranks call it at the same place.
    """

    def ask() -> Any:
        try:
            text = session_of(process_set, "DistributedOptimizer").ask_coordinator(json.dumps(make_question()))
            return json.loads(text)
        except GradbusError as error:
            return {"error": str(error)}

    answer: dict[str, Any] = from_lowest(process_set, name, ask)
    return answer


def from_lowest(process_set: ProcessSet, name: str, make: Callable[[], Any]) -> Any:
    """What ``make`` returns on the lowest rank, on all ranks; anything that JSON has."""
    session = session_of(process_set, "DistributedOptimizer")
    text = json.dumps(make()) if session.rank == 0 else ""
    root = lowest_rank(process_set)
    size = torch.tensor([len(text.encode())], device="cpu")
    broadcast_(size, root, f"{name}/bytes", process_set=process_set)
    letters = torch.zeros(int(size[0]), dtype=torch.uint8, device="cpu")
    if text:
        letters = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    broadcast_(letters, root, name, process_set=process_set)
    retire_names([name, f"{name}/bytes"], process_set)
    return json.loads(bytes(letters.tolist()).decode())
