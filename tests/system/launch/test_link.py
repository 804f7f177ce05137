"""`gradbus run --link`: real namespaces, real queues, real bytes, and nothing left afterwards.

Times are compared with lower bounds only: a loaded machine may be as slow as it likes, but no machine
moves bytes faster than the link. Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pytest
from rig import BIN, why_no_namespaces

GRADBUS = str(BIN / "gradbus")
SCRIPTED_RANK = str(BIN / "scripted_rank")
DEADLINE_S = 200.0  # for what must happen, on a machine with other work
MIB = 1 << 20


WHY_NOT = why_no_namespaces()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"--link cannot work here: {WHY_NOT}")


@pytest.fixture
def env():
    """The launcher's environment, with a mark that finds its processes and a TMPDIR of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_") and k != "XDG_RUNTIME_DIR"}
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as scratch:
        yield dict(kept, TMPDIR=scratch, TEST_MARK="gradbus-test-" + uuid.uuid4().hex)


def words_for(link, *command, agents=3, ranks=3):
    return [GRADBUS, "run", "--agents", str(agents), "--link", link, "-np", str(ranks), "--no-prefix", "--", *command]


def run(env, words, **options):
    return subprocess.run(
        words, env=env, text=True, capture_output=True, timeout=DEADLINE_S, check=False, **options
    )


@contextlib.contextmanager
def started(env, words):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=env, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def processes():
    return [entry for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]


def processes_with(mark):
    found = []
    for entry in processes():
        with contextlib.suppress(OSError):
            if f"TEST_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
    return found


def holders_of(namespaces):
    """Who still runs in one of these namespaces, or holds one open; mounts of one count as well."""
    found = []
    for entry in processes():
        with contextlib.suppress(OSError):
            links = [entry / "ns/net", *(entry / "fd").iterdir()]
            found += [str(link) for link in links if link.is_symlink() and os.readlink(link) in namespaces]
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    return found + [name for name in namespaces if name in mounts]


def wait_for(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.02)


def assert_nothing_left(env, namespaces=()):
    wait_for(lambda: not processes_with(env["TEST_MARK"]), "all processes gone")
    wait_for(lambda: not holders_of(set(namespaces)), "namespaces gone")
    wait_for(lambda: not list(pathlib.Path(env["TMPDIR"]).iterdir()), "no directory left")
    devices = re.findall(r"^\s*(\S+):", pathlib.Path("/proc/net/dev").read_text(), re.MULTILINE)
    assert not [name for name in devices if re.fullmatch(r"(link|port|br)0", name)], devices


# ---- what a job finds ----

LOOK = """
echo "$GRADBUS_RANK|$(readlink /proc/self/ns/net)|$(ip -4 -o address show link0 | awk '{print $4}')|$MASTER_ADDR" \
     "|$(ip route | wc -l)|$(ip -o link show lo | grep -c ,UP)|$(tc qdisc show dev link0)"
"""


def test_each_agent_and_its_ranks_have_a_namespace_and_a_limited_link(env):
    done = run(env, words_for("200mbit", "sh", "-c", LOOK, ranks=6))
    assert done.returncode == 0, done.stderr
    rows = sorted([part.strip() for part in line.split("|")] for line in done.stdout.splitlines())
    assert [row[0] for row in rows] == list("012345")
    spaces = [row[1] for row in rows]
    assert len(set(spaces)) == 3 and spaces[0::2] == spaces[1::2]
    assert os.readlink("/proc/self/ns/net") not in spaces
    assert [row[2] for row in rows] == [f"198.18.0.{1 + rank // 2}/24" for rank in range(6)]
    assert {row[3] for row in rows} == {"198.18.0.1"}
    # One route, to the others; no way out.
    assert {(row[4], row[5]) for row in rows} == {("1", "1")}
    assert all(re.match(r"qdisc tbf 1: root refcnt \d+ rate 200Mbit ", row[6]) for row in rows), rows
    assert_nothing_left(env, spaces)


def test_a_given_master_address_wins(env):
    words = words_for("1gbit", "sh", "-c", "echo $MASTER_ADDR", agents=2, ranks=2)
    words[2:2] = ["-x", "MASTER_ADDR=198.18.0.2"]
    assert run(env, words).stdout.split() == ["198.18.0.2"] * 2


def test_status_works_from_a_rank(env):
    look = f"[ $GRADBUS_RANK != 1 ] || {shlex.quote(GRADBUS)} status --json"
    done = run(env, words_for("1gbit", "sh", "-c", look, agents=2, ranks=2))
    assert done.returncode == 0, done.stderr
    assert '"name":"agent-0"' in done.stdout and '"name":"agent-1"' in done.stdout


# ---- real bytes ----


