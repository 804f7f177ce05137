"""Several jobs of one training program, whose ranks are forked from a process that has imported torch:

    python forked_ranks.py PLAN PROGRAM [OPTION...]

PLAN is a file of JSON, {job: [{variable: value}, ...]}: each job's ranks by what is in their environment. The
jobs run one after the other. The last line is {job: what its rank 0 said last}; where a rank fails, what all
said, and the status 1. In an emulated processor torch takes half a minute to import, and here every rank would.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import tempfile
import traceback

import torch


def run_rank(main, variables: dict[str, str], said: pathlib.Path) -> None:
    """In a child of its own; never returns."""
    status = 1
    try:
        with said.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.environ.update(variables)
        main()
        status = 0
    except SystemExit as end:
        print(end, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_job(main, ranks: list[dict[str, str]], folder: pathlib.Path) -> str:
    """The last line of rank 0. A rank whose peer has died ends by itself, with a named error."""
    files = [folder / str(number) for number in range(len(ranks))]
    children = []
    for variables, said in zip(ranks, files):
        child = os.fork()
        if child == 0:
            run_rank(main, variables, said)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    texts = [said.read_text() for said in files]
    if any(statuses):
        sys.exit(f"ranks ended with {statuses}:\n" + "\n".join(text[-700:] for text in texts))
    return texts[0].strip().splitlines()[-1]


def main() -> None:
    """The command line above."""
    plan, program = map(pathlib.Path, sys.argv[1:3])
    sys.path.insert(0, str(program.parent))
    module = importlib.import_module(program.stem)
    importlib.import_module("gradbus.torch")
    torch.set_num_threads(1)
    sys.argv[:] = [str(program), *sys.argv[3:]]
    with tempfile.TemporaryDirectory(prefix="gradbus-ranks-") as folder:
        jobs = json.loads(plan.read_text())
        print(json.dumps({job: run_job(module.main, ranks, pathlib.Path(folder)) for job, ranks in jobs.items()}))


if __name__ == "__main__":
    main()
