"""python -m bench: measures and writes; scripts/bench.sh installs what it needs and starts it."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time

from bench import costs, entrants, experiments, facts, models, process, report
from bench.campaign import Campaign, Clock, say
from bench.results import Entry

ROUNDS_MAX = 5
COST_SECONDS = 130  # kept back for the costs at the end


def parse_arguments() -> argparse.Namespace:
    """The options; scripts/bench.sh passes them on."""
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description="Measures Gradbus beside its peers.")
    parser.add_argument("--quick", action="store_true", help="a subset in 3 minutes, without Horovod and training")
    parser.add_argument("--without-horovod", action="store_true", help="do not build and measure Horovod")
    parser.add_argument("--minutes", type=float,
                        help="time for measuring (default: 3 with --quick, else what is left of half an hour)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"),
                        help="folder to write into")
    arguments = parser.parse_args()
    if arguments.minutes is None:
        arguments.minutes = 3.0 if arguments.quick else float(os.environ.get("BENCH_MINUTES", "18"))
    if arguments.minutes <= 0:
        parser.error("--minutes must be above 0")
    return arguments


def write_model_counts() -> None:
    """The files the peers read their tensors' sizes from."""
    entrants.PEERS.mkdir(parents=True, exist_ok=True)
    for name, counts in models.MODELS.items():
        (entrants.PEERS / f"{name}.counts").write_text("\n".join(map(str, counts())) + "\n")


def measure_rates(rates: Entry, clock: Clock) -> None:
    """What the limits come from, measured before and after everything else: the best counts, because a
    limit is what can be reached."""
    rates["machine"] = facts.best_rates(rates.get("machine", {}), facts.machine_rates())
    measure_tcp(rates, clock)


def measure_tcp(rates: Entry, clock: Clock) -> None:
    """Adds what iperf3 moves."""
    try:
        rates["iperf3_bidir_gbs"] = max(facts.iperf_bidir_gbs(clock), rates.get("iperf3_bidir_gbs", 0.0))
    except (RuntimeError, ValueError, KeyError) as error:
        rates["iperf3_problem"] = str(error)


def measure_costs(choice: experiments.Choice, clock: Clock) -> tuple[list[Entry], Entry]:
    """(CPU seconds per GB, the idle agent)."""
    say("CPU seconds per GB, and the idle agent")
    peers = [entrants.OPENMPI, *([] if choice.quick else [entrants.OPENMPI_TCP, entrants.MPICH]), entrants.GLOO]
    found = costs.transfer_costs(peers, clock)
    return found, costs.idle_costs(2.0 if choice.quick else costs.IDLE_SECONDS)


def measure(arguments: argparse.Namespace) -> Entry:
    """Everything, as one dictionary."""
    choice = experiments.Choice(arguments.quick, not (arguments.quick or arguments.without_horovod))
    began = time.monotonic()
    kept_back = 25 if arguments.quick else COST_SECONDS
    clock = Clock(max(arguments.minutes * 60 - kept_back, 30))
    found = {"machine": facts.machine(), "versions": facts.versions(choice.horovod), "date": facts.now(),
             "commit": facts.commit(), "command": " ".join(["scripts/bench.sh", *sys.argv[1:]])}
    say(f"{found['machine']['processor']}, {found['machine']['cores']} cores; {arguments.minutes:g} minutes")
    rates: Entry = {}
    measure_rates(rates, clock)
    runs = Campaign(experiments.all_experiments(choice), clock)
    runs.run(1 if arguments.quick else ROUNDS_MAX)
    cost_clock = Clock(kept_back)
    found["costs"], found["idle"] = measure_costs(choice, cost_clock)
    measure_rates(rates, cost_clock)
    return {**found, "rates": rates, "experiments": runs.measured, "minutes": (time.monotonic() - began) / 60}


def main() -> int:
    """0 when the report is written."""
    arguments = parse_arguments()
    out = arguments.out.resolve()
    os.chdir(entrants.REPOSITORY)
    process.become_reaper()
    process.interrupt_on_terminate()
    try:
        write_model_counts()
        measured = measure(arguments)
    except KeyboardInterrupt:
        say("stopped: nothing was written")
        return 130
    path = report.write(measured, out)
    (out / report.PICTURES / "results.json").write_text(json.dumps(measured, indent=1) + "\n")
    say(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
