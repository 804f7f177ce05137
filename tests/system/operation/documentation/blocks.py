"""The code blocks of a Markdown page, and how they are marked."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

_BLOCK = re.compile(r"(?:^<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    """One fenced block; it runs unless there is a reason why not."""

    language: str
    code: str
    reason: str


def blocks_of(page: pathlib.Path) -> list[Block]:
    """In their order."""
    text = page.read_text(encoding="utf-8")
    return [Block(found["language"], found["code"], found["reason"] or "") for found in _BLOCK.finditer(text)]
