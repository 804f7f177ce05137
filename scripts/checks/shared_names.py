"""Finds names that change their meaning where files of a target are compiled as one (cmake/compiler.cmake).

In such a build, a name in the anonymous namespace of one file hides a name of a header from the files that follow it.
Functions of one name become overloads. The compiler refuses most of that, but not all. Exit status 1 for such a name.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

BLOCK = re.compile(
    r"(add_library|add_executable|gradbus_add_test|gradbus_alone|target_sources)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)"
)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
Names = dict[str, dict[str, str]]  # {path: {name: kind}}
KINDS = {"variable", "function", "prototype", "typedef", "class", "struct", "union", "enum"}


def tracked(*patterns: str) -> list[str]:
    """Files of the project that match."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def targets() -> dict[str, set[str]]:
    """{target: its sources that are compiled together}"""
    found: dict[str, set[str]] = {}
    alone: set[str] = set()
    for path in tracked("CMakeLists.txt", "*/CMakeLists.txt"):
        folder = pathlib.Path(path).parent
        text = re.sub(r"#.*", "", pathlib.Path(path).read_text())
        for command, inside in BLOCK.findall(text):
            words = inside.replace("${CMAKE_SOURCE_DIR}/", "/").split()
            lone = words[words.index("ALONE") :] if "ALONE" in words else words if command == "gradbus_alone" else []
            sources = {source_of(folder, word) for word in words if word.endswith(".cc")}
            alone |= {source_of(folder, word) for word in lone if word.endswith(".cc")}
            if command != "gradbus_alone":
                found.setdefault(words[0], set()).update(sources)
        for name in re.findall(r"set_target_properties\(\s*(\w+) PROPERTIES UNITY_BUILD OFF", text):
            found.pop(name, None)
    together = {name: {source for source in sources - alone if pathlib.Path(source).exists()}
                for name, sources in found.items()}  # fmt: skip
    return {name: sources for name, sources in together.items() if len(sources) > 1}


def source_of(folder: pathlib.Path, word: str) -> str:
    """The path of what a CMakeLists.txt lists."""
    return word[1:] if word.startswith("/") else str(folder / word)


def names(paths: list[str]) -> Iterator[tuple[str, str, str, bool]]:
    """(path, name, kind, whether it is in an anonymous namespace) of what is declared in namespaces."""
    command = ["ctags", "--output-format=json", "--languages=C++", "--map-C++=+.h", "--kinds-C++=vfptcgsu",
               "--fields=+sK", "-f", "-", *paths]  # fmt: skip
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        if tag["kind"] in KINDS and tag.get("scopeKind") == "namespace" and not tag["name"].isupper():
            yield tag["path"], tag["name"], tag["kind"], "__anon" in tag["scope"]


def included(source: str, seen: set[str]) -> None:
    """Adds the project's headers that a source includes."""
    for header in INCLUDE.findall(pathlib.Path(source).read_text()):
        if header not in seen and pathlib.Path(header).exists():
            seen.add(header)
            included(header, seen)


def hiding(target: str, sources: set[str], hidden: Names, declared: Names) -> Iterator[str]:
    """What is wrong with a target."""
    headers: set[str] = set()
    for source in sources:
        included(source, headers)
    public = {name: header for header in headers for name in declared.get(header, ())}
    first: dict[str, str] = {}
    for source in sorted(sources):
        for name, kind in sorted(hidden.get(source, {}).items()):
            if name in public:
                yield f"{source}: {name} hides that of {public[name]} from other files of {target}"
            elif kind == "function" and first.setdefault(name, source) != source:
                yield f"{source}: {name}() is also in {first[name]} of {target}, and a call may take the other one"


def main() -> int:
    """Prints them."""
    hidden: Names = {}
    declared: Names = {}
    for path, name, kind, anonymous in names(tracked("*.cc", "*.h")):
        (hidden if anonymous else declared).setdefault(path, {})[name] = kind
    found = [line for target, sources in sorted(targets().items())
             for line in hiding(target, sources, hidden, declared)]  # fmt: skip
    print("\n".join(found) or "shared names: none")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
