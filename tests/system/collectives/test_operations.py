"""Operations on real daemons that need no Python in the ranks: order, numbers in flight, latency of waiting."""

import re

import pytest
import rig as rigs


@pytest.fixture(scope="module", params=[1, 2], ids=["one-agent", "two-agents"])
def rig(request):
    """Both the path inside a node and the one between nodes."""
    with rigs.cluster(request.param) as running:
        yield running


def run(rig, size, *steps):
    outcomes = [rank.finish() for rank in rig.start_job(size, *steps)]
    assert [status for status, _ in outcomes] == [0] * size, outcomes
    return outcomes


@pytest.mark.parametrize("size", [2, 3, 4])
def test_operations_of_one_name_keep_their_order(rig, size):
    run(rig, size, "queue:g", "queue:g", "queue:h")


def test_a_job_starts_again_at_once(rig):
    """Former ranks have ended, but the coordinator may not have heard of all of them when the first new one asks."""
    for size in (4, 2, 3, 2, 4, 4, 2, 3) * 2:
        run(rig, size, "barrier")


def test_more_tensors_in_flight_than_a_ring_holds(rig):
    run(rig, 2, "flood:3000", "barrier")


def test_a_wait_is_woken_and_does_not_sleep_out_its_slice(rig):
    """A wake-up that is lost costs a whole sleep slice of 50 ms; half of that is far above any real wait.

    A machine that is busy with other things may spoil a try, lost wake-ups spoil all of them.
    """
    medians = []
    for _ in range(10):
        outputs = [out for _, out in run(rig, 2, "gathers:41")]
        medians.append(max(int(re.search(r"median_us (\d+)", out).group(1)) for out in outputs))
        if medians[-1] < 25_000:
            return
    pytest.fail(f"medians in us: {medians}")


def test_every_collective_with_nothing_and_with_one_element(rig):
    run(rig, 4, "red:a:0:f32:sum", "red:b:1:i64:sum", "bcast:c:0:3", "bcast:d:1:2", "barrier", "gathers:5")
