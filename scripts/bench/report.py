"""Writes docs/benchmarks/collectives.md: the promises, then every experiment with its table and picture."""

from __future__ import annotations

import pathlib
import statistics

from bench import limits, lines, plot, results
from bench.lines import Verdict
from bench.results import Entry
from bench.units import cell_text, ratio_text, share_text, size_text, time_text

PICTURES = "collectives"  # beside the report


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table; error lines have bars of their own."""
    every = (header, ["---"] * len(header), *rows)
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in every]


def introduction(measured: Entry) -> list[str]:
    """Where, when, what, and how to read it."""
    machine, versions = measured["machine"], measured["versions"]
    return [
        "# Benchmarks", "",
        f"Written by `{measured['command']}` on {measured['date']}, commit {measured['commit']}, in "
        f"{measured['minutes']:.0f} minutes. Each experiment has rounds, and every entrant runs once in each round. "
        "Absolute figures differ by 2x between machines of the same size. So compare only figures of one run.", "",
        f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['caches']}, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}, load {machine['load_at_start']} at the start.",
        f"- Peers: {', '.join(f'{name} ({version})' for name, version in versions.items())}.",
        "- Operation: the sum of f32 vectors, in place. Every run checks the results.",
        "- Time: from a barrier to the end of the operation on the slowest rank. Small operations run several times "
        "in a row; the time is divided by their number.",
        "- The tables show the best of all rounds, and the median of the rounds' medians.",
        *rates(measured["rates"]), "",
    ]


def rates(found: Entry) -> list[str]:
    """The measured rates behind the limits."""
    machine, both_ways = found.get("machine") or {}, found.get("iperf3_bidir_gbs")
    mix = limits.of_all_cores(machine, "mix_2r2w_gbs")
    one_way = limits.of_all_cores(machine, "queue_one_way_ns")
    reason = machine.get("problem", "its file has no such rate")
    memory = f"{mix:.1f} GB/s of two reads and two writes on all cores" if mix else f"not measured ({reason})"
    signal = f", {one_way:.0f} ns from core to core" if one_way else ""
    tcp = f"{both_ways:.2f} GB/s both ways" if both_ways else f"not measured ({found.get('iperf3_problem', '')})"
    return [f"- Limits: memory {memory}{signal}; `iperf3 --bidir` over loopback {tcp}."]


def targets(verdict: Verdict) -> str:
    """5x, 80 % of the limit."""
    promise = verdict.promise
    found = [f"{promise.ratio:g}x"] if promise.ratio is not None else []
    return ", ".join(found + ([f"{promise.share:.0%} of the limit"] if promise.share is not None else []))


def verdict_row(verdict: Verdict) -> list[str]:
    """One promise."""
    peer = f"{verdict.peer} {time_text(verdict.peer_us)}" if verdict.peer_us is not None else "-"
    at = f" (worst: {cell_text(verdict.cell)})" if verdict.several else ""
    return [verdict.promise.label + at, time_text(verdict.ours_us), peer, ratio_text(verdict.ratio),
            ratio_text(verdict.ratio_median), targets(verdict), time_text(verdict.limit_us),
            share_text(verdict.share), verdict.words()]


def promises(measured: Entry) -> list[str]:
    """The table everything else explains."""
    verdicts = lines.judge_all(measured)
    judged = [v for v in verdicts if v.known() and v.applies]
    met = sum(v.shortfall() <= 0 for v in judged)
    header = ["what", "Gradbus", "best peer", "ratio", "ratio of medians", "target", "limit", "of limit", "verdict"]
    return ["## What is promised", "",
            f"{met} of {len(judged)} measured promises are met. Not measured, or not applicable: "
            f"{len(verdicts) - len(judged)}. The worst size decides a promise about several sizes.", "",
            f"The limit of a simulated link is its raw line rate. TCP with frames of 9000 bytes can carry "
            f"{limits.TCP_PAYLOAD_SHARE:.1%} of it. The limit of memory is the rate of streams. Data that stays in "
            "the caches can be faster. [What bounds the times](bounds.md) explains each line.", "",
            *table(header, [verdict_row(v) for v in verdicts]), ""]


def figure_text(entrant: Entry, cell: str) -> str:
    """Best and median of a cell, or why there is none."""
    if entrant["cells"].get(cell, {}).get("wrong"):
        return "wrong result"
    best = results.best_us(entrant, cell)
    return "-" if best is None else f"{time_text(best)} ({time_text(results.median_us(entrant, cell))})"


def size_table(experiment: Entry, rates_found: Entry) -> list[str]:
    """A row per size, a column per entrant."""
    entrants = experiment["entrants"]
    rows = [[cell_text(cell), *(figure_text(entrant, cell) for entrant in entrants),
             time_text(limits.limit_us(experiment, int(cell), rates_found))]
            for cell in results.all_cells(experiment)]
    return table(["best (median)", *(entrant["name"] for entrant in entrants), "limit"], rows)


def form_table(experiment: Entry, rates_found: Entry) -> list[str]:
    """A row per entrant and form: peers have several ways to send the same gradients."""
    rows = [[entrant["name"], cell, time_text(results.best_us(entrant, cell)),
             time_text(results.median_us(entrant, cell))]
            for entrant in experiment["entrants"] for cell in entrant["cells"]]
    limit = limits.limit_us(experiment, int(experiment.get("size", 0)), rates_found)
    return [f"{size_text(experiment['size'])}; limit {time_text(limit)}.", "",
            *table(["entrant", "form", "best", "median"], rows)]


def program_table(experiment: Entry) -> list[str]:
    """A row per program and entrant: median step of the best round, and how much of it is waiting."""
    rows = []
    for cell in results.all_cells(experiment):
        for entrant in experiment["entrants"]:
            shares = entrant["cells"].get(cell, {}).get("share", [])
            share = share_text(statistics.median(shares)) if shares else "-"
            rows.append([cell, entrant["name"], figure_text(entrant, cell), share])
    return table(["program", "entrant", "step: best round (median)", "communication"], rows)


def experiment_table(experiment: Entry, rates_found: Entry) -> list[str]:
    """The figures of one experiment."""
    if experiment["kind"] == "sizes":
        return size_table(experiment, rates_found)
    return form_table(experiment, rates_found) if experiment["kind"] == "forms" else program_table(experiment)


def notes(experiment: Entry) -> list[str]:
    """Commands that did not end well, under the table they have a hole in."""
    return [f"- {entrant['name']}: {trouble['problem']} (`{trouble['command']}`)"
            for entrant in experiment["entrants"] for trouble in entrant["problems"]]


def commands(experiment: Entry) -> list[str]:
    """What was run, folded away."""
    found = [f"# {entrant['name']}\n" + "\n".join(entrant["commands"]) for entrant in experiment["entrants"]]
    return ["<details><summary>Commands</summary>", "", "```sh", *found, "```", "", "</details>"]


def section(experiment: Entry, rates_found: Entry, folder: pathlib.Path) -> list[str]:
    """Everything about one experiment; draws its picture."""
    name = f"{experiment['name']}.svg"
    drawn = experiment["kind"] == "sizes" and plot.draw(experiment, rates_found, folder / name)
    picture = [f"![{experiment['title']}: time against size]({PICTURES}/{name})", ""] if drawn else []
    trouble = notes(experiment)
    heading = [f"## {experiment['title']}", ""]
    if not any(entrant["cells"] or entrant["problems"] for entrant in experiment["entrants"]):
        return [*heading, "Not run, because no time was left.", ""]
    rounds = "1 round" if experiment["rounds"] == 1 else f"{experiment['rounds']} rounds"
    return [*heading, f"{rounds}.", "", *picture, *experiment_table(experiment, rates_found), "",
            *trouble, *([""] if trouble else []), *commands(experiment), ""]


def cost_section(measured: Entry) -> list[str]:
    """CPU seconds per GB, and the idle agent."""
    rows = [[cost["name"], f"{cost['cpu_s_per_gb']:.2f}" if "cpu_s_per_gb" in cost else f"- ({cost['problem']})"]
            for cost in measured["costs"]]
    idle = measured["idle"]
    found = ["## Cost", "", "CPU seconds of all processes (ranks, daemons, launchers) per GB (10^9 bytes) of gradient. "
             "Two ranks sum 64 MiB at a time. The figure is the difference of two runs with different numbers of "
             "iterations.", "",
             *table(["entrant", "CPU s per GB"], rows), ""]
    if "problem" in idle:
        return [*found, f"The idle agent was not measured: {idle['problem']}", ""]
    rows = [["no job", share_text(idle["no_job"]), "0.0 %", "met" if idle["no_job"] < 0.0005 else "missed"],
            ["an idle job", share_text(idle["idle_job"]), "under 0.5 %",
             "met" if idle["idle_job"] < 0.005 else "missed"]]
    return [*found, *table(["the agent with", "share of a core", "target", "verdict"], rows), ""]


def write(measured: Entry, docs: pathlib.Path) -> pathlib.Path:
    """Writes collectives.md and its pictures into `docs`; the report's path."""
    folder = docs / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.svg"):  # of experiments that are no more
        old.unlink()
    text = introduction(measured) + promises(measured)
    for experiment in measured["experiments"]:
        text += section(experiment, measured["rates"], folder)
    path = docs / "collectives.md"
    path.write_text("\n".join(text + cost_section(measured)).rstrip() + "\n")
    return path
