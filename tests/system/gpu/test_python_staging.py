"""Parameters on a device, for which a test double stands in (ranks/gpu/staging_double.py).

Two ranks on two agents train to the same bits as in host memory, in every mode. Each wait between streams is tested
alone.
"""

import pathlib
import sys
import threading
import time

import pytest
import rig as rigs
from conftest import assert_all_ok, run_ranks

torch = pytest.importorskip("torch")
staging = pytest.importorskip("gradbus.torch._gpu.staging")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "ranks/gpu"))
import staging_double  # noqa: E402
from gradbus.torch._gpu import cuda  # noqa: E402

pytestmark = pytest.mark.timeout(240)
SLOW, FAST = (0.15, 0.15), (0.0, 0.0)  # no margin: what is right does not depend on them
DEADLINE_S = 60


@pytest.fixture(scope="module")
def newest():
    """What torch 1 does differently, the comparisons see."""
    return str(rigs.REPOSITORY / ".venv/bin/python")


@pytest.fixture(scope="module")
def agents_and_shards():
    with rigs.cluster(2, shards=2) as running:
        yield running


# ---- ranks


# A rank takes seconds to import torch, so one job goes through many modes.
MODES = [
    ["sync", "delayed:k=1", "delayed:k=2", "delayed:k=2,dc=0.5", "ps:sync"],
    ["localsgd:H=2", "diloco:H=3", "diloco:H=4,fragments=2,overlap=1", "gossip:every=1,wait=1"],
    [f"{mode}/{codec}" for mode in ("sync", "delayed:k=1", "diloco:H=3") for codec in ("int8", "topk:ratio=0.1")],
]


@pytest.mark.parametrize("modes", MODES, ids=["gradients", "parameters", "compressed"])
def test_every_mode_ends_in_the_same_bits(agents_and_shards, python, modes):
    assert_all_ok(run_ranks(agents_and_shards, python, "gpu/staged.py", 2, "compare", "double", *modes))


def test_what_else_there_is(agents_and_shards, python):
    whats = ["accumulate", "carried", "mixed", "operations", "refused", "scaler"]
    assert_all_ok(run_ranks(agents_and_shards, python, "gpu/staged.py", 2, "check", "double", *whats))


# Expect: what holds in host memory, bit for bit against simulations and torch alone, holds on a device.
@pytest.mark.parametrize(
    "words",
    [
        ["training/optimizer.py"],
        ["training/state.py"],
        ["modes/delayed.py", "exact", "delayed:k=2", "none"],
        ["modes/delayed.py", "counting", "delayed:k=1"],
        ["parameter_server/shards.py", "counting", "ps:async"],
        ["parameter_server/shards.py", "counting", "ps:quorum,q=2"],
        ["parameter_server/shards.py", "counting", "ps:ssp,max_staleness=2"],
        ["parameter_server/shards.py", "other_memory"],
    ],
    ids=" ".join,
)
def test_a_program_of_host_memory_runs_on_a_device(agents_and_shards, newest, words):
    assert_all_ok(run_ranks(agents_and_shards, newest, "gpu/staged.py", 2, "under", *words))


# ---- one tensor, with a device that computes on a stream of its own


class Bench:
    """A staged tensor of two delay slots; what `begin` found in a delay slot when an exchange began."""

    def __init__(self, timeout_ms=DEADLINE_S * 1000):
        self.compute = staging_double.Stream(FAST)
        self.device = staging_double.Device(FAST, self.compute)
        self.delay_slots = [torch.zeros(5), torch.zeros(5)]
        self.staged = staging.Staged(self.device, self.delay_slots, "a tensor", timeout_ms)
        self.vector = self.staged.views[0]
        self.compute.seen.update(self.device.out.seen)
        self.found = []
        staging_double.races.clear()

    def hand_over(self, delay_slot):
        self.staged.hand_over(delay_slot, lambda: self.found.append(self.delay_slots[delay_slot].clone()))

    def settle(self):
        for stream in (self.compute, self.device.out, self.device.back):
            ended = threading.Event()
            stream.work.put(ended.set)
            assert ended.wait(DEADLINE_S)

    def check(self, tensor, value):
        self.settle()
        assert not staging_double.races
        assert tensor.tolist() == [value] * 5


def test_a_delay_slot_gets_what_the_device_has_computed():
    bench = Bench()
    bench.compute.delays = SLOW
    bench.device.write(bench.compute, bench.vector, 3.0)
    bench.hand_over(1)
    bench.staged.finish_handing_over()
    bench.check(bench.found[0], 3.0)
    assert bench.delay_slots[0].tolist() == [0.0] * 5


def test_every_stream_that_wrote_is_waited_for():
    bench = Bench()
    other = bench.device.compute = staging_double.Stream(SLOW)
    bench.device.write(other, bench.vector, 4.0)
    bench.staged.produced()
    bench.device.compute = bench.compute
    bench.hand_over(0)
    bench.staged.finish_handing_over()
    bench.check(bench.found[0], 4.0)


def test_an_exchange_begins_when_its_delay_slot_is_complete_and_nobody_waits_for_that():
    bench = Bench()
    bench.device.out.delays = SLOW
    bench.device.write(bench.compute, bench.vector, 5.0)
    bench.hand_over(0)
    assert not bench.staged.has_handed_over() and bench.found == []
    bench.staged.finish_handing_over()
    assert bench.staged.has_handed_over()
    bench.check(bench.found[0], 5.0)


