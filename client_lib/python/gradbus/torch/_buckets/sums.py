"""Sums over all ranks that stay in ``.grad`` after the step, with op=Sum.

A step without a new backward pass exchanges ``.grad`` once more. Of a mean that brings the same mean. Of a sum it would
bring as many times the sum as there are ranks, so each rank then gives its part of what nobody has changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from .gradient_buckets import Bucket


def note_sum(bucket: Bucket) -> None:
    """What is in ``.grad`` now counts as the sum, though it may have been clipped."""
    bucket.arrivals.none_since_sum = True
    for slot in bucket.slots:
        slot.note()


def unchanged_sums(buckets: Iterable[Bucket]) -> set[int]:
    """Parameters, by id(), whose ``.grad`` is what the last exchange brought."""
    noted = [bucket for bucket in buckets if bucket.arrivals.none_since_sum]
    return {id(slot.parameter) for bucket in noted for slot in bucket.slots if slot.is_as_noted()}


def note_sums_of(buckets: Iterable[Bucket], parameters: set[int]) -> None:
    """As note_sum(), of these parameters alone: other buckets have exchanged them."""
    for bucket in buckets if parameters else ():
        for slot in bucket.slots:
            if id(slot.parameter) in parameters:
                bucket.arrivals.none_since_sum = True
                slot.note()


def share_sum(bucket: Bucket, ranks: int) -> None:
    """Before a sum is exchanged once more."""
    for slot in bucket.slots:
        if slot.is_as_noted() and slot.parameter.grad is not None:
            slot.parameter.grad.div_(ranks)
    bucket.arrivals.none_since_sum = False


def holds_unchanged_sum(bucket: Bucket) -> bool:
    """A parameter still has what the last exchange brought, and it is not zero."""
    return bucket.arrivals.none_since_sum and any(
        slot.is_as_noted() and slot.parameter.grad is not None and bool(slot.parameter.grad.any())
        for slot in bucket.slots
    )
