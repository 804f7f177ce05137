"""Checks the sizes of classes: at most 25 methods and 15 members, or a line in docs/design/large-classes.md.

universal-ctags counts C++ (overloads once), Python's own parser counts Python (members: attributes of self that it
assigns). A record, which has at most one method, may have as many members as the thing it describes. The page's figures
are upper limits: they only ever become smaller. Exit status 1 when a class is over its limit, or the page is not true.
"""

from __future__ import annotations

import ast
import collections
import json
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

PAGE = pathlib.Path("docs/design/large-classes.md")
METHODS_MAX, MEMBERS_MAX = 25, 15
ROW = re.compile(r"^\| `(?P<name>[\w:.]+)` \| (?P<methods>\d+) \| (?P<members>\d+) \| (?P<why>.+) \|$", re.MULTILINE)


class Size(NamedTuple):
    """Of a class."""

    methods: int
    members: int

    def over(self, other: Size) -> bool:
        """Larger in one of the two."""
        return self.methods > other.methods or self.members > other.members


LIMIT = Size(METHODS_MAX, MEMBERS_MAX)


def tracked(*patterns: str) -> list[str]:
    """Files of the project that match, without tests."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [file for file in files if not file.startswith("tests/")]


def cpp_classes() -> dict[str, Size]:
    """Of all files."""
    command = ["ctags", "--output-format=json", "--languages=C++", "--map-C++=+.h", "--kinds-C++=pfm",
               "--fields=+KZs", "-f", "-", *tracked("*.h", "*.cc")]  # fmt: skip
    methods: dict[str, set[str]] = collections.defaultdict(set)
    members: dict[str, set[str]] = collections.defaultdict(set)
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        if tag.get("scopeKind") in ("class", "struct"):
            scope = re.sub(r"__anon\w+::", "", tag["scope"]).removeprefix("gradbus::")
            (members if tag["kind"] == "member" else methods)[scope].add(tag["name"])
    return {name: Size(len(methods[name]), len(members[name])) for name in set(methods) | set(members)}


def assigned(node: ast.ClassDef) -> set[str]:
    """Attributes of self that its methods assign."""
    targets: list[ast.expr] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            targets += [each for target in part.targets
                        for each in (target.elts if isinstance(target, ast.Tuple) else [target])]  # fmt: skip
        elif isinstance(part, ast.AnnAssign | ast.AugAssign):
            targets.append(part.target)
    return {target.attr for target in targets if isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name) and target.value.id == "self"}  # fmt: skip


def python_classes() -> dict[str, Size]:
    """By module and class."""
    found = {}
    for file in tracked("*.py"):
        for node in ast.walk(ast.parse(pathlib.Path(file).read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
                found[f"{pathlib.Path(file).stem}.{node.name}"] = Size(len(methods), len(assigned(node)))
    return found


def complaints(classes: dict[str, Size], allowed: dict[str, Size]) -> list[str]:
    """A line for each class over its limit, and for each row that is not needed any more."""
    large = {name: size for name, size in classes.items() if size.over(LIMIT) and size.methods > 1}
    found = [f"too large: {name} has {size.methods} methods and {size.members} members, and may have "
             f"{allowed.get(name, LIMIT).methods} and {allowed.get(name, LIMIT).members}: split, or say why in {PAGE}"
             for name, size in sorted(large.items()) if size.over(allowed.get(name, LIMIT))]  # fmt: skip
    return found + [f"not large: {name}: remove it from {PAGE}" for name in sorted(allowed) if name not in large]


def main() -> int:
    """Prints what is not as it should be."""
    classes = cpp_classes() | python_classes()
    rows = ROW.finditer(PAGE.read_text())
    allowed = {row["name"]: Size(int(row["methods"]), int(row["members"])) for row in rows}
    found = complaints(classes, allowed)
    print(f"classes: {len(classes)}, of which {len(allowed)} are over {METHODS_MAX} methods or {MEMBERS_MAX} members")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