def test_a_sum_is_exact_and_no_faster_than_the_link(env, tmp_path):
    # So slow that the link decides, not the machine: without limits this test fails at a load of 20.
    count, rounds, agents, bits_per_second = MIB // 2, 2, 3, 20e6
    # The ranks leave the times themselves: neither the job's start nor a late reader is in between.
    steps = f"barrier touch:{tmp_path}/begin.$GRADBUS_RANK steps:w:{count}:{rounds} touch:{tmp_path}/end.$GRADBUS_RANK"
    script = f"{shlex.quote(SCRIPTED_RANK)} {steps} && grep link0 /proc/net/dev"
    done = run(env, words_for("20mbit", "sh", "-c", script, agents=agents, ranks=6))
    # scripted_rank compares every element with 1 + 2 + ... + 6, else ends with 4.
    assert done.returncode == 0, done.stdout + done.stderr
    # A ring of n brings 2 (n - 1) / n of the bytes to each, the least that is possible.
    least = 2 * (agents - 1) / agents * count * 4 * rounds
    burst = 20_000  # two frames pass at once
    tick = 0.02  # files' times are those of the last timer tick
    for rank in range(6):
        took = (tmp_path / f"end.{rank}").stat().st_mtime - (tmp_path / f"begin.{rank}").stat().st_mtime
        assert took >= (least - burst) * 8 / bits_per_second - tick, (rank, took)
    counters = [[int(word) for word in line.split()[1:]] for line in done.stdout.splitlines() if "link0" in line]
    assert len(counters) == 6
    # What a rank's agent has sent is no sign: a rank may be done while its last bytes still go on to others.
    assert min(numbers[0] for numbers in counters) >= least, "received over something else than the link"
    assert_nothing_left(env)


# Rank 0 receives from both others at once; they tell nobody but the link how fast they may be.
INCAST = """
import os, socket, sys, threading, time
rank, count, master = int(os.environ["GRADBUS_RANK"]), int(sys.argv[1]), os.environ["MASTER_ADDR"]
if rank == 0:
    server = socket.create_server((master, 29500))
    server.settimeout(30)
    peers = [server.accept()[0] for _ in range(2)]
    def read(peer):
        while peer.recv(1 << 20):
            pass
    begin = time.monotonic()
    readers = [threading.Thread(target=read, args=[peer]) for peer in peers]
    [peer.sendall(b"go") for peer in peers]
    [reader.start() for reader in readers]
    [reader.join(50) for reader in readers]
    print(time.monotonic() - begin)
else:
    for attempt in range(300):
        try:
            peer = socket.create_connection((master, 29500), 30)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert peer.recv(2) == b"go"
    peer.sendall(bytes(count))
"""


def test_two_senders_share_the_receivers_link(env):
    count = 4 * MIB
    done = run(env, words_for("200mbit", sys.executable, "-c", INCAST, str(count)))
    assert done.returncode == 0, done.stderr
    burst = 25_000
    assert float(done.stdout) >= (2 * count - burst) * 8 / 200e6, "each alone would take half of that"


PING = """
import os, socket, time
master, tries = os.environ["MASTER_ADDR"], 50
if os.environ["GRADBUS_RANK"] == "0":
    server = socket.create_server((master, 29500))
    server.settimeout(30)
    peer = server.accept()[0]
    while peer.recv(1):
        peer.sendall(b"x")
else:
    for attempt in range(300):
        try:
            peer = socket.create_connection((master, 29500), 30)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    best = 1e9
    for attempt in range(tries):
        begin = time.monotonic()
        peer.sendall(b"x")
        peer.recv(1)
        best = min(best, time.monotonic() - begin)
    print(best)
"""


def test_a_delay_is_real_or_the_missing_module_is_named(env):
    done = run(env, words_for("1gbit,5ms", sys.executable, "-c", PING, agents=2, ranks=2))
    if done.returncode == 0:
        assert float(done.stdout) >= 2 * 0.005
    else:
        assert done.returncode == 1
        assert re.fullmatch(
            r"GB-H203 NO_LINK: [^\n]*sch_netem: \S*tc ended with [^\n]+ \| next: modprobe sch_netem[^\n]+\n",
            done.stderr,
        ), done.stderr
    assert_nothing_left(env)


# Rank 1 looks until the agents have measured their path; its program names no other way to the coordinator.
SHOW_PATHS = f"""
[ $GRADBUS_RANK = 1 ] || exit 0
for attempt in $(seq 300); do
  {shlex.quote(GRADBUS)} status --json | tee status.$GRADBUS_RANK | grep -q beta_ns && exec cat status.$GRADBUS_RANK
  sleep 0.05
done
"""


