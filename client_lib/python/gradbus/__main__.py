"""``gradbus`` and ``python -m gradbus``: the command that comes with the wheel, or one that is on PATH.

The wheel of scripts/wheel.sh has the programs in ``_programs/``. An installation from source has none, so there the
command of a build or of ``cmake --install`` is used.
"""

from __future__ import annotations

import os
import pathlib
import sys

_PROGRAM = pathlib.Path(__file__).parent / "_programs/bin/gradbus"


def _on_path() -> str | None:
    """The first ``gradbus`` on PATH that is no script of Python, as this one is."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = pathlib.Path(folder or ".") / "gradbus"
        if path.is_file() and os.access(path, os.X_OK) and path.read_bytes()[:4] == b"\x7fELF":
            return str(path)
    return None


def words_of(*arguments: str) -> list[str]:
    """The command line with which a program of Python calls the command."""
    # The folder that the program runs in may have a module of this name.
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safe_path, "-m", "gradbus", *arguments]


def main() -> int:
    """Becomes the command; returns only if there is none."""
    program = str(_PROGRAM) if _PROGRAM.is_file() else _on_path()
    if program is None:
        print(
            "GB-H204 NO_PROGRAM: this installation of gradbus has no programs, and PATH has no other gradbus"
            " | next: install the wheel of scripts/wheel.sh, or put the bin folder of a build on PATH",
            file=sys.stderr,
        )
        return 127
    os.execv(program, ["gradbus", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
