"""The parameters of one optimizer whose gradients stay local: who exchanges them, by their mode.

gradbus/_modes says when: averaging.py, in the circles of gossip.py, and local_steps.py for localsgd and diloco. The
arithmetic of these is in outer_bucket.py. The parameters of other modes are in _exchange.

All calls come from the thread that steps. Global copies begin as the lowest rank's parameters, which
the others take over before their first step. A pseudo-gradient is measured from the global copy, so
a rank that began elsewhere would count its start as progress. A mean of equal values can differ from
them in some bits; a copy cannot.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence

import torch

from ... import _core
from ..._errors import BusyError, InvalidError, bad_argument
from ..._modes.averaging import Averaging
from ..._modes.groups import Groups, by_mode
from ..._modes.local_steps import LocalSteps
from ..._process_sets import ProcessSet, lowest_rank
from .._broadcast import NamedTensors, _broadcast_tensors
from .._buckets.detach import SHUT_DOWN, closed_error, detach_before_close
from .._buckets.parameter_buckets import ParameterBucket, ParameterSlot, register
from .._buckets.parameter_info import NamedParameter, info_of, with_compression
from .._buckets.retire import retire, retire_names
from .._state.residual_state import CompressionState, check_state, read_state, write_state
from .outer_bucket import OuterBucket

# Part -> parameter name -> values, float32 (float64 for float64 parameters).
OuterState = dict[str, dict[str, torch.Tensor]]

LocalParameter = tuple[NamedParameter, _core.Mode]


def check_part(
    part: str, values: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Size]
) -> None:
    """Raises InvalidError naming the first parameter whose values are missing or of another shape."""
    shapes = {name: value.shape for name, value in values.items()}
    differing = [n for n in sorted({*shapes, *wanted}) if shapes.get(n) != wanted.get(n)]
    if differing:
        raise bad_argument(
            f"load_outer_state: the {part} of '{differing[0]}' does not fit this optimizer",
            "load the state of the same model in the same mode",
        )


def _outer_slots(group: LocalSteps[OuterBucket]) -> Iterator[tuple[ParameterSlot, OuterBucket]]:
    """Every parameter's place."""
    return ((slot, outer) for outer in group.buckets for slot in outer.bucket.slots)


class _Registers:
    """Registers parameters for gradbus/_modes/groups.py."""

    def __init__(self, bucket_bytes: int, compression: str | None, registered: list[ParameterBucket]) -> None:
        """``compression``: None: the job's policy. ``registered``: gets all buckets."""
        self._bucket_bytes = bucket_bytes
        self._compression = compression
        self._registered = registered

    def register(
        self, parameters: Sequence[NamedParameter], prefix: str, session: _core.Session, may_compress: bool
    ) -> list[ParameterBucket]:
        """Buckets for some parameters."""
        if not parameters:
            return []
        compress = functools.partial(with_compression, self._compression, session) if may_compress else None
        made = register(parameters, self._bucket_bytes, prefix, session, compress)
        self._registered += made
        return made

    def outer(self, bucket: ParameterBucket, mode: _core.Mode) -> OuterBucket:
        """For localsgd and diloco."""
        return OuterBucket(bucket, mode)

    def bytes_of(self, parameter: torch.Tensor) -> int:
        """Its size."""
        return parameter.numel() * parameter.element_size()

    def codec_of(self, parameter: NamedParameter, session: _core.Session) -> str:
        """As the job's policy or this optimizer has it."""
        info = info_of(*parameter)
        return with_compression(self._compression, session, info, parameter[1]).compression


