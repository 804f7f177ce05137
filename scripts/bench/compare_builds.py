#!/usr/bin/env python3
"""Compares the speed of two builds by turns, so that one can say whether a change made something slower.

    scripts/bench/compare_builds.py OLD/bin NEW/bin [--rounds 8] [--only ROW...] [--json FILE]

Each row is a `gradbus bench`. In each round both builds run it, one after the other, and who begins changes. For each
size the table has new time / old time: of the best rounds, and the median of the rounds with its 95 % interval
(bootstrap). Below 1, the new build is faster. The machine's own noise shows as the interval's width.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

DEADLINE_S = 240
RESAMPLES = 2000
SMALL = ("-b", "4", "-e", "65536", "-f", "128", "-n", "300", "-w", "50")
LARGE = ("-b", "1M", "-e", "64M", "-f", "8", "-n", "20", "-w", "5")
LINK = ("--ranks", "2", "--agents", "2", "--link", "1gbit", "-b", "32M", "-e", "32M", "-n", "3", "-w", "1")
ROWS: dict[str, tuple[str, ...]] = {
    "2 local ranks, small": ("--ranks", "2", *SMALL),
    "2 local ranks, large": ("--ranks", "2", *LARGE),
    "2 local ranks, private buffers, small": ("--ranks", "2", "--private", *SMALL),
    "2 local ranks, private buffers, large": ("--ranks", "2", "--private", *LARGE),
    "4 local ranks, large": ("--ranks", "4", *LARGE),
    "gradients of resnet50": ("--ranks", "2", "--model", "resnet50", "-n", "20", "-w", "5"),
    "2 agents over TCP, small": ("--ranks", "2", "--agents", "2", *SMALL),
    "2 agents over TCP, large": ("--ranks", "2", "--agents", "2", *LARGE),
    "1 Gbit/s": LINK,
    "1 Gbit/s, efsignsgd": (*LINK, "--codec", "efsignsgd"),
    "1 Gbit/s, topk": (*LINK, "--codec", "topk:ratio=0.01"),
    "1 Gbit/s, two shards": (*LINK, "--shards", "2", "--mode", "ps:sync"),
}


def bench(folder: pathlib.Path, words: tuple[str, ...]) -> dict[int, float]:
    """Median microseconds for each size."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [str(folder / "gradbus"), "bench", "all_reduce", *words, "--json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        if done.returncode != 0:
            sys.exit(f"compare_builds.py: {' '.join(command)}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        rows = json.loads(pathlib.Path(file.name).read_text())
    return {int(row["size"]): float(row["time_p50"]) for row in rows}


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % of the medians of resampled rounds."""
    random = np.random.default_rng(1)
    medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def compare(old: pathlib.Path, new: pathlib.Path, words: tuple[str, ...], rounds: int) -> dict[int, list[list[float]]]:
    """For each size the rounds' pairs (old, new)."""
    pairs: dict[int, list[list[float]]] = {}
    for number in range(rounds):
        order = [(0, old), (1, new)]
        times: dict[int, list[float]] = {}
        for place, folder in order if number % 2 == 0 else reversed(order):
            for size, time in bench(folder, words).items():
                times.setdefault(size, [0.0, 0.0])[place] = time
        for size, pair in times.items():
            pairs.setdefault(size, []).append(pair)
    return pairs


def main() -> None:
    """Prints a line for each row and size while it runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=pathlib.Path, help="folder with the programs of the earlier build")
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", nargs="*", metavar="ROW", choices=ROWS)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes all pairs, in microseconds")
    arguments = parser.parse_args()
    print("| row | size | old, best | new / old, best | new / old, median | 95 % |")
    print("|" + " --- |" * 6)
    found = {}
    for name in arguments.only or ROWS:
        found[name] = compare(arguments.old, arguments.new, ROWS[name], arguments.rounds)
        for size, pairs in found[name].items():
            best_old, best_new = (min(pair[place] for pair in pairs) for place in (0, 1))
            ratios = [new / old for old, new in pairs]
            low, high = interval(ratios)
            print(f"| {name} | {size} B | {best_old:.1f} us | {best_new / best_old:.3f} "
                  f"| {statistics.median(ratios):.3f} | {low:.3f} to {high:.3f} |", flush=True)  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
