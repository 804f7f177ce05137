"""Checks that no modules of the gradbus Python package import each other in a circle. Exit status 1 if some do.

    scripts/checks/python_imports.py             the package of this repository
    scripts/checks/python_imports.py FOLDER      another package

Every import counts: at the top of a module, inside a function, and for type checkers alone. An import inside a
function often hides a circle.
"""

from __future__ import annotations

import ast
import pathlib
import sys

PACKAGE = pathlib.Path("client_lib/python/gradbus")
Imports = dict[str, dict[str, str]]  # module -> {module that it imports: "file:line"}


def modules_of(package: pathlib.Path) -> dict[str, pathlib.Path]:
    """{name: file}; an extension is known by its .pyi file."""
    found = {}
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.pyi")]):
        words = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path
    return found


def base_of(module: str, path: pathlib.Path, node: ast.ImportFrom) -> str:
    """The absolute name of what is behind `from`."""
    if not node.level:
        return node.module or ""
    words = module.split(".")
    up = node.level - (path.stem == "__init__")  # the name of a package is its own folder
    return ".".join([*words[: len(words) - up], *filter(None, [node.module])])


def imported_names(module: str, path: pathlib.Path) -> list[tuple[str, int]]:
    """(absolute name, line) of everything that a file imports; a name may be that of a function."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = base_of(module, path, node)
            found += [(f"{base}.{alias.name}", node.lineno) for alias in node.names]
    return found


def imports_of(modules: dict[str, pathlib.Path]) -> Imports:
    """What each module imports of the others."""
    found: Imports = {module: {} for module in modules}
    for module, path in modules.items():
        for name, line in imported_names(module, path):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                found[module].setdefault(target, f"{path}:{line}")
    return found


def circle_in(imports: Imports) -> list[str]:
    """The modules of one circle, each of which imports the next one; empty if there is none."""
    left = dict(imports)
    while ends := [module for module, targets in left.items() if not targets.keys() & left.keys()]:
        for module in ends:
            del left[module]
    if not left:
        return []
    walk = [min(left)]
    while (following := min(left[walk[-1]].keys() & left.keys())) not in walk:
        walk.append(following)
    return walk[walk.index(following) :]


def problems(imports: Imports) -> list[str]:
    """A line for each circle, and one for each import in it."""
    found = []
    while circle := circle_in(imports):
        found.append(f"import circle: {' -> '.join([*circle, circle[0]])}")
        for module, target in zip(circle, [*circle[1:], circle[0]]):
            found.append(f"  {imports[module][target]}: imports {target}")
        del imports[circle[-1]][circle[0]]  # the next circle is another one
    return found


def main() -> int:
    """The exit status."""
    package = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE
    imports = imports_of(modules_of(package))
    found = problems(imports)
    print("\n".join(found) if found else f"Python imports: {len(imports)} modules, no circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
