"""What a run has measured, as the plain dictionary that docs/benchmarks/collectives/results.json holds.

    experiments: [{name, title, limit, entrants: [{name, ours, commands, problems, cells}]}]
    problems:    [{problem, command}]
    cells:       {"1048576": {"best": [one per round], "p50": [...], "wrong": 0}}   microseconds

A cell is a size in bytes, the form in which a model's gradients were exchanged, or a training program.
The best of an entrant is its best over all rounds, its median the median of the rounds' medians.
"""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

Entry = dict[str, Any]


def new_experiment(name: str, title: str, limit: Entry | None, entrants: list[Entry]) -> Entry:
    """An experiment that has measured nothing yet."""
    return {"name": name, "title": title, "limit": limit, "entrants": entrants}


def new_entrant(name: str, ours: bool, commands: list[str]) -> Entry:
    """An entrant that has measured nothing yet."""
    return {"name": name, "ours": ours, "commands": commands, "problems": [], "cells": {}}


def add_row(entrant: Entry, cell: str, row: Entry) -> None:
    """Adds what one round has measured for a cell."""
    kept = entrant["cells"].setdefault(cell, {"best": [], "p50": [], "wrong": 0})
    kept["best"].append(float(row["time"]))
    kept["p50"].append(float(row.get("time_p50", row["time"])))
    kept["wrong"] += int(row.get("#wrong", 0) or 0)


def add_problem(entrant: Entry, problem: str, command: str) -> None:
    """Remembers what went wrong, with the first command it went wrong in."""
    if all(known["problem"] != problem for known in entrant["problems"]):
        entrant["problems"].append({"problem": problem, "command": command})


def parse_rows(text: str) -> list[Entry]:
    """The JSON array a program printed, wherever it begins; the rows that were complete when it was
    ended early. Raises ValueError when there is none."""
    begin = re.search(r"\[\s*\{", text)
    if begin is None:
        raise ValueError("no array of rows")
    body = text[begin.start() :]
    end = body.rfind("}")
    decoded, _ = json.JSONDecoder().raw_decode(body[: end + 1] + "]")
    return decoded


def best_us(entrant: Entry, cell: str) -> float | None:
    """Best time of a cell over all rounds; None when it was not measured or came out wrong."""
    kept = entrant["cells"].get(cell)
    return min(kept["best"]) if kept and kept["best"] and not kept["wrong"] else None


def median_us(entrant: Entry, cell: str) -> float | None:
    """Median of a cell over all rounds; None as above."""
    kept = entrant["cells"].get(cell)
    return statistics.median(kept["p50"]) if kept and kept["p50"] and not kept["wrong"] else None


def find_experiment(results: Entry, name: str) -> Entry | None:
    """By its name."""
    return next((e for e in results["experiments"] if e["name"] == name), None)


def find_entrant(experiment: Entry, name: str) -> Entry | None:
    """By its name."""
    return next((e for e in experiment["entrants"] if e["name"] == name), None)


def all_cells(experiment: Entry) -> list[str]:
    """Every cell that any entrant has, sizes in ascending order, then names as they came."""
    found = dict.fromkeys(cell for entrant in experiment["entrants"] for cell in entrant["cells"])
    return sorted(found, key=lambda cell: (0, int(cell)) if cell.isdigit() else (1, 0))
