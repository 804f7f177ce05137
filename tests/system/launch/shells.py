"""An interactive zsh on a terminal, whose keys a test presses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import termios
import time

DEADLINE_S = 60
ROWS, COLUMNS = 500, 200  # so that zsh lists everything without a question
SETUP = """
gradbus() { print -r -- "ran: $0 $*" }
gradbus-agent() { print -r -- "ran: $0 $*" }
gradbus-server() { print -r -- "ran: $0 $*" }
LISTMAX=0 PS1= fpath=(%s $fpath)
autoload -Uz compinit; compinit -u -D; print REA''DY
"""


class Zsh:
    """The shell; programs of Gradbus are functions that print their words."""

    def __init__(self, completions: pathlib.Path) -> None:
        """`completions`: the folder with _gradbus."""
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            variables = {"PATH": "/usr/bin:/bin", "TERM": "xterm", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
            os.execve("/usr/bin/zsh", ["zsh", "-f", "-i"], variables)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.type(SETUP % completions, "READY")

    def type(self, keys: str, until: str) -> str:
        """Types, and returns what zsh writes until it matches."""
        written, end = b"", time.monotonic() + DEADLINE_S
        os.write(self.terminal, keys.encode())
        while True:
            text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", written.decode(errors="replace"))
            if re.search(until, text):
                return text
            assert select.select([self.terminal], [], [], max(0.0, end - time.monotonic()))[0], (keys, text)
            written += os.read(self.terminal, 65536)

    def completed(self, words: str) -> str:
        """The command line after the Tab key, as zsh then runs it."""
        return re.search(r"ran: (.*?) *\n", self.type(f"{words}\t\n", r"ran: .*\n"))[1]

    def offered(self, words: str) -> str:
        """What zsh lists for several completions. It lists nothing while keys wait. Ctrl-U empties the line again."""
        return self.type(f"{words}\t", " -- ") + self.type("\x15print DO''NE\n", "DONE")

    def close(self) -> None:
        """Ends it."""
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.terminal)


@contextlib.contextmanager
def zsh(completions: pathlib.Path):
    """A shell that is ready."""
    shell = Zsh(completions)
    try:
        yield shell
    finally:
        shell.close()
