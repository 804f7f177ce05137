"""Counts the lines of each front end of the Python package, for docs/reference/front-ends.md.

    python3 scripts/front_ends.py        prints the table
"""

from __future__ import annotations

import ast
import io
import pathlib
import tokenize

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "client_lib/python/gradbus"
# Folders and files of each. What is in none of them is shared by all.
FRONT_ENDS = {
    "PyTorch: optimizer, modes, schedules": ["torch"],
    "PyTorch: torch.distributed": ["torch/distributed"],
    "PyTorch: communication hook of DDP": ["torch/_comm_hook"],
    "JAX": ["jax"],
    "TensorFlow": ["tensorflow"],
    "Keras": ["keras"],
    "MXNet": ["mxnet"],
    "Ray Train": ["ray"],
    "Loggers": ["loggers"],
    "mpi4py": ["_mpi.py"],
    "Horovod: all frameworks": ["horovod"],
    "Horovod: PyTorch": ["horovod/torch"],
    "Horovod: TensorFlow": ["horovod/tensorflow"],
    "Horovod: Keras": ["horovod/keras", "horovod/tensorflow/keras"],
    "Horovod: MXNet": ["horovod/mxnet"],
}
SHARED = "shared by all"
EXCHANGE = "of it, the exchange of gradients for all but PyTorch"


def owner(file: pathlib.Path) -> str:
    """The front end that names the deepest folder of the file."""
    path = file.relative_to(PACKAGE).as_posix()
    found = [
        (len(prefix), name)
        for name, prefixes in FRONT_ENDS.items()
        for prefix in prefixes
        if path == prefix or path.startswith(prefix + "/")
    ]
    return max(found, default=(0, SHARED))[1]


def parts() -> dict[str, list[pathlib.Path]]:
    """The files of each front end, and what all share."""
    given: dict[str, list[pathlib.Path]] = {name: [] for name in (*FRONT_ENDS, SHARED)}
    for file in sorted(PACKAGE.rglob("*.py")):
        given[owner(file)].append(file)
    return {**given, EXCHANGE: [PACKAGE / "_gradients.py", PACKAGE / "_layout.py"]}


def docstring_lines(text: str) -> set[int]:
    """Numbers of the lines of all docstrings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
        if documented:
            lines |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def code_lines(text: str) -> int:
    """Lines that have something else than comments and docstrings."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def rows() -> list[list[str]]:
    """(front end, files, lines, lines of code)."""
    found = []
    for name, files in parts().items():
        texts = [file.read_text(encoding="utf-8") for file in files]
        counts = len(texts), sum(text.count("\n") for text in texts), sum(map(code_lines, texts))
        found.append([name, *(f"{count:,}" for count in counts)])
    return found


def front_ends_page() -> str:
    """The page."""
    text = (
        "A front end adapts a framework to what all of them share: sessions, operations, buckets, policies and errors. "
        "It is more than one file: it calls operations in the framework's own way, wraps its optimizers, and steps on "
        "shards with them. MXNet, the smallest framework, has three files. JAX has more than twice as many, because "
        "its exchange is a part of compiled programs. Lines of code are those without comments, docstrings and blank "
        "lines. Most of a small one is its list of names."
    )
    head = "| front end | files | lines | lines of code |\n| --- | --- | --- | --- |\n"
    body = "".join(f"| {' | '.join(row)} |\n" for row in rows())
    return f"# Front ends\n\n{text}\n\n{head}{body}"


if __name__ == "__main__":
    print(front_ends_page(), end="")
