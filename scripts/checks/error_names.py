"""Refuses a text "GB-P110 STALLED" whose number and name are not a row of common/errors.cc.

    scripts/checks/error_names.py       every tracked source and page; exit status 1 when one has another name

C++ code looks names up in that table. Python code, scripts, tests and pages write them out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_TABLE = Path("common/errors.cc")
_ROW = re.compile(r'\{"([A-Z]\d{3})", "([A-Z_]+)"')
_TEXT = re.compile(r"GB-([A-Z]\d{3}) ([A-Z][A-Z_]+)")
_INVENTED = "X"  # tests invent errors with this letter


def _wrong_names(path: Path, names: dict[str, str]) -> list[str]:
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return []
    return [
        f"{path}:{number}: {found[0]} | {names.get(found[1], 'no such number')}"
        for number, line in enumerate(lines, 1)
        for found in _TEXT.finditer(line)
        if found[1][0] != _INVENTED and names.get(found[1]) != found[2]
    ]


def main() -> int:
    """Prints each wrong name."""
    names = dict(_ROW.findall(_TABLE.read_text()))
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    paths = [path for path in map(Path, files.stdout.splitlines()) if path.is_file()]
    wrong = [text for path in paths for text in _wrong_names(path, names)]
    for text in wrong:
        print(text)
    print(f"error names: {len(paths)} files, {len(wrong)} wrong, {len(names)} errors")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
