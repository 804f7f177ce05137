"""What the environment says about autotuning: variables GRADBUS_AUTOTUNE..., else those of Horovod."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..._errors import bad_argument

SAMPLES_MAX = 60  # server/scheduling/job/job_question.h takes 64 measured points


@dataclass(frozen=True)
class TuningOptions:
    """How long it takes, and where the log goes."""

    warm_steps: int  # before the first setting is measured
    steps: int  # of a setting, which count
    samples: int  # settings
    log: str  # a file; "": none


def wants_tuning() -> bool:
    """As the environment says. InvalidError for a value that is neither 0 nor 1."""
    text = _text("GRADBUS_AUTOTUNE")
    if text not in ("", "0", "1"):
        raise bad_argument(f"GRADBUS_AUTOTUNE is '{text[:40]}'", "set it to 1, or to 0")
    return text == "1"


def tuning_options() -> TuningOptions:
    """InvalidError for a value that is no number in its range."""
    steps = _number("GRADBUS_AUTOTUNE_STEPS_PER_SAMPLE", 10, 1, 10_000)
    warm = _number("GRADBUS_AUTOTUNE_WARMUP_SAMPLES", 1, 0, 1000) * steps
    samples = _number("GRADBUS_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 20, 4, SAMPLES_MAX)
    return TuningOptions(warm, steps, samples, _text("GRADBUS_AUTOTUNE_LOG"))


def _text(name: str) -> str:
    return os.environ.get(name, os.environ.get(_horovod(name), "")).strip()


def _horovod(name: str) -> str:
    return name.replace("GRADBUS", "HOROVOD")


def _number(name: str, usual: int, least: int, most: int) -> int:
    text = _text(name)
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) < 8 and least <= int(text) <= most):
        given = name if name in os.environ else _horovod(name)
        raise bad_argument(f"{given} is '{text[:40]}'", f"set it to a whole number from {least} to {most}")
    return int(text)
