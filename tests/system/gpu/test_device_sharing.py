"""Ranks open GPU memory of their agent by legacy handles, mapped descriptors or fabric handles.

Where a rank cannot, the tests check what happens to it. The test doubles of test_device_rank_buffers.py share memory
in each of these ways. They refuse what GRADBUS_CUDA_DOUBLE_REFUSES (agents) and GRADBUS_STAGING_DOUBLE_REFUSES (ranks)
name.
"""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess

import pytest
import rig as rigs
from conftest import ATTACH_VERSION, RANK_DEADLINE_S, RANKS, assert_all_ok, run_ranks, start_ranks

pytest.importorskip("torch")
pytestmark = pytest.mark.timeout(240)
PYTHON = str(rigs.REPOSITORY / ".venv/bin/python")
LIBRARIES = rigs.BIN.parent / "lib"
WAYS = ["legacy", "vmm", "fabric"]
SHARED = {"GRADBUS_DEVICE_MEMORY": "1", "GRADBUS_EXPECT": "all shared"}
STAGED = {"GRADBUS_DEVICE_MEMORY": "1", "GRADBUS_EXPECT": "staged"}


@contextlib.contextmanager
def agents_with(agents, sharing="auto", refuses="", **variables):
    """Daemons over the doubles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADBUS_CUDA_PLUGIN", str(LIBRARIES / "libcuda_double.so"))
        patch.setenv("GRADBUS_CUDA_DOUBLE", "streams")
        patch.setenv("GRADBUS_CUDA_DOUBLE_REFUSES", refuses)
        patch.setenv("GRADBUS_AGENT_DEVICE_SHARING", sharing)
        for name, value in variables.items():
            patch.setenv(name, value)
        with rigs.cluster(agents) as running:
            yield running


@pytest.fixture(scope="module")
def one_node():
    with agents_with(1) as running:
        yield running


def compare(rig, size, where, *modes, refusals=()):
    """Trainings in memory of GPUs and of the host; `refusals`: what ranks cannot open, by their numbers."""
    program = [PYTHON, str(RANKS / "gpu/staged.py"), "compare", "double", *modes]
    job = f"compare-{len(rig.ranks)}"
    refusals = dict(refusals)
    ranks = [
        rig.start_rank(rank, size, job=job, program=program,
                       env=dict(where, OMP_NUM_THREADS="1", GRADBUS_STAGING_DOUBLE_REFUSES=refusals.get(rank, "")))
        for rank in range(size)
    ]  # fmt: skip
    results = [rank.finish(RANK_DEADLINE_S) for rank in ranks]
    assert_all_ok(results)
    return job, results


def names(agent):
    """Of what it has open."""
    for descriptor in os.listdir(f"/proc/{agent.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{agent.pid}/fd/{descriptor}")


def lines_of(agent, job):
    return [line for line in agent.text().splitlines() if f'"{job}": memory of GPUs is shared with ranks by ' in line]


# Expect: the bits of host memory, dense and compressed, and each agent says once how.
@pytest.mark.parametrize("way", WAYS)
def test_each_way_gives_the_bits_of_host_memory(way):
    with agents_with(2, sharing=way) as rig:
        modes = ["sync", "sync/int8:ef=residual,communicator=allgather", "sync/fp16"]
        job, _ = compare(rig, 4, SHARED, *modes)
        for agent in rig.agents:
            (line,) = lines_of(agent, job)
            assert line.endswith(f" by {way}"), line


# Expect: the first way that both ranks can open, with the reason why not an earlier one.
@pytest.mark.parametrize(
    ("refusals", "said"),
    [
        ({}, "by legacy"),
        ({1: "legacy"}, "by vmm, not by legacy: local rank 1: this rank refuses legacy"),
        (
            {0: "vmm", 1: "legacy"},
            "by fabric, not by legacy: local rank 1: this rank refuses legacy; "
            "vmm: local rank 0: this rank refuses vmm",
        ),
    ],
)
def test_what_one_rank_cannot_open_another_way_is_found_for(one_node, refusals, said):
    job, _ = compare(one_node, 2, SHARED, "sync", refusals=refusals)
    (line,) = lines_of(one_node.agents[0], job)
    assert line.endswith(said), line


# Expect: copies through shared memory, the same bits, and one line on each rank.
@pytest.mark.parametrize("refused", ["legacy,vmm,fabric", "events"])
def test_where_a_rank_can_open_nothing_gradients_are_copied(one_node, refused):
    job, results = compare(one_node, 2, STAGED, "sync", refusals={0: refused})
    assert not lines_of(one_node.agents[0], job)
    for _, output in results:
        said = [line for line in output.splitlines() if "gradients are copied through shared memory" in line]
        assert len(said) == 1, output
        assert re.search("GB-D628 NOT_ON_GPU: .*fabric: local rank 0: this rank refuses (fabric|events)", said[0]), said


def test_a_way_that_was_chosen_is_not_left():
    with agents_with(1, sharing="vmm") as rig:
        _, results = compare(rig, 2, STAGED, "sync", refusals={1: "vmm"})
        assert all("vmm: local rank 1: this rank refuses vmm" in output for _, output in results), results
        words = ["refused", "it has not tried to open it"]
        assert_all_ok(run_ranks(rig, PYTHON, "gpu/device_trials.py", 2, *words, **SHARED))


# Expect: what the agent cannot make is not offered; without memory or exports there is nothing to offer.
@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        ("legacy", "by vmm, not by legacy: local rank 0: GB-D624 GPU_FAILED: GPU 0: memory: the double refuses legacy"),
        ("legacy,vmm", "by fabric, not by legacy"),
        ("export", None),
    ],
)
def test_what_the_agent_cannot_share_another_way_is_found_for(refuses, said):
    with agents_with(1, refuses=refuses) as rig:
        job, results = compare(rig, 2, SHARED if said else STAGED, "sync")
        if said:
            (line,) = lines_of(rig.agents[0], job)
            assert said in line, line
        else:
            assert all("GB-D624 GPU_FAILED: " in output and "refuses export" in output for _, output in results)


def test_ranks_that_try_nothing_get_legacy_handles(one_node):
    assert_all_ok(run_ranks(one_node, PYTHON, "gpu/device_trials.py", 2, "untried", **SHARED))


# Expect: neither side keeps a descriptor of what was shared; a rank that is killed leaves none.
@pytest.mark.parametrize("way", WAYS)
def test_no_descriptor_is_left_behind(way):
    with agents_with(1, sharing=way) as rig:
        agent = rig.agents[0]
        words = ["descriptors"] if way == "vmm" else ["untried"] if way == "legacy" else []
        if words:
            assert_all_ok(run_ranks(rig, PYTHON, "gpu/device_trials.py", 2, *words, **SHARED))
        compare(rig, 2, SHARED, "sync")
        rigs.wait_until(lambda: agent.segments() == 0, what="the first jobs to go")
        before = agent.open_files()
        compare(rig, 2, SHARED, "sync")
        ranks = start_ranks(rig, PYTHON, "gpu/staged.py", 2, "under", "training/optimizer.py", **SHARED)
        rigs.wait_until(lambda: any("GPU" in name for name in names(agent)), what="memory of GPUs")
        ranks[1].process.send_signal(signal.SIGKILL)
        ranks[0].finish(RANK_DEADLINE_S)
        rigs.wait_until(lambda: agent.open_files() <= before, what=f"at most {before} descriptors")
        assert agent.alive()


@pytest.mark.parametrize("way", ["vmm", "fabric"])
def test_nccl_processes_open_it_too(way):
    nccl = {"GRADBUS_SERVER_NCCL": "1", "GRADBUS_NCCL": str(LIBRARIES / "libnccl_double.so"), "GRADBUS_NCCL_DOUBLE": ""}
    with agents_with(2, sharing=way, **nccl) as rig:
        wanted = {**SHARED, "GRADBUS_EXPECT": "shared"}
        results = run_ranks(rig, PYTHON, "gpu/nccl_orders.py", 4, "double", "3", **wanted)
        assert_all_ok(results)
        for agent in rig.agents:
            assert "gradients on GPUs are summed between nodes by NCCL" in agent.text(), agent.text()
            assert f"memory of GPUs is shared with ranks by {way}" in agent.text(), agent.text()


def bench(*words, kind="streams", **variables):
    double = {"GRADBUS_CUDA_PLUGIN": str(LIBRARIES / "libcuda_double.so"), "GRADBUS_CUDA_DOUBLE": kind}
    environment = {**os.environ, **double, **variables}
    command = [rigs.BIN / "gradbus", "bench", "all_reduce", "--memory", "cuda", "--json", "-", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


# Expect: every element right; rates as the bytes and the time have it, beside that of a copy.
@pytest.mark.parametrize("way", WAYS)
def test_a_benchmark_of_sums_in_memory_of_gpus(way):
    words = ["--ranks", "3", "-b", "4", "-e", "1M", "-f", "512", "-n", "3", "-w", "1", "--check"]
    done = bench(*words, GRADBUS_AGENT_DEVICE_SHARING=way)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["size"] for row in rows] == [4, 2048, 1 << 20]
    for row in rows:
        assert row["#wrong"] == 0 and row["memory"] == "cuda" and row["copy_gbs"] > 0, row
        assert row["memory_gbs"] == pytest.approx(2 * 3 * row["size"] / row["time"] / 1e3), row


def test_a_benchmark_of_sums_between_nodes():
    words = ["--ranks", "4", "--agents", "2", "-b", "1M", "-e", "1M", "-n", "2", "-w", "1"]
    done = bench(*words, "--check")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["#wrong"] == 0, done.stderr
    assert "memory_gbs" not in json.loads(done.stdout)[0]
    coded = bench(*words, "--codec", "int8:communicator=allgather")
    assert coded.returncode == 0, coded.stderr


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"GRADBUS_CUDA_PLUGIN": "/nowhere/a.so"}, "GB-D620 NO_CUDA_PLUGIN: "),
        ({"kind": "no_driver"}, "GB-D622 NO_GPU: "),
        ({"kind": "full"}, "GB-D623 GPU_MEMORY: "),
    ],
    ids=["no plugin", "no driver", "full"],
)
def test_a_benchmark_that_cannot_be(variables, reason):
    done = bench("-b", "4", "-e", "4", **variables)
    assert done.returncode == 1 and reason in done.stderr, done


def test_a_way_that_there_is_not_is_refused_at_the_start():
    command = [rigs.BIN / "gradbus-agent", "--device-sharing", "pipes"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "GB-F100" in done.stderr and "auto, legacy, vmm or fabric" in done.stderr, done


HEADER = "<IHHII"
MAGIC, VERSION, JOIN, TRY, TRIED = 0x31414247, ATTACH_VERSION, 1, 10, 12
NO_TEXT = b"\xff" * 256


def packet(kind, body):
    return struct.pack(HEADER, MAGIC, VERSION, kind, 16 + len(body), 1) + body


# Expect: that client's job ends with a reason, and the agent goes on with what it had before.
@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ([(TRIED, bytes(16) + NO_TEXT * 3)], "the end of a trial that was not begun"),
        ([(TRY, bytes([number, *[7] * 15])) for number in range(65)], "a trial of more than 64 GPUs"),
        ([(TRY, bytes(15))], "packet type 10 has 31 bytes"),
    ],
    ids=["not begun", "too many", "short"],
)
def test_a_client_that_lies_about_trials(one_node, bodies, said):
    agent = one_node.agents[0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.settimeout(rigs.DEADLINE_S)
        raw.connect(agent.ready["socket"])
        raw.send(packet(JOIN, struct.pack("<128s32sqqqQ", b"liar", b"0.1.0", 0, 1, 1, 60_000)))
        assert len(raw.recv(4096)) > 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for kind, body in bodies:
                raw.send(packet(kind, body))
        rigs.wait_until(lambda: said in agent.text(), what=said)
    compare(one_node, 2, SHARED, "sync")


# Expect: what was offered goes, whatever the client says of it.
def test_a_trial_that_ends_with_garbage(one_node):
    agent = one_node.agents[0]
    uuid = bytes([0xD0, *[0] * 15])
    before = agent.open_files()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
        raw.settimeout(rigs.DEADLINE_S)
        raw.connect(agent.ready["socket"])
        raw.send(packet(JOIN, struct.pack("<128s32sqqqQ", b"liar", b"0.1.0", 0, 1, 1, 60_000)))
        raw.recv(4096)
        raw.send(packet(TRY, uuid))
        offer, descriptors, _, _ = socket.recv_fds(raw, 4096, 4)
        for descriptor in descriptors[1:]:
            socket.close(descriptor)
        raw.send(packet(TRIED, uuid + NO_TEXT * 3))
        assert struct.unpack_from("<I", offer, 32)[0] == 3
    rigs.wait_until(lambda: agent.open_files() <= before, what=f"at most {before} descriptors")
    assert agent.alive()
