"""The King James Bible as numbers: read from Debian's bible-kjv, cut into batches.

Everything is a function of the seed and the step alone, so any number of ranks sees the same batches.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import torch

VERSES = 31102
HELD_OUT_SHARE = 0.05  # the end of the text: the last letters and the Revelation
READ_TIMEOUT_S = 60
_COMMAND = ["bible", "-f", "-p", "/usr/lib", "Genesis1:1-Revelation22:21"]


def read() -> str:
    """All verses, one per line, without their references."""
    if shutil.which(_COMMAND[0]) is None:
        sys.exit("charlm: no program 'bible' here | next: apt-get install bible-kjv bible-kjv-text")
    # -f: a verse per line, "Ge1:1 In the beginning ..."; without -p a bible.data of this folder would win.
    run = subprocess.run(
        _COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=READ_TIMEOUT_S, env={**os.environ, "LC_ALL": "C"}, encoding="ascii",
    )  # fmt: skip
    text, verses = re.subn(r"(?m)^[1-3]?[A-Z][A-Za-z]+\d+:\d+ ", "", run.stdout)
    if run.returncode != 0 or verses != VERSES or text.count("\n") != VERSES:
        sys.exit(
            f"charlm: {' '.join(_COMMAND)} ended with {run.returncode} and {verses} verses instead of {VERSES}: "
            f"{run.stderr.strip()[:200]} | next: apt-get install --reinstall bible-kjv bible-kjv-text"
        )
    return text


class Corpus:
    """The text as numbers of a vocabulary, split into a part to learn and a part held out.

    `validate`: what is held out is never seen; the end of the part to learn takes its place.
    """

    def __init__(self, text: str, validate: bool = False) -> None:
        codes = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
        self.vocabulary, numbers = np.unique(codes, return_inverse=True)
        tokens = torch.from_numpy(numbers.astype(np.int64))
        held_out = round(len(tokens) * HELD_OUT_SHARE)
        if validate:
            tokens = tokens[:-held_out]
        self.train, self.held_out = tokens[:-held_out], tokens[-held_out:]

    def batch(self, seed: int, step: int, size: int, context: int) -> torch.Tensor:
        """The global batch of a step: [size, context + 1] at random places of the part to learn."""
        random = np.random.Generator(np.random.PCG64([seed, step]))
        starts = random.integers(0, len(self.train) - context, size)
        return windows(self.train, starts, context)

    def held_out_windows(self, count: int, context: int) -> torch.Tensor:
        """[count, context + 1], spread evenly over the part held out."""
        starts = np.linspace(0, len(self.held_out) - context - 1, count).astype(np.int64)
        return windows(self.held_out, starts, context)

    def encode(self, text: str) -> torch.Tensor:
        """Numbers of characters that occur in the text."""
        return torch.from_numpy(np.searchsorted(self.vocabulary, np.frombuffer(text.encode("ascii"), np.uint8)))

    def decode(self, numbers: torch.Tensor) -> str:
        """The text of numbers."""
        return self.vocabulary[numbers.numpy()].tobytes().decode("ascii")


def windows(tokens: torch.Tensor, starts: np.ndarray, context: int) -> torch.Tensor:
    """[len(starts), context + 1]: every start's character and the `context` ones that follow."""
    return tokens[torch.from_numpy(starts)[:, None] + torch.arange(context + 1)]
