"""The parameters of one mode: which exchanges they take part in. Every rank makes the same groups in the same order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from .._errors import InvalidError
from .._layout import cut_name
from .._process_sets import ProcessSet, session_of
from .agreement import Agreement, EqualSteps
from .averaging import Averaging, Circle
from .gossip import PairSessions, pair_of, topology_of
from .kinds import ModeKind
from .local_steps import LocalSteps, OuterBucket, split_by_bytes

if TYPE_CHECKING:
    from .. import _core

Parameter = tuple[str, Any]  # its name, and what the framework has
Outer = TypeVar("Outer", bound=OuterBucket)
Made = TypeVar("Made", bound=OuterBucket, covariant=True)


def by_mode(parameters: Sequence[tuple[Any, _core.Mode]]) -> list[list[tuple[Any, _core.Mode]]]:
    """Those of equal modes together."""
    groups: dict[tuple[float, ...], list[tuple[Any, _core.Mode]]] = {}
    for pair in parameters:
        groups.setdefault(_key(pair[1]), []).append(pair)
    return list(groups.values())


def _key(mode: _core.Mode) -> tuple[float, ...]:
    return (
        mode.kind, mode.period_steps, mode.period_ms, mode.outer_lr, mode.outer_momentum,
        mode.fragments, mode.overlap, mode.topology, mode.seed, mode.wait,
    )  # fmt: skip


class Framework(Protocol[Made]):
    """What a framework's parameters have of their own."""

    def register(
        self, parameters: Sequence[Parameter], prefix: str, session: _core.Session, may_compress: bool
    ) -> Sequence[Any]:
        """Buckets, averaged over the session's ranks. Raises InvalidError and MismatchError."""

    def outer(self, bucket: Any, mode: _core.Mode) -> Made:
        """One of these buckets, for localsgd and diloco."""

    def bytes_of(self, parameter: Any) -> int:
        """Its size."""

    def codec_of(self, parameter: Parameter, session: _core.Session) -> str:
        """That it is to be compressed by; "none": by none."""


class Groups(Generic[Outer]):
    """Makes them, for one optimizer."""

    def __init__(self, prefix: str, process_set: ProcessSet, framework: Framework[Outer]) -> None:
        self._prefix = prefix
        self._process_set = process_set
        self._framework = framework
        self._numbers = itertools.count()  # of the groups, for their buckets' names
        self._pairs: PairSessions | None = None  # of gossip

    def make(self, parameters: Sequence[Parameter], mode: _core.Mode) -> LocalSteps[Outer] | Averaging:
        """Waits for the other ranks. Raises InvalidError and MismatchError."""
        session = session_of(self._process_set, "DistributedOptimizer")
        prefix = f"{self._prefix}.{next(self._numbers)}"
        if mode.kind in (ModeKind.AVERAGING, ModeKind.GOSSIP):
            return self._averaging(parameters, mode, prefix, session)
        return self._local_steps(parameters, mode, prefix, session)

    def _local_steps(
        self, parameters: Sequence[Parameter], mode: _core.Mode, prefix: str, session: _core.Session
    ) -> LocalSteps[Outer]:
        fragments: list[tuple[list[Outer], EqualSteps] | None] = []
        sizes = [self._framework.bytes_of(parameter) for _, parameter in parameters]
        for number, part in enumerate(split_by_bytes(parameters, sizes, mode.fragments)):
            name = f"{prefix}.{number}"
            if not part:
                fragments.append(None)
                continue
            registered = self._framework.register(part, name, session, True)
            buckets = [self._framework.outer(bucket, mode) for bucket in registered]
            ranks = self._process_set.ranks
            fragments.append((buckets, EqualSteps(session, cut_name(f"{name}/steps"), mode.text, ranks)))
        return LocalSteps(fragments, mode)

    def _averaging(
        self, parameters: Sequence[Parameter], mode: _core.Mode, prefix: str, session: _core.Session
    ) -> Averaging:
        if mode.kind == ModeKind.GOSSIP:
            self._refuse_compression(parameters, mode, session)
        # Dense: a mean of parameters that leaves most of them out would be none.
        everyone = self._framework.register(parameters, prefix, session, False)
        agreement = Agreement(session, cut_name(f"{prefix}/rounds"), 2)
        if mode.kind == ModeKind.AVERAGING:
            return Averaging(everyone, lambda _: [everyone], 1.0, mode, agreement)
        topology = topology_of(mode, session.size)
        if self._pairs is None:
            self._pairs = PairSessions(session)
        # Registration waits for the partner. All ranks take pairs in the same order, so the first
        # pair that is not done has two ranks at it.
        circles: dict[int, Circle] = {
            partner: self._framework.register(
                parameters, f"{prefix}/{'+'.join(map(str, pair_of(session.rank, partner)))}", pair, False
            )
            for partner, pair in self._pairs.open(topology.pairs()).items()
        }

        def circles_of(round_number: int) -> list[Circle]:
            return [circles[partner] for partner in topology.partners(session.rank, round_number)]

        return Averaging(everyone, circles_of, topology.share, mode, agreement)

    def _refuse_compression(
        self, parameters: Sequence[Parameter], mode: _core.Mode, session: _core.Session
    ) -> None:
        for parameter in parameters:
            codec = self._framework.codec_of(parameter, session)
            if codec != "none":
                raise InvalidError(
                    f'GB-O911 BAD_MODE: parameter \'{parameter[0]}\' is to be compressed by "{codec}", and '
                    f'mode "{mode.text}" exchanges parameters whole | next: give it no compression, '
                    "or a mode whose exchanges add up what was left out, such as localsgd:H=8"
                )

    def close(self) -> None:
        """Leaves the process sets of gossip; nothing may be under way."""
        if self._pairs is not None:
            self._pairs.close()
