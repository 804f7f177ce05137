"""Compression that is chosen by measurement: ``"auto"``, or a list of codecs. The text is that of a policy, too.

common/policy/codec_choice.h has the format. Pure.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from ..._errors import bad_argument
from ..._layout import MATRIX_CODECS
from ..._ops import codecs_in

USUAL_CODECS = ("fp16", "int8", "onebit")
COSINE_MIN = 0.5
CODECS_MAX = 8
# Every element they send has one magnitude, and the learning rate is the step.
_WITHOUT_MAGNITUDE = ("signsgd", "signum")


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
    for codec in codecs:
        why_not, instead = _why_not_chosen(codec)
        if why_not:
            raise bad_argument(f"compression={text[:80]!r}: {codec} {why_not}", f"leave it out, or {instead}")
    return CodecChoice(codecs, cosine_min)


def _why_not_chosen(codec: str) -> tuple[str, str]:
    """Why training cannot choose it and what to do instead; empty texts for a codec that it can choose."""
    name, _, options = codec.partition(":")
    if name in MATRIX_CODECS:  # an exchange of a vector says nothing about their cost
        return "looks at matrices, so its time cannot be predicted", "use it alone"
    if name in _WITHOUT_MAGNITUDE:
        return (
            "sends signs without a magnitude, so its steps would be far longer or shorter than dense ones",
            "use efsignsgd, or use it alone with a learning rate for it",
        )
    memory = dict(option.split("=", 1) for option in options.split(",") if "=" in option).get("ef", "auto")
    if memory == "dgc" or (name == "dgc" and memory == "auto"):
        return (
            "adds momentum to the gradients (ef=dgc), so its steps would be longer than dense ones",
            "use ef=residual, or use it alone without momentum in the optimizer",
        )
    return "", ""


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
