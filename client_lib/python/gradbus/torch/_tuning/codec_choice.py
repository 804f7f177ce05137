"""Compression that is chosen by measurement: ``"auto"``, or a list of codecs. The text is that of a policy, too.

common/policy/codec_choice.h has the format. Pure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..._errors import bad_argument
from ..._ops import codecs_in

USUAL_CODECS = ("fp16", "int8", "onebit")
COSINE_MIN = 0.5
CODECS_MAX = 8
# They look at matrices or rows, so an exchange of a vector says nothing about their cost.
_NOT_CHOSEN = ("powersgd", "rows")


@dataclass(frozen=True)
class CodecChoice:
    """Codecs of which one, or none, is used."""

    codecs: tuple[str, ...]
    cosine_min: float = COSINE_MIN  # of the angle between a compressed and a dense sum


@functools.lru_cache(maxsize=64)
def parse_choice(text: str) -> CodecChoice:
    """Raises InvalidError. Whether the codecs are known is not looked at."""
    parts = codecs_in(text)
    cosine_min = COSINE_MIN
    if parts[0].partition(":")[0] == "auto":
        cosine_min = _cosine_of(parts.pop(0).partition(":")[2], text)
        parts = parts or list(USUAL_CODECS)
    codecs = tuple(dict.fromkeys(part for part in parts if part != "none"))
    if not 1 <= len(codecs) <= CODECS_MAX:
        raise bad_argument(f"compression={text[:80]!r} names {len(codecs)} codecs", f"name 1 to {CODECS_MAX}")
    wrong = next((codec for codec in codecs if codec.partition(":")[0] in _NOT_CHOSEN), None)
    if wrong is not None:
        raise bad_argument(
            f"compression={text[:80]!r}: {wrong.partition(':')[0]} looks at matrices, so its time cannot be predicted",
            "leave it out, or use it alone",
        )
    return CodecChoice(codecs, cosine_min)


def _cosine_of(options: str, text: str) -> float:
    if not options:
        return COSINE_MIN
    key, _, value = options.partition("=")
    try:
        cosine = float(value)
    except ValueError:
        cosine = -1.0
    if key != "cosine" or not 0 <= cosine <= 1:
        raise bad_argument(f"compression={text[:80]!r}", 'the only option of auto is cosine=0 to 1: "auto:cosine=0.9"')
    return cosine


def with_gauge(codec: str, every: int) -> str:
    """The codec, with a gauge of its loss every so many rounds, unless the user has set one."""
    if not every or "fidelity=" in codec:
        return codec
    return f"{codec}{',' if ':' in codec else ':'}fidelity={every}"
