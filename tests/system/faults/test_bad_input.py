"""Everything that can be wrong, against the real processes: each wrong thing gets a one-line error at
the right party, in time; nothing hangs, nobody else is disturbed, nothing is left behind."""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest
import rig as rigs
from conftest import ATTACH_VERSION

DEATH_S = 8.0  # two seconds are promised; a machine that is busy with other things gets more


@pytest.fixture
def rig():
    """Two agents and their coordinator."""
    with rigs.cluster(2) as running:
        yield running


@pytest.fixture
def lone():
    """One agent and its coordinator."""
    with rigs.cluster(1) as running:
        yield running


def results(ranks, timeout=rigs.DEADLINE_S):
    """[(exit status, output)] of all ranks."""
    return [rank.finish(timeout) for rank in ranks]


def assert_error(result, identity, *parts):
    """A rank ended with this GB- number; the line names all `parts` and what to do next."""
    status, out = result
    lines = [line for line in out.splitlines() if line.startswith("error ")]
    assert status == 3 and len(lines) == 1, result
    assert f"GB-{identity} " in lines[0] and "| next: " in lines[0], lines[0]
    for part in parts:
        assert part in lines[0], (part, lines[0])


def assert_healthy(rig, job="after"):
    """A new job of four ranks works on these daemons."""
    for result in results(rig.start_job(4, "red:x:1000:i64:sum", "barrier", job=job)):
        assert result[0] == 0, result


# ---- ranks that disagree

