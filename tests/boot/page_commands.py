"""Prints commands of the operators' pages, for the steps of inside.sh and second.sh.

    page_commands.py PAGE HEADING    the shell blocks below this heading that a comment leaves to scripts/boot_test.sh
    page_commands.py PAGE HEADING#2  the second one of them
    page_commands.py PAGE --inline   each command that the text has between backticks, one a line
"""

from __future__ import annotations

import pathlib
import re
import sys

BLOCK = r"^<!-- not run: [^\n]*scripts/boot_test\.sh runs it[^\n]* -->\n```sh\n(.*?)^```$"
LEFT_TO_BOOT = re.compile(BLOCK, re.M | re.S)
INLINE = re.compile(r"`((?:gradbus|systemctl|journalctl|curl|ip) [^`]+)`")


def section(text: str, heading: str) -> str:
    """What is below a heading of the second level."""
    parts = re.split(r"^## ", text, flags=re.M)[1:]
    (found,) = [part for part in parts if part.split("\n")[0] == heading]
    return found


def left_to_boot(text: str) -> list[str]:
    """The blocks that only the booted system runs."""
    return LEFT_TO_BOOT.findall(text)


def main() -> None:
    """The command line above."""
    text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    if sys.argv[2] == "--inline":
        print("\n".join(dict.fromkeys(" ".join(command.split()) for command in INLINE.findall(text))))
        return
    heading, _, number = sys.argv[2].partition("#")
    blocks = left_to_boot(section(text, heading))
    assert blocks, f"{sys.argv[1]}: no block below {heading}"
    print(blocks[int(number) - 1] if number else "\n".join(blocks))


if __name__ == "__main__":
    main()
