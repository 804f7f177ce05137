"""The page: time by link speed, where compression stops to pay, layers against merged gradients."""

from __future__ import annotations

import math
from typing import Any

from compressed.cases import DENSE, MERGED, Case

Results = dict[str, Any]


def time_ms(results: Results, case: Case) -> float | None:
    """The median; None where it was not measured."""
    found = results["cases"].get(case.key)
    return found["ms"] if found else None


def links_of(results: Results) -> list[float]:
    """Speeds that were measured, in Gbit/s, ascending."""
    keys = [key.split() for key in results["cases"] if key.startswith("links ")]
    return sorted({float(words[2].removesuffix("gbit")) for words in keys})


def codecs_of(results: Results, experiment: str) -> list[str]:
    """In the order in which they ran."""
    return list(dict.fromkeys(key.split()[1] for key in results["cases"] if key.startswith(experiment)))


def break_even(results: Results, codec: str) -> str:
    """The link speed at which compressed and dense take the same time, between two measured ones."""
    links = links_of(results)
    gains = []
    for gbit in links:
        dense = time_ms(results, Case("links", DENSE, gbit))
        coded = time_ms(results, Case("links", codec, gbit))
        if dense is None or coded is None:
            return ""
        gains.append(math.log(dense / coded))
    for low, high, gain, less in zip(links, links[1:], gains, gains[1:]):
        if gain > 0 >= less:
            part = gain / (gain - less)
            return f"{math.exp(math.log(low) + part * math.log(high / low)):.1f} Gbit/s"
    return f"above {links[-1]:g} Gbit/s" if gains[-1] > 0 else f"below {links[0]:g} Gbit/s"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(value: float | None, dense: float | None) -> str:
    """Milliseconds and what part of dense that is."""
    if value is None:
        return ""
    times = f" ({value / dense:.2f})" if dense else ""
    return f"{value:.0f}{times}"


def links_table(results: Results) -> str:
    """Codecs down, link speeds across."""
    links = links_of(results)
    rows = []
    for codec in codecs_of(results, "links"):
        cells = []
        for gbit in links:
            dense = time_ms(results, Case("links", DENSE, gbit)) if codec != DENSE else None
            cells.append(cell(time_ms(results, Case("links", codec, gbit)), dense))
        rows.append([f"`{codec}`", *cells, "" if codec == DENSE else break_even(results, codec)])
    return table(["codec", *(f"{gbit:g} Gbit/s" for gbit in links), "pays up to"], rows)


def models_table(results: Results) -> str:
    """Codecs down; for each model layer by layer, merged, and the ratio."""
    models = list(dict.fromkeys(key.split()[3] for key in results["cases"] if key.startswith("models ")))
    rows = []
    for codec in codecs_of(results, "models"):
        row = [f"`{codec}`"]
        for model in models:
            layers, merged = (time_ms(results, Case("models", codec, 1.0, model, how)) for how in (False, True))
            ratio = f"{layers / merged:.2f}" if layers and merged else ""
            row += [cell(layers, None), cell(merged, None), ratio]
        rows.append(row)
    head = ["codec"]
    for model in models:
        head += [f"{model}: layers", "merged", "ratio"]
    return table(head, rows)


def page(results: Results) -> str:
    """docs/benchmarks/compression.md."""
    machine = results["machine"]
    cores = machine["cores"]
    return f"""# Compressed exchanges on links of known speed

`scripts/compressed.sh` wrote this page on {results["date"]}. Machine: {machine["processor"]}, {cores} cores
({machine["caches"]}), Linux {machine["kernel"]}.

Two agents with one rank each run on one machine. A simulated network of the given speed joins them
(`gradbus bench all_reduce --link`). Both agents share the machine's {cores} cores; each uses one of them for its codec.
Times are milliseconds, the median of three exchanges. They include the local sum, encoding and decoding.
The number in brackets is the share of the dense time.

## By link speed
The tensor is the gradient of ResNet-50 (25,557,032 elements, 97.5 MiB). "Pays up to" is the link speed at which the
codec takes as long as the dense exchange. It is interpolated between measured speeds.

{links_table(results)}
![Time against link speed](compression/links.svg)

## Layer by layer, or merged
MergeComp (Wang et al. 2021) found that a codec per layer can cost more than it saves, because every call has a price.
This table shows all gradients of a step at 1 Gbit/s. "Layers" exchanges each tensor alone; "merged" joins tensors to
buckets of up to {MERGED}iB. "Ratio" is the gain of merging. A ratio near 1 means that the price of a call is within the
noise, so layers may stay apart.

{models_table(results)}"""