MISMATCHES = {
    "shape": ("red:w:100:f32:sum", "red:w:101:f32:sum", ["f32[100]", "f32[101]"]),
    "dtype": ("red:w:100:f32:sum", "red:w:100:i32:sum", ["f32[100]", "i32[100]"]),
    "op": ("red:w:100:f32:sum", "red:w:100:f32:average", ["sum", "average"]),
    "root": ("bcast:w:100:0", "bcast:w:100:1", ["root 0", "root 1"]),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_a_rank_with_another_shape_dtype_op_or_root(rig, case):
    """All ranks get one error naming the tensor, the ranks and both values; the job could go on."""
    right, wrong, values = MISMATCHES[case]
    ranks = [rig.start_rank(r, 4, wrong if r == 3 else right) for r in range(4)]
    for result in results(ranks):
        assert_error(result, "O902", '"w"', "3", *values)
    assert_healthy(rig)


def test_a_rank_with_another_name(rig):
    """Every rank waits for something else: found after a second, not after the operation's timeout."""
    ranks = [rig.start_rank(r, 4, "red:typo:10:f32:sum" if r == 2 else "red:w:10:f32:sum") for r in range(4)]
    for result in results(ranks):
        assert_error(result, "O903", '"w"', '"typo"')


def test_a_shape_that_changes_on_one_rank_later(rig):
    """The name is registered and used; then one rank comes with another count."""
    ranks = [rig.start_rank(r, 4, "red:w:10:i64:sum", f"red:w:{11 if r == 1 else 10}:i64:sum") for r in range(4)]
    for result in results(ranks):
        assert_error(result, "O902", '"w"', "i64[11]", "i64[10]")


# ---- who am I

@pytest.mark.parametrize("size", ["nan", "", "-3", "0", "4097", "99999999999999999999", "4.0"])
def test_an_absurd_rank_count(lone, size):
    """The variable is named; nothing is contacted."""
    rank = lone.start_rank(0, 2, env={"GRADBUS_SIZE": size})
    assert_error(rank.finish(), "J401", "GRADBUS_SIZE" if not size.lstrip("-").isdigit() else "size")


def test_a_rank_outside_the_world(lone):
    """Rank 7 of 4."""
    assert_error(lone.start_rank(7, 4).finish(), "J401", "rank 7", "0..3")


def test_two_ranks_with_one_number(rig):
    """The second one is refused and told who has the number; the first goes on."""
    first = rig.start_rank(0, 2, "red:x:10:i64:sum")
    rig.wait_for_rank(0)
    assert_error(rig.start_rank(0, 2, agent=1).finish(), "J402", "rank 0", "node-0", str(first.process.pid))
    other = rig.start_rank(1, 2, "red:x:10:i64:sum")
    assert [r[0] for r in results([first, other])] == [0, 0]


def test_two_ranks_with_one_number_on_one_agent(rig):
    """The duplicate is refused, not the one that was first."""
    first = rig.start_rank(0, 2, "red:x:10:i64:sum")
    rig.wait_for_rank(0)
    assert_error(rig.start_rank(0, 2).finish(), "J402", "rank 0", "node-0", str(first.process.pid))
    other = rig.start_rank(1, 2, "red:x:10:i64:sum")
    assert [r[0] for r in results([first, other])] == [0, 0]


def test_ranks_that_disagree_about_the_world_size(rig):
    """The newcomer is refused with both numbers."""
    first = rig.start_rank(0, 2, "barrier")
    rig.wait_for_rank(0)
    assert_error(rig.start_rank(1, 3).finish(), "J403", "2", "3")
    assert rig.start_rank(1, 2, "barrier").finish()[0] == 0
    assert first.finish()[0] == 0


def test_a_rank_that_never_comes(rig):
    """The others are told who is missing when the start timeout ends."""
    ranks = [rig.start_rank(r, 3, env={"GRADBUS_START_TIMEOUT": "4"}) for r in (0, 2)]
    for result in results(ranks):
        assert_error(result, "J404", "2 of 3", "missing: 1")


# ---- other versions, nonsense on the sockets

ATTACH_MAGIC = 0x31414247


def attach(agent):
    """A raw connection to an agent's socket."""
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    raw.settimeout(rigs.DEADLINE_S)
    raw.connect(agent.ready["socket"])
    return raw


def test_a_library_of_another_version(lone):
    """The agent answers with both versions."""
    with attach(lone.agents[0]) as raw:
        raw.send(struct.pack("<IHHII", ATTACH_MAGIC, 99, 1, 16, 1))
        answer = raw.recv(4096)
    assert b"GB-V801" in answer and b"99" in answer and b"| next: " in answer


def test_an_agent_of_another_version(tmp_path):
    """The library answers with both versions."""
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        rank = rigs.Rig(tmp_path).start_rank(0, 2, env={"GRADBUS_SOCKET": path})
        connection, _ = listener.accept()
        connection.send(struct.pack("<IHHII", ATTACH_MAGIC, 99, 2, 16, 1))
        assert_error(rank.finish(), "V801", "99", str(ATTACH_VERSION))
        connection.close()


@pytest.mark.parametrize("packet", [
    b"x", b"\0" * 16, os.urandom(4096),
    struct.pack("<IHHII", ATTACH_MAGIC, ATTACH_VERSION, 1, 16, 1),  # a join without its body
    struct.pack("<IHHII", ATTACH_MAGIC, ATTACH_VERSION, 3, 16, 1),  # a register before the join
    struct.pack("<IHHII", ATTACH_MAGIC, ATTACH_VERSION, 200, 16, 1),
], ids=["byte", "zeros", "random", "short-join", "early-register", "unknown-type"])
def test_garbage_on_the_attach_socket(lone, packet):
    """That connection ends with a reason; the agent goes on."""
    with attach(lone.agents[0]) as raw:
        raw.send(packet)
        answer = raw.recv(4096)
        assert b"GB-S211" in answer, answer
        assert raw.recv(4096) == b""
    assert_healthy(lone)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xed\xa0\x80", b"", b"a\nb", b"x" * 128],
                         ids=["bytes", "surrogate", "empty", "newline", "unterminated"])
def test_a_job_name_that_is_no_text(rig, name):
    """Refused where it comes in; no other job notices."""
    ranks = rig.start_job(4, "loop:x:1000:1", job="other")
    with attach(rig.agents[0]) as raw:
        raw.send(struct.pack("<IHHII128s32sqqqQ", ATTACH_MAGIC, ATTACH_VERSION, 1, 208, 1, name, b"0.1.0",
                             0, 2, 1, 1000))
        assert b"GB-J401" in raw.recv(4096)
    assert [r[0] for r in results(ranks)] == [0] * 4