def test_what_computes_next_sees_the_result():
    bench = Bench()
    bench.device.back.delays = SLOW
    bench.delay_slots[1].fill_(6.0)
    assert bench.staged.copy_back(1) == 0
    read = []
    bench.compute.put(lambda: read.append(bench.vector.clone()))
    bench.settle()
    bench.check(read[0], 6.0)


def test_a_result_overwrites_nothing_that_is_being_computed():
    bench = Bench()
    bench.compute.delays = SLOW
    bench.device.write(bench.compute, bench.vector, 1.0)
    bench.delay_slots[0].fill_(7.0)
    bench.staged.copy_back(0)
    bench.check(bench.vector, 7.0)


def test_a_delay_slot_is_not_written_while_a_result_is_brought():
    bench = Bench()
    bench.device.back.delays = SLOW
    bench.delay_slots[0].fill_(8.0)
    bench.staged.copy_back(0)
    bench.device.compute = staging_double.Stream(FAST)  # which knows nothing of the result
    bench.hand_over(0)
    bench.staged.finish_handing_over()
    bench.check(bench.found[0], 8.0)
    bench.check(bench.vector, 8.0)


@pytest.mark.parametrize("how", ["release", "close"])
def test_the_host_writes_delay_slots_when_nobody_reads_them(how):
    bench = Bench()
    bench.device.back.delays = SLOW
    bench.delay_slots[0].fill_(9.0)
    bench.staged.copy_back(0)
    getattr(bench.staged, how)()
    bench.delay_slots[0].fill_(-1.0)
    bench.check(bench.vector, 9.0)
    assert bench.device.pinned == (2 if how == "release" else 0)
    bench.staged.close()
    assert bench.device.pinned == 0


def test_exchanges_begin_in_the_order_of_their_copies():
    bench, order = Bench(), []
    for number in range(20):
        bench.staged.hand_over(number % 2, lambda number=number: order.append(number))
    bench.staged.finish_handing_over()
    assert order == list(range(20))


def test_a_copy_that_does_not_end_is_an_error_after_which_one_may_wait_again():
    bench = Bench(timeout_ms=50)
    go = threading.Event()
    bench.device.out.work.put(lambda: go.wait(DEADLINE_S))
    bench.hand_over(0)
    for wait in (bench.staged.finish_handing_over, bench.staged.release):
        with pytest.raises(TimeoutError, match=r'GB-P110 STALLED: tensor "a tensor".* \| next: '):
            wait()
    go.set()
    bench.settle()
    deadline = time.monotonic() + DEADLINE_S
    while not bench.staged.has_handed_over() and time.monotonic() < deadline:
        time.sleep(0.001)
    bench.staged.finish_handing_over()
    assert len(bench.found) == 1


def test_what_begin_raises_comes_out_where_one_waits():
    bench = Bench()

    def fail():
        raise RuntimeError("the job is over")

    bench.staged.hand_over(0, fail)
    with pytest.raises(RuntimeError, match="the job is over"):
        bench.staged.finish_handing_over()
    bench.staged.finish_handing_over()  # once


# ---- pinning


class Cudart:
    """Takes registrations of whole segments, each once."""

    def __init__(self, refusal=""):
        self.refusal, self.registered, self.asked = refusal, {}, 0

    def register(self, address, size):
        self.asked += 1
        if not self.refusal:
            assert address not in self.registered
            self.registered[address] = size
        return self.refusal

    def unregister(self, address):
        del self.registered[address]


def pinned_segments(cudart, delay_slots):
    begin = delay_slots[0].data_ptr() & ~4095
    end = (delay_slots[-1].data_ptr() + 4 * delay_slots[-1].numel() + 4095) & ~4095
    maps = (
        "00400000-00500000 r-xp 00000000 00:00 0  /usr/bin/python\n"
        f"{begin:x}-{end:x} rw-s 00000000 00:01 7  /memfd:gradbus:job (deleted)\n"
    )
    return cuda.PinnedSegments(cudart.register, cudart.unregister, lambda: maps), end - begin


def test_a_segment_is_registered_once_while_it_is_used():
    memory, elsewhere = torch.zeros(4096), torch.zeros(10)
    delay_slots, cudart = [memory[:100], memory[200:400]], Cudart()
    pinned, size = pinned_segments(cudart, [memory])
    for delay_slot in (*delay_slots, elsewhere):
        pinned.add(delay_slot)
    assert list(cudart.registered.values()) == [size] and len(pinned) == 1
    pinned.remove(delay_slots[0])
    assert cudart.registered
    pinned.remove(delay_slots[1])
    pinned.remove(elsewhere)
    assert not cudart.registered and len(pinned) == 0


def test_where_it_cannot_be_registered_one_line_says_why():
    delay_slots, cudart = [torch.zeros(100)], Cudart("cudaHostRegister: operation not permitted")
    pinned, _ = pinned_segments(cudart, delay_slots)
    with pytest.warns(UserWarning, match="cannot be pinned .*operation not permitted") as seen:
        pinned.add(delay_slots[0])
        pinned.add(delay_slots[0])
    assert len(seen) == 1 and cudart.asked == 1
    pinned.remove(delay_slots[0])
