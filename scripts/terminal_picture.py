#!/usr/bin/env python3
"""A picture of a command in a terminal, for the documentation.

    scripts/terminal_picture.py [--size 100x30] [--seconds 5] PICTURE.png -- gradbus top

tmux shows the command; Chromium draws what it shows, with colours and bold text.
"""

from __future__ import annotations

import argparse
import html
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests/system"), str(REPOSITORY / "tests/system/operation")]

COLOURS = ("#1c1f24", "#ff8a80", "#6fd08c", "#f0b45a", "#8ab4f8", "#d7a6ff", "#6ed0e0", "#d8dbe0",
           "#7d8794", "#ffb4ab", "#a0e8b4", "#ffd27f", "#b8d0ff", "#e8ccff", "#a8e8f0", "#ffffff")  # fmt: skip
PAGE = """<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; background: #14171b; }}
pre {{ margin: 0; padding: 14px; color: #d8dbe0; font: 15px/1.25 monospace; width: max-content; }}
</style><pre>{}</pre>"""
ROW_PX, COLUMN_PX, EDGE_PX = 18.75, 9.03, 28


def shown(command: list[str], columns: int, rows: int, seconds: float) -> str:
    """What the terminal shows after this time, with escape sequences."""
    server = f"gradbus-picture-{time.time_ns()}"
    tmux = ["tmux", "-L", server]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), shlex.join(command)], check=True)
    try:
        time.sleep(seconds)
        return subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def style(codes: set[int]) -> str:
    """CSS of the codes that are on."""
    colours = [COLOURS[code % 10 + (8 if code >= 90 else 0)] for code in codes if 30 <= code <= 37 or 90 <= code <= 97]
    parts = ["font-weight: 700"] if 1 in codes else []
    parts += ["opacity: .6"] if 2 in codes else []
    if 7 in codes:
        parts += ["background: #d8dbe0", "color: #14171b"]
    elif colours:
        parts.append(f"color: {colours[-1]}")
    return "; ".join(parts)


def as_html(text: str) -> str:
    """The text as spans."""
    codes: set[int] = set()
    out = []
    for part in re.split(r"(\x1b\[[\d;]*m)", re.sub(r"\x1b\(B", "", text)):
        found = re.fullmatch(r"\x1b\[([\d;]*)m", part)
        if not found:
            out.append(f'<span style="{style(codes)}">{html.escape(part)}</span>' if part else "")
            continue
        for code in [int(word or 0) for word in found[1].split(";")]:
            if code == 0:
                codes.clear()
            elif code in (22, 27, 39, 49):
                codes -= {22: {1, 2}, 27: {7}, 39: set(range(30, 98)), 49: set(range(40, 48))}[code]
            else:
                codes.add(code)
    return PAGE.format("".join(out))


def main() -> None:
    """The command line above."""
    from browser import browser

    parser = argparse.ArgumentParser(description="Draws a command in a terminal.")
    parser.add_argument("--size", default="100x30", help="columns x rows")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    text = shown(options.command, columns, rows, options.seconds)
    with tempfile.NamedTemporaryFile("w", suffix=".html") as page, browser() as tab:
        page.write(as_html(text))
        page.flush()
        tab.screen(round(columns * COLUMN_PX + EDGE_PX), round(rows * ROW_PX + EDGE_PX))
        tab.open(f"file://{page.name}")
        tab.wait("document.querySelector('pre') !== null", "the page")
        tab.picture(options.picture, options.picture.suffix[1:])


if __name__ == "__main__":
    main()
