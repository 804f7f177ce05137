"""What the machine or the link allows for an exchange: the line every figure stands beside.

Three kinds, each from a rate of the same run:
    memory  `traffic` bytes of streaming reads and writes per byte of gradient, at the rate that
            `gradbus bench machine` measured for two reads and two writes; two one-way signals at least
    tcp     each direction carries the gradient once (two agents), at what `iperf3 --bidir` moved
    link    a rank sends 2(n-1)/n of the gradient at the limited rate
"""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]

# Of the 9014 bytes that a full jumbo frame of `--link` is counted as, what is payload with IPv4 and TCP
# timestamps.
TCP_PAYLOAD_SHARE = 8948 / 9014


def memory_limit(traffic: float) -> Entry:
    """For an experiment in shared memory."""
    return {"kind": "memory", "traffic": traffic}


def tcp_limit() -> Entry:
    """For two agents over loopback."""
    return {"kind": "tcp"}


def link_limit(ranks: int, gbit: float) -> Entry:
    """For so many agents over a link of so many Gbit/s."""
    return {"kind": "link", "ranks": ranks, "gbit": gbit}


def of_all_cores(machine: Entry, name: str) -> float | None:
    """A figure of `gradbus bench machine`; rates are [on one core, on all]."""
    value = machine.get(name)
    if isinstance(value, list):
        value = value[-1] if value else None
    return float(value) if value else None


def memory_us(limit: Entry, size: int, machine: Entry) -> float | None:
    """Microseconds."""
    rate = of_all_cores(machine, "mix_2r2w_gbs")
    if rate is None:
        return None
    signals_us = 2 * (of_all_cores(machine, "queue_one_way_ns") or 0.0) / 1e3
    return max(limit["traffic"] * size / (rate * 1e3), signals_us)


def link_us(limit: Entry, size: int) -> float:
    """Microseconds at the raw line rate, as if there were no headers."""
    sent = 2 * (limit["ranks"] - 1) / limit["ranks"] * size
    return sent * 8 / (limit["gbit"] * 1e3)


def limit_us(experiment: Entry, size: int, rates: Entry) -> float | None:
    """The least time an exchange of `size` bytes can take; None when the rate was not measured."""
    limit = experiment.get("limit")
    if not limit:
        return None
    if limit["kind"] == "memory":
        return memory_us(limit, size, rates.get("machine") or {})
    if limit["kind"] == "tcp":
        both_ways = rates.get("iperf3_bidir_gbs")
        return 2 * size / (both_ways * 1e3) if both_ways else None
    return link_us(limit, size)
