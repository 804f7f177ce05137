"""What `gradbus run` starts: a rank that does one training after the other in one job.

    gradbus run -np 4 --agents 4 -- python scripts/accuracy/rank.py PLAN.json

The plan is a list of {program, words, compression}. Rank 0 prints a JSON line after each training. One job instead of
many saves starting Python and PyTorch on every rank; each training registers gradients of its own, so nothing of one
codec's residual reaches the next.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
from types import ModuleType
from typing import Any


def load(program: str) -> ModuleType:
    """An example's train.py, as a module."""
    path = pathlib.Path(program).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_train", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """One rank."""
    plan: list[dict[str, Any]] = json.loads(pathlib.Path(sys.argv[1]).read_text())
    programs = {program: load(program) for program in sorted({one["program"] for one in plan})}
    backend: Any = None
    for one in plan:
        module = programs[one["program"]]
        arguments = module.parse_arguments(one["words"])
        backend = backend or module.backends.connect(arguments)
        backend.compression = one["compression"]
        result = module.run(backend, arguments)
        if backend.rank == 0:
            print(json.dumps(result), flush=True)
    backend.close()


if __name__ == "__main__":
    main()