def test_a_client_that_says_nothing(lone):
    """Its connection ends at the handshake's deadline."""
    with attach(lone.agents[0]) as raw:
        assert b"GB-S211" in raw.recv(4096)


@pytest.mark.parametrize("field", ["tail", "kind", "tensor", "round", "bytes"])
def test_garbage_in_a_submission_ring(rig, field, tmp_path):
    """The job of that client ends with the field named; another job on the same agents goes on."""
    other = rig.start_job(4, "loop:y:1000:2", job="other")
    ranks = [rig.start_rank(r, 4, "red:x:10:i64:sum", f"spoil:{field}" if r == 1 else "sleep:0",
                            f"await:{tmp_path}/seen", "barrier") for r in range(4)]
    # The doorbell is not rung; what rank 1 would push next might hide the garbage.
    rigs.wait_until(lambda: "GB-S210" in rig.agents[0].text(), what="the agent's look at the ring")
    (tmp_path / "seen").touch()
    for result in results(ranks):
        assert_error(result, "S210", f"field {field}", "rank 1")
    assert [r[0] for r in results(other)] == [0] * 4
    assert_healthy(rig)


@pytest.mark.parametrize("field", ["header", "completions", "arena"])
def test_garbage_in_the_rest_of_shared_memory(rig, field):
    """Whatever the spoiled job does, it ends, and the agents and the other job do not notice."""
    other = rig.start_job(4, "loop:y:1000:3", job="other")
    ranks = [rig.start_rank(r, 4, "red:x:10:i64:sum", f"spoil:{field}" if r == 1 else "sleep:0",
                            "red:x:10:i64:sum", env={"GRADBUS_OP_TIMEOUT": "2"}) for r in range(4)]
    results(ranks)
    assert [r[0] for r in results(other)] == [0] * 4
    assert all(agent.alive() for agent in rig.agents)
    assert_healthy(rig)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 5000, b"GBF1" + os.urandom(60)],
                         ids=["http", "zeros", "ones", "magic"])
def test_garbage_on_the_data_port(rig, garbage):
    """The connection is closed; a running job is not disturbed."""
    ranks = rig.start_job(4, "loop:x:100000:2")
    host, port = rig.agents[0].ready["address"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=rigs.DEADLINE_S) as raw:
        raw.sendall(garbage)
        try:
            assert raw.recv(1000) == b""
        except ConnectionResetError:
            pass
    assert [r[0] for r in results(ranks)] == [0] * 4


@pytest.mark.parametrize("garbage", [b"hello\r\n", os.urandom(3000)], ids=["text", "random"])
def test_garbage_on_the_rpc_port(rig, garbage):
    """The coordinator goes on."""
    host, port = rig.server.ready["address"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5) as raw:
        raw.sendall(garbage)
        raw.settimeout(3)
        try:
            while raw.recv(4096):
                pass
        except (ConnectionResetError, TimeoutError):
            pass
    assert_healthy(rig)


# ---- deaths

def start_loop(rig, tmp_path, seconds=30, size=4, **options):
    """Ranks in a loop that has begun."""
    ranks = [rig.start_rank(r, size, "steps:warm:10:3", f"touch:{tmp_path}/r{r}", f"loop:x:10000:{seconds}",
                            "barrier", **options) for r in range(size)]
    rigs.wait_until(lambda: all((tmp_path / f"r{r}").exists() for r in range(size)), what="the loop")
    time.sleep(0.2)
    return ranks


def end_times(ranks, since):
    """Seconds from `since` until each rank has ended."""
    times = {}
    rigs.wait_until(lambda: [times.setdefault(r.number, time.monotonic() - since) for r in ranks
                             if r.process.poll() is not None] and len(times) == len(ranks), what="all ends")
    return times


def test_a_killed_trainer(rig, tmp_path):
    """Every survivor is told within 2 s which rank died, on which node."""
    ranks = start_loop(rig, tmp_path)
    ranks[3].process.kill()
    survivors = ranks[:3]
    assert max(end_times(survivors, time.monotonic()).values()) < DEATH_S
    for result in results(survivors):
        assert_error(result, "P101", "rank 3", "node-1")
    assert_healthy(rig)


