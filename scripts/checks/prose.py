"""Measures how long the sentences of pages and comments are, and names what is hard to read.

    scripts/checks/prose.py             pages and comments over the limits; exit status 1 when there are any
    scripts/checks/prose.py --all       the figures of every page and folder
    scripts/checks/prose.py FILE...     these files only

A page is a Markdown file. Comments are counted by folder: `//` comments of C++ and docstrings of Python.
Code blocks, tables, headings and quoted output do not count. The limits are those of CONTRIBUTING.md:
half of the sentences have at most 16 words, nine of ten at most 26.
"""

from __future__ import annotations

import ast
import collections
import pathlib
import re
import statistics
import subprocess
import sys

MEDIAN_WORDS_MAX = 16
P90_WORDS_MAX = 26
SENTENCES_MIN = 8  # fewer say nothing about a page
WORDS_MIN = 3  # shorter ones are labels

# Pages and folders that are still to be rewritten. Entries are only ever removed.
NOT_YET = pathlib.Path(__file__).with_name("prose_not_yet.txt")

_FENCE = re.compile(r"```.*?```", re.DOTALL)
_NO_PROSE = re.compile(r"\s*(#|\||>|<!--|!\[|    )")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(*\[_0-9])")
_ITEM = re.compile(r"\n\s*(?:[-*]|\d+\.)\s+")


def tracked(*patterns: str) -> list[pathlib.Path]:
    """Files of the project that match, deleted ones left out."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [path for path in map(pathlib.Path, names) if path.exists()]


def sentence_lengths(text: str) -> list[int]:
    """Words of each sentence; a list item, and a paragraph, ends one."""
    lengths = []
    for block in re.split(r"\n\s*\n", text):
        for item in _ITEM.split("\n" + block):
            joined = " ".join(item.split())
            lengths += [len(sentence.split()) for sentence in _END.split(joined)]
    return [length for length in lengths if length >= WORDS_MIN]


def page_text(path: pathlib.Path) -> str:
    """The prose of a Markdown page."""
    text = _FENCE.sub("\n\n", path.read_text(encoding="utf-8"))
    return "\n".join("" if _NO_PROSE.match(line) else line for line in text.splitlines())


def cpp_comments(path: pathlib.Path) -> str:
    """Comments that have a line of their own; a blank line between blocks."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        comment = re.match(r"\s*///?\s?(.*)", line)
        text = comment[1] if comment else ""
        is_drawing = text.startswith("  ") or re.search(r"[|<>=_-]{3,}", text)
        lines.append("" if is_drawing else text)
    return "\n".join(lines)


def python_docstrings(path: pathlib.Path) -> str:
    """All docstrings of a file."""
    found = []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        # A usage of nothing but indented lines would lose its indentation with that of the docstring.
        is_module = isinstance(node, ast.Module)
        text = ast.get_docstring(node, clean=not is_module) if isinstance(node, documented) else None
        found += [line if not line.startswith("    ") else "" for line in (text or "").splitlines()]
        found.append("")
    return "\n".join(found)


def measured(paths: list[pathlib.Path]) -> dict[str, list[int]]:
    """Sentence lengths by page, or by folder for comments."""
    lengths: dict[str, list[int]] = collections.defaultdict(list)
    for path in paths:
        if path.suffix == ".md":
            lengths[str(path)] += sentence_lengths(page_text(path))
        elif path.suffix == ".py":
            lengths[f"{path.parent}/"] += sentence_lengths(python_docstrings(path))
        else:
            lengths[f"{path.parent}/"] += sentence_lengths(cpp_comments(path))
    return {place: found for place, found in lengths.items() if len(found) >= SENTENCES_MIN}


def p90(lengths: list[int]) -> int:
    """Nine of ten are at most this long."""
    return sorted(lengths)[int(0.9 * (len(lengths) - 1))]


def is_hard(lengths: list[int]) -> bool:
    """Over one of the limits."""
    return statistics.median(lengths) > MEDIAN_WORDS_MAX or p90(lengths) > P90_WORDS_MAX


def main() -> int:
    """Prints the figures; 1 when a place that is not excused is over a limit."""
    words = sys.argv[1:]
    everything = "--all" in words
    named = [pathlib.Path(word) for word in words if not word.startswith("-")]
    paths = named or tracked("*.md", "*.cc", "*.h", "*.hpp", "*.cu", "*.py")
    excused = set(NOT_YET.read_text().split()) if NOT_YET.exists() and not named else set()
    places = measured(paths)
    hard = {place for place, lengths in places.items() if is_hard(lengths)}
    for place, lengths in sorted(places.items()):
        if everything or (place in hard and place not in excused):
            print(f"{place}: median {statistics.median(lengths):g}, 90th percentile {p90(lengths)} words")
    for place in sorted(excused - hard):
        print(f"{place}: readable now; remove it from {NOT_YET.name}")
    return 1 if (hard - excused) or (excused - hard) else 0


if __name__ == "__main__":
    sys.exit(main())