def test_the_agents_measure_what_the_link_is_like(env, tmp_path):
    done = run(env, words_for("100mbit", "sh", "-c", SHOW_PATHS, agents=2, ranks=2), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert [(path["agent"], path["peer"]) for path in status["paths"]] in (
        [("agent-0", "agent-1")], [("agent-1", "agent-0")],
    )  # fmt: skip
    # 8 bits at 100 Mbit/s take 80 ns. Half and double, because a loaded machine may look at the clock late.
    assert 40 <= status["paths"][0]["beta_ns"] <= 160, status["paths"]
    assert 0 < status["paths"][0]["alpha_us"] < 100_000
    assert all(0 < agent["reduce_ns"] < 100 for agent in status["agents"])


# ---- refusals ----


@pytest.mark.parametrize(
    "link, agents, said",
    [("1gbps", 2, "rate is \"1gbps\""), ("1gbit,soon", 2, "delay is \"soon\""), ("1gbit", 1, "at least two agents")],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(env, link, agents, said):
    done = run(env, words_for(link, "true", agents=agents, ranks=2))
    assert done.returncode == 2
    assert re.fullmatch(r"GB-H200 BAD_LAUNCH: [^\n]+ \| next: [^\n]+\n", done.stderr), done.stderr
    assert said in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_root_it_says_so(env):
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(GRADBUS, folder)
        os.chmod(env["TMPDIR"], 0o777)
        words = [program, *words_for("1gbit", "true", agents=2, ranks=2)[1:]]
        done = run(env, words, user=65534, group=65534, extra_groups=[], cwd="/")
    assert done.returncode == 1
    assert "GB-H203 NO_LINK: --link cannot make a network namespace: Operation not permitted" in done.stderr
    assert "next: run it as root" in done.stderr
    assert_nothing_left(env)


@pytest.mark.parametrize("tool", ["ip", "tc"])
def test_a_missing_tool_is_named(env, tool):
    # In a mount namespace of its own the file is hidden behind /dev/null, which nobody can execute.
    folders = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    paths = {os.path.realpath(f"{folder}/{tool}") for folder in folders}
    hide = "".join(f"mount --bind /dev/null {path} && " for path in paths if os.path.exists(path))
    words = words_for("1gbit", "true", agents=2, ranks=2)
    done = run(env, ["unshare", "--mount", "sh", "-c", hide + 'exec "$@"', "sh", *words])
    assert done.returncode == 1, done.stderr
    assert f"GB-H203 NO_LINK: --link needs the program {tool}," in done.stderr
    assert "install iproute2" in done.stderr
    assert_nothing_left(env)


# ---- ends ----

FOREVER = ["sh", "-c", "readlink /proc/self/ns/net; sleep 600 & wait"]


# Expect: a peer finds its way in the namespaces too, so that it can be compared with on a link.
@pytest.mark.parametrize("backend", ["gradbus", "ddp"])
def test_a_real_program_trains_with_each_backend(env, backend):
    repository = pathlib.Path(__file__).resolve().parents[3]
    python, program = repository / ".venv/bin/python", repository / "examples/digits/train.py"
    words = words_for("1gbit", str(python), str(program), "--epochs", "1", "--backend", backend, agents=2, ranks=2)
    done = run(env, words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ranks_identical"] is True


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_signal_leaves_nothing(env, number, code):
    with started(env, words_for("100mbit", *FOREVER)) as process:
        spaces = [process.stdout.readline().strip() for _ in range(3)]
        assert len(set(spaces)) == 3 and holders_of(set(spaces))
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == code
        assert_nothing_left(env, spaces)


def program_of(pid):
    """The name of its program; "" for a process that has ended."""
    with contextlib.suppress(OSError):
        return pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name
    return ""


def test_a_killed_agent_ends_the_job_and_leaves_nothing(env):
    with started(env, words_for("100mbit", *FOREVER)) as process:
        spaces = [process.stdout.readline().strip() for _ in range(3)]
        agents = [int(pid) for pid in processes_with(env["TEST_MARK"]) if program_of(pid) == "gradbus-agent"]
        assert len(agents) == 3
        os.kill(agents[1], signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 1
        assert "GB-A301" in process.stderr.read()
        assert_nothing_left(env, spaces)


def namespaces_held_by(pid):
    with contextlib.suppress(OSError):
        links = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        return {link for link in links if link.startswith("net:")}
    return set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("held", [1, 4, 7])
def test_an_end_in_the_middle_of_the_set_up_leaves_nothing(env, held, number):
    # Seven namespaces for six agents, then about fourteen calls of ip and tc.
    with started(env, words_for("100mbit", "sleep", "600", agents=6, ranks=6)) as process:
        wait_for(lambda: len(namespaces_held_by(process.pid)) >= held, "namespaces open")
        process.send_signal(number)
        spaces = namespaces_held_by(process.pid)
        process.wait(DEADLINE_S)
    assert_nothing_left(env, spaces)