def test_a_trainer_killed_at_once_after_many_rounds_leaves_nothing(rig, tmp_path):
    """Killed again and again: the agents hold no more descriptors or segments than before."""
    before = [agent.open_files() for agent in rig.agents]
    for round_number in range(5):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        ranks = start_loop(rig, folder, job=f"job{round_number}")
        ranks[round_number % 4].process.kill()
        results(ranks)
    rigs.wait_until(lambda: all(a.segments() == 0 for a in rig.agents), what="segments to go")
    rigs.wait_until(lambda: all(a.open_files() <= b for a, b in zip(rig.agents, before)),
                    what=f"at most {before} descriptors")


def test_a_killed_agent(rig, tmp_path):
    """Its own ranks and those of the other agent are told within 2 s."""
    ranks = start_loop(rig, tmp_path)
    rig.agents[1].kill()
    times = end_times(ranks, time.monotonic())
    assert max(times.values()) < DEATH_S, times
    outcomes = results(ranks)
    for result in outcomes[2:]:
        assert_error(result, "A301")
    for result in outcomes[:2]:
        assert_error(result, "P104", "node-1")


@pytest.mark.timeout(240)
def test_a_killed_coordinator(rig, tmp_path):
    """The running job goes on to its end; what needs the coordinator waits for it for a minute, then says so."""
    ranks = [rig.start_rank(r, 4, "steps:warm:10:3", f"touch:{tmp_path}/r{r}", f"await:{tmp_path}/killed",
                            "steps:warm:10:500", "reg:new:10:f32:sum") for r in range(4)]
    rigs.wait_until(lambda: all((tmp_path / f"r{r}").exists() for r in range(4)), what="the start")
    rig.server.kill()
    rig.server.process.wait()
    rigs.wait_until(lambda: all("no connection" in a.text() for a in rig.agents), what="agents notice")
    (tmp_path / "killed").touch()
    for status, out in results(ranks, 120):
        assert "ok steps:warm:10:500" in out, out
        assert_error((status, out), "C501", rig.server.ready["address"])
    assert_error(rig.start_rank(0, 2, job="late").finish(), "C501", rig.server.ready["address"])


def test_a_stopped_trainer(rig, tmp_path):
    """Not a death: the others wait, are told by whom, and go on when it does."""
    ranks = start_loop(rig, tmp_path, seconds=4)
    ranks[2].process.send_signal(signal.SIGSTOP)
    rigs.wait_until(lambda: any("rank 2" in a.text() for a in rig.agents), what="the stall report")
    assert all(rank.process.poll() is None for rank in ranks)
    ranks[2].process.send_signal(signal.SIGCONT)
    assert [r[0] for r in results(ranks)] == [0] * 4


def test_a_trainer_stopped_for_good(rig, tmp_path):
    """The operation's deadline ends the wait and names the rank."""
    ranks = start_loop(rig, tmp_path, env={"GRADBUS_OP_TIMEOUT": "3"})
    ranks[2].process.send_signal(signal.SIGSTOP)
    for rank in (ranks[0], ranks[1], ranks[3]):
        status, out = rank.finish()
        assert status == 3 and ("GB-P110" in out or "GB-P101" in out), out
        assert re.search(r"\branks? (\d, )*2\b", out) or "GB-P101" in out, out
    ranks[2].process.send_signal(signal.SIGCONT)


def test_a_rank_that_leaves_early(rig):
    """A clean end while others still need the rank is their error, not a hang."""
    ranks = [rig.start_rank(r, 4, "steps:x:10:5", *([] if r == 1 else ["steps:x:10:5"])) for r in range(4)]
    outcomes = results(ranks)
    assert outcomes[1][0] == 0
    for number in (0, 2, 3):
        assert_error(outcomes[number], "P105", "rank 1")


# ---- what the machine refuses

