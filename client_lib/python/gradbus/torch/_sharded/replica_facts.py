"""What the comparison of replicas wants to know of a sharded optimizer. Main thread."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ..._process_sets import ProcessSet
from .._buckets.parameter_info import NamedParameter
from .._numbers import next_number
from .._step_facts import hash_of, state_text
from .pieces import State


class ReplicaFacts:
    """Of one optimizer. Its first step compares; afterwards all ranks gather the same parameters."""

    check_every = 0
    has_own_states = False
    warns_of_differences = False

    def __init__(self, optimizer: Any, process_set: ProcessSet, named: Sequence[NamedParameter]) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.process_set = process_set
        self.parameters = [(pair, 0) for pair in named]
        self.replicas_compared = False
        self.replicas_name = f"gradbus.shard.{next_number(process_set)}.replicas"
        self.steps = 0
        self.loaded: dict[int, int] = {}  # since the last step: hash of the whole state, by id of the parameter

    @property
    def settings(self) -> ReplicaFacts:
        """Those of the comparison."""
        return self

    @property
    def exchange(self) -> ReplicaFacts:
        """Who knows what steps_on() says."""
        return self

    @property
    def optimizer(self) -> Any:
        """None when it is gone."""
        return self._optimizer()

    def note_loaded(self, states: Mapping[int, State]) -> None:
        """This rank takes its share of these. Others must take theirs of the same."""
        self.loaded = {parameter: hash_of(state_text(state)) for parameter, state in states.items()}

    def forget_loaded(self) -> None:
        """A step has changed the states."""
        self.loaded = {}

    def steps_on(self, parameter: Any) -> bool:
        """A rank steps on a share of each."""
        return True
