"""Prints the lengths of functions and files and the sizes of folders: medians, the largest, everything over the limits.

Functions are measured by universal-ctags (C++) and by Python's own parser. Exit status 1 when a
function is longer than 60 lines without its docstring, a file than 500 (tests excepted), or a
folder has more than 25 sources.
"""

import ast
import collections
import json
import pathlib
import statistics
import subprocess
import sys

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
FOLDER_SOURCES_MAX = 25  # without those of its subfolders
# Folders that may have more, each with its reason. Entries are only ever removed.
CROWDED_FOR_NOW: dict[str, str] = {}


def tracked(*patterns: str) -> list[str]:
    """Files of the project that match."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def cpp_functions(paths: list[str]) -> list[tuple[int, str]]:
    """(lines, "path:line name") of every C++ function definition."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C++=f", "--kinds-C=f",
               "--map-C++=+.h", "--languages=C++,C", "-f", "-", *paths]
    found = []
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            found.append((tag["end"] - tag["line"] + 1, f"{tag['path']}:{tag['line']} {tag['name']}"))
    return found


def docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many it has."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return (first.end_lineno or first.lineno) - first.lineno + 1
    return 0


def python_functions(paths: list[str]) -> list[tuple[int, str]]:
    """(lines, "path:line name") of every Python function."""
    found = []
    for path in paths:
        for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
                found.append((lines, f"{path}:{node.lineno} {node.name}"))
    return found


def folder_sizes(paths: list[str]) -> dict[str, int]:
    """Sources of each folder; a header and its .cc or .cu are one."""
    stems: dict[str, set[str]] = collections.defaultdict(set)
    for path in map(pathlib.PurePath, paths):
        stems[str(path.parent)].add(path.stem)
    return {folder: len(names) for folder, names in stems.items()}


def crowded(sizes: dict[str, int], exempt: dict[str, str]) -> list[str]:
    """A line for each folder with too many sources, and for each exemption that is not needed any more."""
    found = [f"crowded: {size} sources: {folder}: at most {FOLDER_SOURCES_MAX}, so make subfolders"
             for folder, size in sorted(sizes.items()) if size > FOLDER_SOURCES_MAX and folder not in exempt]
    return found + [f"not crowded: {folder}: remove it from CROWDED_FOR_NOW"
                    for folder in exempt if sizes.get(folder, 0) <= FOLDER_SOURCES_MAX]


def main() -> int:
    """Prints the figures; 1 when something is over a limit."""
    cpp = tracked("*.cc", "*.h", "*.hpp", "*.cu")
    python = tracked("*.py")
    functions = [f for f in cpp_functions(cpp) + python_functions(python)]
    files = [(len(pathlib.Path(p).read_text().splitlines()), p) for p in cpp + python]
    own = [f for f in functions if not f[1].startswith("tests/")]
    own_files = [f for f in files if not f[1].startswith("tests/")]
    print(f"functions: {len(own)}, median {statistics.median(n for n, _ in own):g} lines, "
          f"longest {max(own)[0]} ({max(own)[1]})")
    print(f"files: {len(own_files)}, median {statistics.median(n for n, _ in own_files):g} lines, "
          f"longest {max(own_files)[0]} ({max(own_files)[1]})")
    too_long = [f for f in functions if f[0] > FUNCTION_LINES_MAX]
    too_long += [f for f in own_files if f[0] > FILE_LINES_MAX]
    for lines, where in sorted(too_long, reverse=True):
        print(f"too long: {lines} lines: {where}")
    folders = folder_sizes(cpp + python)
    largest = max(folders, key=lambda folder: folders[folder])
    print(f"folders: {len(folders)}, median {statistics.median(folders.values()):g} sources, "
          f"most {folders[largest]} ({largest})")
    too_full = crowded(folders, CROWDED_FOR_NOW)
    print("\n".join(too_full), end="\n" if too_full else "")
    return 1 if too_long or too_full else 0


if __name__ == "__main__":
    sys.exit(main())
