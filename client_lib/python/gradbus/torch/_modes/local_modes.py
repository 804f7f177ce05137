"""The parameters of one optimizer whose gradients stay local: who exchanges them, by their mode.

averaging, gossip: averaging.py, in the circles of gossip.py. localsgd, diloco: local_steps.py. The
parameters of other modes are in _exchange.

All calls come from the thread that steps. Global copies begin as the lowest rank's parameters, which
the others take over before their first step. A pseudo-gradient is measured from the global copy, so
a rank that began elsewhere would count its start as progress. A mean of equal values can differ from
them in some bits; a copy cannot.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

import torch

from ... import _core
from ..._errors import BusyError, InvalidError, bad_argument
from ..._layout import cut_name
from ..._process_sets import ProcessSet, lowest_rank, session_of
from .._broadcast import NamedTensors, _broadcast_tensors
from .._buckets.detach import SHUT_DOWN, closed_error, detach_before_close
from .._buckets.parameter_buckets import Compress, ParameterBucket, register
from .._buckets.parameter_info import NamedParameter, info_of, with_compression
from .._buckets.retire import retire, retire_names
from .._state.residual_state import CompressionState, check_state, read_state, write_state
from .agreement import Agreement, EqualSteps
from .averaging import Averaging, Circle
from .gossip import PairSessions, pair_of, topology_of
from .local_steps import LocalSteps, split_by_bytes

# Part -> parameter name -> values, float32 (float64 for float64 parameters).
OuterState = dict[str, dict[str, torch.Tensor]]

AVERAGING, LOCALSGD, DILOCO, GOSSIP = 3, 4, 5, 10  # as gradbus_mode_kind

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


def is_local(mode: _core.Mode) -> bool:
    """Parameters are exchanged, not gradients."""
    return mode.kind in (AVERAGING, LOCALSGD, DILOCO, GOSSIP)


def _key(mode: _core.Mode) -> tuple[float, ...]:
    return (
        mode.kind, mode.period_steps, mode.period_ms, mode.outer_lr, mode.outer_momentum,
        mode.fragments, mode.overlap, mode.topology, mode.seed, mode.wait,
    )  # fmt: skip


class LocalModes:
    """All of them; nothing happens where there are none."""

    def __init__(
        self, prefix: str, bucket_bytes: int, process_set: ProcessSet, compression: str | None
    ) -> None:
        self._prefix = prefix
        self._bucket_bytes = bucket_bytes
        self._process_set = process_set
        self._compression = compression  # None: the job's policy
        self._numbers = itertools.count()  # of the groups of one mode, for their buckets' names
        self._registered: list[ParameterBucket] = []
        self._stepping: list[LocalSteps] = []
        self._averaging: list[Averaging] = []
        self._pairs: PairSessions | None = None  # of gossip
        self._parameters: dict[torch.nn.Parameter, str] = {}
        self._detached = False
        self._why_detached = SHUT_DOWN
        detach_before_close(self, process_set)

    def add(self, parameters: Sequence[LocalParameter]) -> None:
        """Registers buckets for more parameters; every rank must add the same ones.

        Raises InvalidError (dtype, device), MismatchError naming the bucket when ranks differ.
        """
        groups: dict[tuple[float, ...], list[LocalParameter]] = {}
        for pair in parameters:
            groups.setdefault(_key(pair[1]), []).append(pair)
        for group in groups.values():
            self._add_group([named for named, _ in group], group[0][1])
        self._parameters.update({parameter: name for (name, parameter), _ in parameters})

    def _add_group(self, named: list[NamedParameter], mode: _core.Mode) -> None:
        session = session_of(self._process_set, "DistributedOptimizer")
        prefix = f"{self._prefix}.{next(self._numbers)}"
        if mode.kind in (AVERAGING, GOSSIP):
            self._add_averaging(named, mode, prefix, session)
            return
        compress = functools.partial(with_compression, self._compression, session)
        fragments: list[tuple[list[ParameterBucket], EqualSteps] | None] = []
        for number, part in enumerate(split_by_bytes(named, mode.fragments)):
            name = f"{prefix}.{number}"
            if not part:
                fragments.append(None)
                continue
            buckets = self._register(part, name, session, compress)
            ranks = self._process_set.ranks
            fragments.append((buckets, EqualSteps(session, cut_name(f"{name}/steps"), mode.text, ranks)))
        self._stepping.append(LocalSteps(fragments, mode))

    def _add_averaging(
        self, named: list[NamedParameter], mode: _core.Mode, prefix: str, session: _core.Session
    ) -> None:
        if mode.kind == GOSSIP:
            self._refuse_compression(named, mode, session)
        # Dense: a mean of parameters that leaves most of them out would be none.
        everyone = self._register(named, prefix, session, None)
        agreement = Agreement(session, cut_name(f"{prefix}/rounds"), 2)
        if mode.kind == AVERAGING:
            self._averaging.append(Averaging(everyone, lambda _: [everyone], 1.0, mode, agreement))
            return
        topology = topology_of(mode, session.size)
        if self._pairs is None:
            self._pairs = PairSessions(session)
        # Registration waits for the partner. All ranks take pairs in the same order, so the first
        # pair that is not done has two ranks at it.
        circles: dict[int, Circle] = {
            partner: self._register(
                named, f"{prefix}/{'+'.join(map(str, pair_of(session.rank, partner)))}", pair, None
            )
            for partner, pair in self._pairs.open(topology.pairs()).items()
        }

        def circles_of(round_number: int) -> list[Circle]:
            return [circles[partner] for partner in topology.partners(session.rank, round_number)]

        self._averaging.append(Averaging(everyone, circles_of, topology.share, mode, agreement))

    def _refuse_compression(
        self, named: list[NamedParameter], mode: _core.Mode, session: _core.Session
    ) -> None:
        for name, parameter in named:
            info = info_of(name, parameter)
            spec = with_compression(self._compression, session, info, parameter).compression
            if spec != "none":
                raise InvalidError(
                    f'GB-O911 BAD_MODE: parameter \'{name}\' is to be compressed by "{spec}", and '
                    f'mode "{mode.text}" exchanges parameters whole | next: give it no compression, '
                    "or a mode whose exchanges add up what was left out, such as localsgd:H=8"
                )

    def _register(
        self,
        named: list[NamedParameter],
        prefix: str,
        session: _core.Session,
        compress: Compress | None,
    ) -> list[ParameterBucket]:
        if not named:
            return []
        made = register(named, self._bucket_bytes, prefix, session, compress)
        self._registered += made
        return made

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
        return {slot.name for group in self._stepping for slot, _ in group.outer_slots()}

    def _refuse_when_detached(self) -> None:
        if self._detached:
            raise closed_error(self._why_detached)

    @property
    def _groups(self) -> list[LocalSteps | Averaging]:
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
    def _anchor(self, new: Sequence[LocalSteps]) -> None:
        named: NamedTensors = [
            (slot.name, slot.parameter) for group in new for slot, _ in group.outer_slots()
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
        for group in self._groups:
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
        return all(group.settled for group in self._groups)

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
        for slot, outer in (p for g in self._stepping if g.anchored for p in g.outer_slots()):
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
            for slot, outer in group.outer_slots():
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
        slots = [pair for group in self._stepping for pair in group.outer_slots()]
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
        if self._pairs is not None:
            self._pairs.close()


def kept_in_step(modes: LocalModes) -> str | None:
    """A parameter for which all ranks make the same number of steps, or wait for ever."""
    return next((name for group in modes._groups if group.keeps_in_step for name in group.names), None)
