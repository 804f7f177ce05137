"""Finds the public names of a Python package with their signatures and docstrings, without importing it."""

from __future__ import annotations

import ast
import pathlib
import re
from typing import Union

Node = Union[ast.FunctionDef, ast.ClassDef, ast.Assign]


def module_file(package: pathlib.Path, name: str) -> pathlib.Path:
    """The file of a module of the package, such as _ops or torch."""
    path = package.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def definitions(path: pathlib.Path) -> dict[str, Node]:
    """What a file defines at its top."""
    found: dict[str, Node] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
    return found


def exported(package: pathlib.Path, module: str) -> dict[str, Node]:
    """{name: definition} of what a module imports from its own folder, and of what it defines."""
    path = module_file(package, module) if module else package / "__init__.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {name: node for name, node in definitions(path).items() if not name.startswith("_")}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            known = definitions(module_file(path.parent, node.module))
            found |= {alias.name: known[alias.name] for alias in node.names if alias.name in known}
    return {name: node for name, node in sorted(found.items(), key=lambda pair: pair[0].lower()) if name[0] != "_"}


def docstring_text(node: ast.AST) -> str:
    """As Markdown: `code`, and a list of the arguments."""
    text = (ast.get_docstring(node) or "").replace("``", "`")  # type: ignore[arg-type]
    arguments = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    if arguments:
        listed = re.sub(r"(?m)^        ", "  ", arguments[1])
        listed = re.sub(r"(?m)^    (\*{0,2}\w+):", r"- `\1`:", listed)
        text = text[: arguments.start()] + "Arguments:\n\n" + listed + text[arguments.end() :]
    return re.sub(r"[<](?=\w)", "&lt;", text).strip()


def signature(name: str, node: ast.FunctionDef) -> str:
    """name(arguments) -> result, an argument in a line when there are many."""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = [part for part in _arguments(node.args) if part not in ("self", "cls")]
    line = f"{name}({', '.join(arguments)}){result}"
    if len(line) <= 100:
        return line
    return f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){result}"


def _arguments(args: ast.arguments) -> list[str]:
    plain = args.posonlyargs + args.args
    defaults = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    found = [_argument(arg, default) for arg, default in zip(plain, defaults)]
    if args.vararg:
        found.append("*" + _argument(args.vararg, None))
    elif args.kwonlyargs:
        found.append("*")
    found += [_argument(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults)]
    return found + (["**" + args.kwarg.arg] if args.kwarg else [])


def _argument(arg: ast.arg, default: ast.expr | None) -> str:
    text = arg.arg + (f": {ast.unparse(arg.annotation)}" if arg.annotation else "")
    return text + (f" = {ast.unparse(default)}" if default else "")


def class_text(name: str, node: ast.ClassDef) -> str:
    """Its docstring, then its public methods."""
    text = f"### {name}\n\n{docstring_text(node)}\n\n"
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name[0] != "_" and ast.get_docstring(member):
            decorators = {ast.unparse(decorator) for decorator in member.decorator_list}
            shown = member.name if "property" in decorators else signature(member.name, member)
            text += f"#### {name}.{member.name}\n\n```python\n{shown}\n```\n\n{docstring_text(member)}\n\n"
    return text


def names_text(names: dict[str, Node]) -> str:
    """All names of a module."""
    text = ""
    for name, node in names.items():
        if isinstance(node, ast.ClassDef):
            text += class_text(name, node)
        elif isinstance(node, ast.FunctionDef):
            text += f"### {name}\n\n```python\n{signature(name, node)}\n```\n\n{docstring_text(node)}\n\n"
    return text


def module_text(package: pathlib.Path, module: str) -> str:
    """The docstring of a module, its example as code."""
    path = module_file(package, module) if module else package / "__init__.py"
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").replace("``", "`")
    return re.sub(r"[<](?=\w)", "&lt;", text)


def python_page(package: pathlib.Path) -> str:
    """The page of the package, of gradbus.torch, gradbus.elastic and gradbus.horovod.torch."""
    text = "# Python\n"
    modules = ["", "torch", "elastic", "horovod.torch", "jax", "tensorflow", "keras", "mxnet", "ray"]
    for title, module in (("gradbus" + f".{name}" * bool(name), name) for name in modules):
        names = exported(package, module)
        text += f"\n## {title}\n\n{module_text(package, module)}\n\n{names_text(names)}"
    return text
