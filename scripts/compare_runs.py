"""Compares two runs of examples/digits: `four` (several ranks) with `one` (a single process).

Usage: compare_runs.py DIR, where DIR holds four.json, four.npz, one.json and one.npz. Exit status 1
when a promise does not hold.
"""

import json
import pathlib
import sys

import numpy as np


def last_json(path: pathlib.Path) -> dict:
    """The JSON object in the last line of a run's output."""
    return json.loads(path.read_text().strip().splitlines()[-1])


def relative_difference(left: pathlib.Path, right: pathlib.Path) -> float:
    """Largest |a - b| over all parameters, relative to each parameter's largest |b|."""
    a, b = np.load(left), np.load(right)
    assert sorted(a.files) == sorted(b.files), "the runs have other parameters"
    return max(float(np.abs(a[n] - b[n]).max() / max(np.abs(b[n]).max(), 1e-30)) for n in a.files)


def main() -> int:
    """Prints a line per promise; 0 when all hold."""
    folder = pathlib.Path(sys.argv[1])
    run = last_json(folder / "four.json")
    difference = relative_difference(folder / "four.npz", folder / "one.npz")
    promises = [
        (f"test accuracy {run['accuracy']:.4f} >= 0.96", run["accuracy"] >= 0.96),
        (f"{run['world_size']} ranks end with bit-identical parameters", run["ranks_identical"]),
        (f"largest relative difference to one process {difference:.1e} <= 1e-5", difference <= 1e-5),
    ]
    for text, holds in promises:
        print(("ok    " if holds else "FAILS ") + text)
    return 0 if all(holds for _, holds in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
