"""The options of all programs as objects: what manual pages and completions are made of.

The source is the code itself: the option tables of the daemons and the declarations of the `gradbus` command, read as
scripts/reference.py reads them.
"""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

import reference
from cpp_tables import Sources, Tokens, braces, calls, is_sign, string


class Option(NamedTuple):
    """One option of a program. `names` without a leading dash belong to an argument without a flag."""

    names: list[str]
    text: str
    takes_value: bool
    default: str = ""
    limits: str = ""
    variable: str = ""


class Program(NamedTuple):
    """A daemon, or a command of `gradbus`."""

    name: str
    summary: str
    options: list[Option]


def plain(text: str) -> str:
    """Text without Markdown."""
    shown = text.replace("`", "").replace("&lt;", "<").replace("\\|", "|")
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"docs/\1.md", shown)


def options_in(body: Tokens, known: Sources, near: pathlib.Path) -> list[Option]:
    """Options of a command, also those of functions that take its `app`."""
    found = []
    for at in range(len(body)):
        if body[at].kind != "word" or not is_sign(body, at + 1, "("):
            continue
        if body[at].text in ("add_option", "add_flag"):
            arguments = next(calls(body[at:], body[at].text))
            names = ["-np" if name == "--np" else name for name in string(arguments[0]).split(",")]
            text = string(arguments[2]) if len(arguments) > 2 else ""
            found.append(Option(names, text, body[at].text == "add_option"))
        elif is_sign(body, at + 3, ",") and body[at + 2].text == "app":
            called = known.function(body[at].text, near)
            found += options_in(called.body, known, called.file) if called else []
    return found


def commands() -> list[Program]:
    """The commands of `gradbus`, in the order of its table."""
    known = reference.sources("cli")
    found = []
    for tokens in known.files.values():
        for parts in braces(tokens):
            if len(parts) == 3 and parts[2][0].text.startswith("declare_"):
                declared = known.function(parts[2][0].text, pathlib.Path())
                options = options_in(declared.body, known, declared.file) if declared else []
                found.append(Program(string(parts[0]), string(parts[1]), options))
    if not found:
        raise SystemExit("scripts/command_tables.py: no commands found")
    return found


def daemons() -> list[Program]:
    """gradbus-agent and gradbus-server."""
    found = []
    for section, summary, rows in reference.daemons():
        options = []
        for flag, variable, default, limits, text in rows:
            value = plain(default)
            boolean = value in ("true", "false")
            options.append(Option([plain(flag)], plain(text), not boolean, value, plain(limits), plain(variable)))
        found.append(Program(f"gradbus-{section}", summary, options))
    return found


DAEMON_COMMON = [
    Option(["--config"], "TOML file with the settings", True),
    Option(["--print-config"], "print each setting with its source, and end", False),
]
COMMON = [Option(["-h", "--help"], "show the options", False), Option(["--version"], "show the version", False)]
