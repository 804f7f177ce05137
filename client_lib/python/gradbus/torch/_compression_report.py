"""Compression that was asked for and has no effect is reported, once per job.

It is silent otherwise: training is right, and only its bytes are not fewer. Small tensors beside large ones stay
dense by design and are not worth a warning.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import torch

from .. import _core
from .._layout import COMPRESSED_ELEMENTS_MIN, ParameterInfo
from .._session import before_close
from ._buckets.parameter_info import info_of, with_compression
from ._tuning.codec_choice import parse_choice

_reported: list[_core.Session] = []  # the session, once it was said there


def report_no_effect(
    asked: str | None, session: _core.Session, named: Sequence[tuple[str, torch.nn.Parameter]]
) -> None:
    """Warns on rank 0 when parameters are not compressed though it was asked for.

    ``asked``: by the user; None: what the job's policy says.
    """
    if session.rank != 0 or _reported:
        return
    why = _reason(asked, session, [(info_of(*pair), pair[1]) for pair in named])
    if why is None:
        return
    before_close(lambda _: _reported.clear())
    _reported.append(session)
    warnings.warn(f"gradbus: compression has no effect on {why}", stacklevel=6)


def _reason(
    asked: str | None,
    session: _core.Session,
    infos: Sequence[tuple[ParameterInfo, torch.nn.Parameter]],
) -> str | None:
    wanted = [pair for pair in infos if _wanted(asked, session, *pair) != "none"]
    dense = [
        info
        for info, p in wanted
        if with_compression(asked, session, info, p, converts=True, choose=_last).compression == "none"
    ]
    worth_it = {info.name for info, p in wanted if _is_worth_it(asked, session, info, p)}
    compressed = len(wanted) - len(dense)
    if not wanted:
        return None
    if compressed and session.cross_size == 1:
        where = "rank" if session.size == 1 else "node"
        return (
            f"{len(wanted)} parameters: the job has one {where}, and gradients are compressed between nodes "
            "only (on a node they are in shared memory)"
        )
    other_types = [info.dtype for info in dense if info.dtype != "float32" and info.name in worth_it]
    if compressed and not other_types:
        return None
    typed = len(other_types)
    reasons = []
    if typed:
        verb, types = "is" if typed == 1 else "are", " or ".join(sorted(set(other_types)))
        reasons.append(f"{typed} {verb} {types}, which this codec or device cannot compress")
    if typed < len(dense):
        reasons.append(
            f"{len(dense) - typed} have one dimension or fewer than {COMPRESSED_ELEMENTS_MIN:,} elements"
        )
    return f"{len(dense)} of {len(infos)} parameters: {'; '.join(reasons)}"


def _is_worth_it(
    asked: str | None, session: _core.Session, info: ParameterInfo, parameter: torch.nn.Parameter
) -> bool:
    """A parameter of this size and shape would be compressed if it were float32."""
    twin = dataclasses.replace(info, dtype="float32")
    return with_compression(asked, session, twin, parameter, choose=_last).compression != "none"


def _last(_: str, choice: str) -> str:
    return parse_choice(choice).codecs[-1]


def _wanted(
    asked: str | None,
    session: _core.Session,
    info: ParameterInfo,
    parameter: torch.nn.Parameter,
) -> str:
    if asked is not None:
        return asked
    return session.compression_for(info.name, info.count, max(1, parameter.dim()))
