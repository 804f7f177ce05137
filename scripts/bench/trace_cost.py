#!/usr/bin/env python3
"""Measures what a trace costs a job: step time while it is traced divided by step time while it is not.

    .venv/bin/python scripts/bench/trace_cost.py [--pairs 40] [--seconds 1.5] [--stop-recorder]

Two ranks on two agents train a model of 1.1 M parameters. Short windows with and without a trace alternate in one run
(without, with, with, without, ...), so slow changes of the machine do not count. Each pair of windows gives one ratio.
The interval of their median has 95 % confidence: its ends are order statistics. With --stop-recorder the tool that
writes the file stands still in each window, so only ranks, agents and coordinator work. Needs the release build.
"""

from __future__ import annotations

import argparse
import bisect
import math
import pathlib
import signal
import statistics
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/system"))

JOB = "traced"
SETTLE_S = 0.7  # from the start of the tool until every agent traces


def rank(file: str) -> None:
    """Steps until it is ended; (end, length) of each goes to `file`."""
    import gradbus.torch as gradbus
    import torch

    gradbus.init()
    torch.manual_seed(gradbus.rank())
    model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(12)])
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1e-4), model.named_parameters())
    x = torch.randn(32, 300)
    with open(file, "w", buffering=1 << 12) as log:
        while True:
            begin = time.monotonic()
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            end = time.monotonic()
            log.write(f"{end} {end - begin}\n")


def window(seconds: float, command: list[str] | None, stop: bool) -> tuple[float, float]:
    """Its begin and end; traced if there is a command."""
    tool = None if command is None else subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(SETTLE_S)
    if tool is not None and stop:
        tool.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    if tool is not None:
        if stop:
            tool.send_signal(signal.SIGCONT)
        _, said = tool.communicate(timeout=30)
        assert tool.returncode == 0, said
    return begin, end


def median_interval(values: list[float]) -> tuple[float, float]:
    """Of the median, with a confidence of at least 95 %: order statistics of the binomial distribution."""
    ordered, n = sorted(values), len(values)
    below, number = 0.0, 0
    while number < n // 2 and below + math.comb(n, number) / 2**n <= 0.025:
        below += math.comb(n, number) / 2**n
        number += 1
    return ordered[max(number - 1, 0)], ordered[min(n - number, n - 1)]


def mean_step(steps: list[tuple[float, float]], ends: list[float], span: tuple[float, float]) -> float:
    """Of the steps that began and ended in the window."""
    first, last = bisect.bisect_left(ends, span[0]), bisect.bisect_right(ends, span[1])
    return statistics.mean(length for end, length in steps[first:last] if end - length >= span[0])


def measure(rig, options: argparse.Namespace) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """(window without, window with) of each pair."""
    pairs = []
    command = [str(REPOSITORY / "build/release/bin/gradbus"), "trace", JOB, "--seconds", str(options.seconds + 0.3),
               "-o", str(rig.folder / "trace.json"), "--coordinator", rig.server.ready["address"]]  # fmt: skip
    for number in range(options.pairs):
        order = (False, True) if number % 2 == 0 else (True, False)
        found = {on: window(options.seconds, command if on else None, options.stop_recorder) for on in order}
        pairs.append((found[False], found[True]))
    return pairs


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description="Measures what a trace costs a job.")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--stop-recorder", action="store_true")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank(options.rank)
    import rig as rigs

    with rigs.cluster(2) as rig:
        files = [rig.folder / f"steps-{number}" for number in range(2)]
        ranks = [rig.start_rank(number, 2, program=[sys.executable, __file__, "--rank", str(file)], job=JOB,
                                env={"OMP_NUM_THREADS": "1"}) for number, file in enumerate(files)]  # fmt: skip
        rigs.wait_until(lambda: files[0].exists() and files[0].stat().st_size > 1000, what="steps")
        pairs = measure(rig, options)
        assert all(one.process.poll() is None for one in ranks), "the job has ended"
        time.sleep(1)  # the last lines
        steps = [tuple(map(float, line.split())) for line in files[0].read_text().splitlines()[:-1]]
    ends = [end for end, _ in steps]
    times = [(mean_step(steps, ends, off), mean_step(steps, ends, on)) for off, on in pairs]
    ratios = [on / off for off, on in times]
    low, high = median_interval(ratios)
    step_ms = 1e3 * statistics.median(off for off, _ in times)
    print(f"{len(ratios)} pairs of {options.seconds} s, step {step_ms:.2f} ms: "
          f"ratio {statistics.median(ratios):.4f}, 95 % interval {low:.4f} to {high:.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