def test_no_daemon(tmp_path):
    """The path and what to do."""
    rank = rigs.Rig(tmp_path).start_rank(0, 2)
    assert_error(rank.finish(), "A300", str(tmp_path), "gradbus run")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_no_permission(lone):
    """Another user may not open the socket, and is told so."""
    lone.folder.chmod(0o755)
    # The other user cannot reach the programs of a clone in a home folder of mode 700.
    program = shutil.copy(rigs.BIN / "scripted_rank", lone.folder)
    shutil.copy(rigs.BIN.parent / "lib/libgradbus.so.0", lone.folder)
    rank = lone.start_rank(0, 2, program=[program], env={"LD_LIBRARY_PATH": str(lone.folder)},
                           user=65534, group=65534, extra_groups=[], cwd="/")
    assert_error(rank.finish(), "A302", lone.agents[0].ready["socket"])


def test_shared_memory_quota():
    """Asked and free bytes are said, on every rank; a smaller job fits afterwards."""
    with rigs.cluster(2, "--shm-bytes-max", str(32 << 20)) as rig:
        for result in results(rig.start_job(4, "reg:big:10000000:f32:sum")):
            assert_error(result, "S201", "32 MiB", "MiB more", "--shm-bytes-max 33554432", "unregister")
        assert_healthy(rig)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a mount namespace")
def test_a_full_dev_shm(tmp_path):
    """Gradients live in sealed memfds, so a full /dev/shm harms nobody."""
    script = (
        "mount -t tmpfs -o size=64k none /dev/shm && head -c 100k /dev/zero >/dev/shm/full 2>/dev/null; "
        'df --output=avail /dev/shm | tail -1 && exec "$0"/gradbus run -np 4 --agents 2 -- '
        '"$0"/scripted_rank red:x:1000000:i64:sum')
    run = subprocess.run(["unshare", "-m", "sh", "-c", script, rigs.BIN], capture_output=True, text=True, timeout=60,
                         check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0].strip() == "0", "the file system was not full"


def test_a_port_in_use(lone):
    """Server, agent data port and agent socket: each says which address."""
    port = lone.server.ready["address"].rsplit(":", 1)[1]
    server = subprocess.run([rigs.BIN / "gradbus-server", "--role=coordinator", "--listen", f"127.0.0.1:{port}"],
                            capture_output=True, text=True, timeout=rigs.DEADLINE_S, check=False)
    assert server.returncode == 1 and "GB-D603" in server.stderr and port in server.stderr
    data = lone.agents[0].ready["address"]
    agent = subprocess.run([rigs.BIN / "gradbus-agent", "--socket", str(lone.folder / "b.sock"), "--bind", data],
                           capture_output=True, text=True, timeout=rigs.DEADLINE_S, check=False)
    assert agent.returncode == 1 and "GB-D603" in agent.stderr and data in agent.stderr
    taken = subprocess.run([rigs.BIN / "gradbus-agent", "--socket", lone.agents[0].ready["socket"]],
                           capture_output=True, text=True, timeout=rigs.DEADLINE_S, check=False)
    assert taken.returncode == 1 and "GB-A303" in taken.stderr
    assert_healthy(lone)


def test_an_agent_name_that_is_taken(lone):
    """The second agent says so and does not disturb the first."""
    log = lone.folder / "twin.log"
    with log.open("w") as file:
        twin = subprocess.Popen([rigs.BIN / "gradbus-agent", "--coordinator", lone.server.ready["address"],
                                 "--name", "node-0", "--socket", str(lone.folder / "twin.sock")],
                                stdout=file, stderr=file)
    try:
        rigs.wait_until(lambda: "GB-C502" in log.read_text(), what="the refusal")
        assert_healthy(lone)
    finally:
        twin.terminate()
        twin.wait(timeout=rigs.DEADLINE_S)


# ---- several jobs

def test_two_jobs_one_killed_in_the_middle(rig, tmp_path):
    """The other one goes on undisturbed: right sums, no error."""
    (tmp_path / "a").mkdir()
    ranks = start_loop(rig, tmp_path / "a", job="victim")
    other = rig.start_job(4, "loop:y:50000:3", job="survivor")
    time.sleep(1)
    ranks[0].process.kill()
    for result in results(ranks[1:]):
        assert_error(result, "P101", "rank 0")
    for status, out in results(other):
        assert status == 0, out
        assert int(re.search(r"rounds (\d+)", out).group(1)) > 1