class LocalModes:
    """All of them; nothing happens where there are none."""

    def __init__(
        self, prefix: str, bucket_bytes: int, process_set: ProcessSet, compression: str | None
    ) -> None:
        self._prefix = prefix
        self._process_set = process_set
        self._registered: list[ParameterBucket] = []
        registers = _Registers(bucket_bytes, compression, self._registered)
        self._groups: Groups[OuterBucket] = Groups(prefix, process_set, registers)
        self._stepping: list[LocalSteps[OuterBucket]] = []
        self._averaging: list[Averaging] = []
        self._parameters: dict[torch.nn.Parameter, str] = {}
        self._detached = False
        self._why_detached = SHUT_DOWN
        detach_before_close(self, process_set)

    def add(self, parameters: Sequence[LocalParameter]) -> None:
        """Registers buckets for more parameters; every rank must add the same ones.

        Raises InvalidError (dtype, device), MismatchError naming the bucket when ranks differ.
        """
        for group in by_mode(parameters):
            made = self._groups.make([named for named, _ in group], group[0][1])
            self._stepping.append(made) if isinstance(made, LocalSteps) else self._averaging.append(made)
        self._parameters.update({parameter: name for (name, parameter), _ in parameters})

    def owns(self, parameter: torch.Tensor) -> bool:
        """Its gradient stays local."""
        return parameter in self._parameters

    @property
    def names(self) -> Sequence[str]:
        """Of the parameters."""
        return list(self._parameters.values())

    @property
    def remembering(self) -> set[str]:
        """The parameters whose differences can be compressed with error feedback."""
        return {slot.name for group in self._stepping for slot, _ in _outer_slots(group)}

    def _refuse_when_detached(self) -> None:
        if self._detached:
            raise closed_error(self._why_detached)

    @property
    def groups(self) -> list[LocalSteps[OuterBucket] | Averaging]:
        """Of parameters that have one mode."""
        return [*self._stepping, *self._averaging]

    def before_step(self) -> None:
        """Before each inner step; the first time ranks begin from the same parameters.

        Not at construction, for users broadcast or load parameters after it as well.
        """
        self._refuse_when_detached()
        new = [group for group in self._stepping if not group.anchored]
        if new:
            self._anchor(new)

    @torch.no_grad()
    def _anchor(self, new: Sequence[LocalSteps[OuterBucket]]) -> None:
        named: NamedTensors = [
            (slot.name, slot.parameter) for group in new for slot, _ in _outer_slots(group)
        ]
        root = lowest_rank(self._process_set)
        names = _broadcast_tensors(self._prefix, named, root, self._process_set)
        retire_names(names, self._process_set)  # once is enough
        for group in new:
            group.anchor()

    def stepped(self) -> None:
        """After each inner step: begins and ends the exchanges whose turn it is."""
        if not self._parameters:
            return
        for group in self.groups:
            with torch.no_grad():
                group.stepped()

    @torch.no_grad()
    def flush(self) -> int:
        """Ends what is under way and makes replicas identical; how many exchanges that took."""
        self._refuse_when_detached()
        # All are begun first: a rank that has made more steps waits for the group whose turn comes next.
        ended = sum([group.begin_flush() for group in self._stepping])
        for group in sorted(self._stepping, key=lambda group: group.steps_to_turn):
            ended += group.end_flush()
        return ended + sum(averaging.flush() for averaging in self._averaging)

    @contextlib.contextmanager
    def without_gradients(self) -> Iterator[None]:
        """In this block an inner step leaves these parameters alone."""
        kept = [(parameter, parameter.grad) for parameter in self._parameters]
        for parameter, _ in kept:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, grad in kept:
                parameter.grad = grad

    @property
    def settled(self) -> bool:
        """No steps were made since the last exchange, and none is under way."""
        return all(group.settled for group in self.groups)

    def _refuse_unless_settled(self, what: str) -> None:
        self._refuse_when_detached()
        if not self.settled:
            raise BusyError(
                f"GB-O905 IN_FLIGHT: {what} is called while ranks step on their own | next: call "
                "flush() first, on every rank"
            )

    # ---- what the outer optimizers remember

    @torch.no_grad()
    def outer_state(self) -> OuterState:
        """Global copies and momenta by parameter; empty before the first step."""
        self._refuse_unless_settled("outer_state()")
        state: OuterState = {"global": {}, "momentum": {}}
        for slot, outer in (p for g in self._stepping if g.anchored for p in _outer_slots(g)):
            state["global"][slot.name] = slot.of(outer.theta).clone()
            if outer.momentum is not None:
                state["momentum"][slot.name] = slot.of(outer.momentum).clone()
        return state

    @torch.no_grad()
    def load_outer_state(self, state: OuterState) -> None:
        """Puts them back; the parameters become the global copies."""
        self._refuse_unless_settled("load_outer_state()")
        if not any(state.values()):
            return  # of before the first step
        self._check_outer_state(state)
        for group in self._stepping:
            for slot, outer in _outer_slots(group):
                slot.of(outer.theta).copy_(state["global"][slot.name])
                slot.parameter.copy_(slot.of(outer.theta))
                if outer.momentum is not None:
                    slot.of(outer.momentum).copy_(state["momentum"][slot.name])
            group.anchored = True

    @torch.no_grad()
    def take_over(self, state: OuterState) -> None:
        """What others kept of parameters that are stepped here now; where they kept nothing, or not
        of all, the outer optimizers begin anew."""
        names = self.remembering
        if names and names <= state["global"].keys():
            fitting = {
                part: {name: value for name, value in values.items() if name in names}
                for part, values in state.items()
            }
            with contextlib.suppress(InvalidError):  # another mode: of other shape
                self.load_outer_state(fitting)

    def _check_outer_state(self, state: OuterState) -> None:
        slots = [pair for group in self._stepping for pair in _outer_slots(group)]
        wanted = {
            "global": {slot.name: slot.parameter.shape for slot, _ in slots},
            "momentum": {s.name: s.parameter.shape for s, o in slots if o.momentum is not None},
        }
        for part in {**wanted, **state}:
            check_part(part, state.get(part, {}), wanted.get(part, {}))

    # ---- the residual state of pseudo-gradients

    @property
    def _buckets(self) -> list[ParameterBucket]:
        return [outer.bucket for group in self._stepping for outer in group.buckets]

    @torch.no_grad()
    def compression_state(self) -> CompressionState:
        """This rank's share."""
        self._refuse_unless_settled("compression_state()")
        return read_state(bucket for bucket in self._buckets if bucket.compressed)

    @torch.no_grad()
    def load_compression_state(self, state: CompressionState) -> None:
        """Puts a share back."""
        self._refuse_unless_settled("load_compression_state()")
        buckets = [bucket for bucket in self._buckets if bucket.flat.dtype == torch.float32]
        check_state(state, {slot.name: slot.view.shape for b in buckets for slot in b.slots})
        write_state(buckets, state)

    def release(self, why: str) -> None:
        """Others exchange these parameters for ever, and ``why`` is said to callers."""
        if not self._detached:
            self._why_detached = why
            cores = [bucket.core for bucket in self._registered]
            cores += [averaging.agreement.core for averaging in self._averaging]
            cores += [counts.agreement.core for group in self._stepping for counts in group.counts]
            self.detach(True)
            retire(cores)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.release("it is gone")

    def detach(self, process_goes_on: bool) -> None:
        """Lets go of shared memory, which is about to be unmapped."""
        self._detached = True
        self._stepping.clear()
        self._averaging.clear()
        for bucket in self._registered:
            bucket.storage.close()
        self._registered.clear()
        self._groups.close()


def kept_in_step(modes: LocalModes) -> str | None:
    """A parameter for which all ranks make the same number of steps, or wait for ever."""
    return next((name for group in modes.groups if group.keeps_in_step for name in group.names), None)
