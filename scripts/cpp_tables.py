"""Reads tables of the C++ sources: strings, brace lists, calls and small functions that return rows.

It knows C++ only as tokens in brackets, which is enough for tables. So the documentation needs neither a compiler
nor a build.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|^\s*\#(?:[^\n\\]|\\.|\\\n)*'  # comments and directives
    r"|(?P<letter>'(?:[^'\\]|\\.)+')"
    r'|R"\w*\((?P<raw>.*?)\)\w*"'
    r'|(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>\d[\w.\']*(?:[eE][-+]?\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign>->|::|\S)',
    re.DOTALL | re.MULTILINE,
)
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class Token(NamedTuple):
    """One word of C++: kind is text, raw (a raw string), letter, number, word or sign."""

    kind: str
    text: str


Tokens = list[Token]


def tokens_of(source: str) -> Tokens:
    """All tokens; neighbouring strings are joined."""
    found: Tokens = []
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup
        if kind is None:
            continue
        text = match[0]
        if kind == "text":
            text = text[1:-1].encode().decode("unicode_escape").encode("latin-1").decode("utf-8")
            if found and found[-1].kind == "text":
                text = found.pop().text + text
        found.append(Token(kind, text))
    return found


def is_sign(tokens: Tokens, at: int, text: str) -> bool:
    """Whether that sign stands there."""
    return 0 <= at < len(tokens) and tokens[at].text == text and tokens[at].kind == "sign"


def closing(tokens: Tokens, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind != "sign":
            continue
        depth += (tokens[at].text in "({[") - (tokens[at].text in ")}]")
        if depth == 0:
            return at
    raise ValueError(f"unbalanced {tokens[start].text}")


def split(tokens: Tokens, separator: str = ",") -> list[Tokens]:
    """The parts between separators that are in no bracket."""
    parts: list[Tokens] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "sign":
            depth += (token.text in "({[") - (token.text in ")}]")
        if depth == 0 and token == Token("sign", separator):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def braces(tokens: Tokens) -> Iterator[list[Tokens]]:
    """The parts of each brace list, outer ones first."""
    for at in range(len(tokens)):
        if is_sign(tokens, at, "{"):
            yield split(tokens[at + 1 : closing(tokens, at)])


def fields(parts: list[Tokens]) -> dict[str, Tokens]:
    """{name: value} of `.name = value` parts."""
    return {
        part[1].text: part[3:]
        for part in parts
        if len(part) > 3 and is_sign(part, 0, ".") and is_sign(part, 2, "=")
    }


def calls(tokens: Tokens, name: str) -> Iterator[list[Tokens]]:
    """The arguments of each call of a function or method."""
    for at in range(len(tokens) - 1):
        if tokens[at] == Token("word", name) and is_sign(tokens, at + 1, "("):
            yield split(tokens[at + 2 : closing(tokens, at + 1)])


def string(tokens: Tokens) -> str:
    """The value, if it is one string; else its tokens, as they read best."""
    if len(tokens) == 1:
        return tokens[0].text.replace("'", "") if tokens[0].kind == "number" else tokens[0].text
    return "".join(token.text for token in tokens)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that is defined in a file."""

    file: pathlib.Path
    parameters: list[str]
    body: Tokens


class Sources:
    """Files, and the functions in them. Equal names are told apart by file."""

    def __init__(self, paths: list[pathlib.Path]) -> None:
        self.files = {path: tokens_of(path.read_text(encoding="utf-8")) for path in sorted(paths)}
        self._functions: dict[str, list[Function]] = {}
        for path, tokens in self.files.items():
            self._add_functions(path, tokens)

    def function(self, name: str, near: pathlib.Path) -> Function | None:
        """The one in the same file, else any."""
        known = self._functions.get(name, [])
        return next((one for one in known if one.file == near), known[0] if known else None)

    def _add_functions(self, path: pathlib.Path, tokens: Tokens) -> None:
        for at in range(len(tokens) - 1):
            if tokens[at].kind != "word" or not is_sign(tokens, at + 1, "("):
                continue
            end = closing(tokens, at + 1)
            while end + 1 < len(tokens) and tokens[end + 1] in (Token("word", "const"), Token("word", "noexcept")):
                end += 1
            if is_sign(tokens, end + 1, "{"):
                parameters = [part[-1].text for part in split(tokens[at + 2 : end])]
                body = tokens[end + 2 : closing(tokens, end + 1)]
                self._functions.setdefault(tokens[at].text, []).append(Function(path, parameters, body))


def bound(tokens: Tokens, values: dict[str, Tokens]) -> Tokens:
    """With parameters replaced by what they were called with; names of fields stay."""
    found: Tokens = []
    for at, token in enumerate(tokens):
        is_name = token.kind == "word" and not is_sign(tokens, at - 1, ".")
        found += values.get(token.text, [token]) if is_name else [token]
    return found


def rows_with(
    key: str, tokens: Tokens, sources: Sources, near: pathlib.Path, values: dict[str, Tokens] | None = None
) -> list[dict[str, Tokens]]:
    """All brace lists with a field `key` that an expression makes, also by calling functions of these sources."""
    rows: list[dict[str, Tokens]] = []
    tokens = bound(tokens, values or {})
    at = 0
    while at < len(tokens):
        end = closing(tokens, at) if is_sign(tokens, at, "{") else at
        row = fields(split(tokens[at + 1 : end])) if end > at else {}
        called = sources.function(tokens[at].text, near) if is_sign(tokens, at + 1, "(") else None
        if key in row:
            rows.append(row)
            at = end
        elif called:
            end = closing(tokens, at + 1)
            given: dict[str, Tokens] = {}
            for name, argument in zip(called.parameters, split(tokens[at + 2 : end])):
                found = rows_with(key, argument, sources, near)
                rows += found
                given[name] = [] if found else argument  # rows count once, not at each use of the parameter
            rows += rows_with(key, called.body, sources, called.file, given)
            at = end
        at += 1
    return rows
