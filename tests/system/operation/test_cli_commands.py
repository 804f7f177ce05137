"""`gradbus status`, `stop`, `doctor`, `explain`, `env` and the words around them, on real daemons.

Programs come from GRADBUS_BIN (default build/release/bin), the library from the folder lib beside it.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import textwrap
import time

import pytest
import rig as rigs
from rig import make_token_file

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("GRADBUS_BIN", ROOT / "build" / "release" / "bin"))
GRADBUS = str(BIN / "gradbus")
DEADLINE_S = 30.0


@pytest.fixture
def env(tmp_path):
    """An environment whose coordinator's port refuses: taken, so that nobody else gets it, and not listened on."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("GRADBUS_", "SLURM_", "PMI_"))}
    for name in ("RANK", "WORLD_SIZE", "XDG_RUNTIME_DIR"):
        base.pop(name, None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield dict(base, TMPDIR=str(tmp_path), GRADBUS_COORDINATOR=f"127.0.0.1:{taken.getsockname()[1]}")


def gradbus(env, *words, **options):
    return subprocess.run([GRADBUS, *words], env=env, text=True, capture_output=True,
                          timeout=DEADLINE_S, **options)


@contextlib.contextmanager
def daemon(env, name, *words):
    """A daemon that has said it is ready, and what it said."""
    read_end, write_end = os.pipe()
    process = subprocess.Popen([str(BIN / name), *words, "--ready-fd", str(write_end), "--exit-with-parent"],
                               env=env, pass_fds=[write_end], stderr=subprocess.DEVNULL)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as ready:
            yield process, json.loads(ready.readline())
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.fixture
def cluster(env, tmp_path):
    """A coordinator and one agent, as an administrator starts them; the environment to reach them."""
    env = dict(env, GRADBUS_TOKEN_FILE=str(make_token_file(tmp_path / "token")))
    with daemon(env, "gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0") as (_, server):
        path = str(tmp_path / "a.sock")
        with daemon(env, "gradbus-agent", "--coordinator", server["address"], "--socket", path,
                    "--name", "node-x", "--bind", "127.0.0.1") as (agent, _):
            yield dict(env, GRADBUS_COORDINATOR=server["address"], GRADBUS_SOCKET=path), agent


# Joins its job, says so, and works until an error ends it; prints that error.
RANK_PROGRAM = textwrap.dedent("""
    import ctypes, sys
    library = ctypes.CDLL(sys.argv[1])
    library.gradbus_last_error.restype = ctypes.c_char_p
    session = ctypes.c_void_p()
    code = library.gradbus_init(None, ctypes.byref(session))
    if code == 0:
        print("joined", flush=True)
    while code == 0:
        code = library.gradbus_barrier(session)
    print(library.gradbus_last_error().decode(), flush=True)
    sys.exit(7)
""")


@contextlib.contextmanager
def running_job(env, ranks=2):
    library = BIN.parent / "lib" / "libgradbus.so"
    process = subprocess.Popen(
        [GRADBUS, "run", "-np", str(ranks), "--no-prefix", "--", "python3", "-c", RANK_PROGRAM, str(library)],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert [process.stdout.readline() for _ in range(ranks)] == ["joined\n"] * ranks
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=DEADLINE_S)


def the_job(env):
    jobs = json.loads(gradbus(env, "status", "--json").stdout)["jobs"]
    assert len(jobs) == 1
    return jobs[0]


# ---- status and stop ----


def test_nobody_answers(env):
    for words in (["status"], ["status", "--json"]):
        done = gradbus(env, *words)
        assert done.returncode == 2
        assert done.stdout == ""
        assert re.fullmatch(r"GB-C501 COORDINATOR_LOST: no coordinator answers at 127\.0\.0\.1:\d+: "
                            r"[^\n]+ \| next: [^\n]+\n", done.stderr)
    assert gradbus(env, "stop", "x").returncode == 1


def test_status_shows_agents_and_ranks(cluster):
    env, agent = cluster
    done = gradbus(env, "status")
    assert done.returncode == 0, done.stderr
    assert "node-x" in done.stdout and str(agent.pid) in done.stdout and "jobs: none" in done.stdout
    with running_job(env):
        text = gradbus(env, "status").stdout
        job = the_job(env)
        assert max(map(len, text.splitlines())) <= 80
        assert f"job {job['job']}: running" in text
        assert [rank["rank"] for rank in job["ranks"]] == [0, 1]
        assert all(rank["agent"] == "node-x" and rank["state"] == "joined" for rank in job["ranks"])
        assert gradbus(env, "status", "--job", job["job"], "--json").returncode == 0
        other = gradbus(env, "status", "--job", "no-such-job")
        assert other.returncode == 1 and "GB-J406" in other.stderr


def test_stop_ends_the_ranks_with_an_error_that_says_who_and_why(cluster):
    env, _ = cluster
    with running_job(env) as process:
        name = the_job(env)["job"]
        done = gradbus(env, "stop", name, "--reason", "the cluster moves")
        assert done.returncode == 0 and done.stdout == f"job {name} is stopped\n"
        assert process.wait(DEADLINE_S) == 7
        said = process.stdout.read()
        assert said.count("GB-J405 JOB_STOPPED") == 2
        assert said.count("the cluster moves") == 2
    again = gradbus(env, "stop", "no-such-job")
    assert again.returncode == 1 and "GB-J406" in again.stderr


def test_watch_refreshes_until_it_is_interrupted(cluster):
    env, _ = cluster
    process = subprocess.Popen([GRADBUS, "status", "--watch", "--json"], env=env, text=True,
                               stdout=subprocess.PIPE)
    uptimes = [json.loads(process.stdout.readline())["uptime_ms"] for _ in range(3)]
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 0
    assert uptimes[0] < uptimes[1]
    assert 500 < uptimes[2] - uptimes[1] < 15_000  # the first one also waits for the connection
    process.stdout.close()


# ---- doctor ----


def test_doctor_tells_what_this_machine_has(cluster):
    env, _ = cluster
    done = gradbus(env, "doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0
    assert all(finding["level"] in ("ok", "warn", "missing") for finding in findings.values())
    # Whatever is not well comes with a next step.
    assert all(finding["next"] for finding in findings.values() if finding["level"] != "ok")
    assert f"{len(os.sched_getaffinity(0))} usable" in findings["cores"]["value"]
    assert os.uname().release in findings["kernel"]["value"]
    assert "127.0.0.1" in findings["nic lo"]["value"]
    for name in ("memfd", "agent", "coordinator", "gradbus-agent", "gradbus-server"):
        assert findings[name]["level"] == "ok", findings[name]
    text = gradbus(env, "doctor").stdout
    assert all(name in text for name in findings) and "\x1b" not in text


def test_doctor_without_daemons_is_no_failure(env):
    done = gradbus(dict(env, GRADBUS_SOCKET="/nowhere/a.sock"), "doctor")
    assert done.returncode == 0
    assert re.search(r"missing +agent +none at /nowhere/a\.sock\n +next: ", done.stdout)
    assert re.search(r"missing +coordinator ", done.stdout)


# ---- explain, env, help ----


def test_explain(env):
    for word in ("GB-P101", "p101", "PEER_LOST"):
        done = gradbus(env, "explain", word)
        assert done.returncode == 0 and done.stdout.startswith("GB-P101 PEER_LOST")
        assert "next:" in done.stdout
    everything = gradbus(env, "explain").stdout
    numbers = re.findall(r"^GB-(\w\d{3}) ", everything, re.MULTILINE)
    assert len(numbers) == len(set(numbers)) > 30
    for number in numbers:
        done = gradbus(env, "explain", number)
        parts = dict(re.findall(r"^  (what|cause|fault|do|example|next): +(\S.*)", done.stdout, re.MULTILINE))
        assert done.returncode == 0 and len(parts) == 6, done.stdout
    assert gradbus(env, "explain", "Z999").returncode == 1


def test_env_names_the_launcher_that_wins(env):
    slurm = dict(env, SLURM_PROCID="1", SLURM_NTASKS="4", SLURM_JOB_ID="77", SLURM_STEP_ID="0")
    torchrun = dict(slurm, RANK="2", WORLD_SIZE="8")
    ours = dict(torchrun, GRADBUS_RANK="3", GRADBUS_SIZE="16", GRADBUS_JOB="j")
    for variables, launcher, rank, size in ((env, "single", 0, 1), (slurm, "slurm", 1, 4),
                                            (torchrun, "torchrun", 2, 8), (ours, "gradbus", 3, 16)):
        done = gradbus(variables, "env")
        assert re.search(rf"^launcher +{launcher}$", done.stdout, re.MULTILINE)
        assert re.search(rf"^rank +{rank}$", done.stdout, re.MULTILINE)
        assert re.search(rf"^world size +{size}$", done.stdout, re.MULTILINE)
    broken = gradbus(dict(ours, GRADBUS_RANK="nan"), "env")
    assert broken.returncode == 1 and "GB-J401" in broken.stderr


CUDA_DOUBLE = BIN.parent / "lib" / "libcuda_double.so"  # built with device_test
needs_double = pytest.mark.skipif(not CUDA_DOUBLE.exists(), reason=f"no {CUDA_DOUBLE}")


def bench_codec(env, kind, *words):
    variables = dict(env, GRADBUS_CUDA_PLUGIN=str(CUDA_DOUBLE), GRADBUS_CUDA_DOUBLE=kind)
    return gradbus(variables, "bench", "codec", "--elements", "20000", *words)


def test_bench_codec_without_the_cuda_plugin(env):
    done = gradbus(dict(env, GRADBUS_CUDA_PLUGIN="/nowhere/a.so"), "bench", "codec", "--device", "cuda")
    assert done.returncode == 1 and done.stderr.startswith("GB-D620 NO_CUDA_PLUGIN: no /nowhere/a.so | next: ")


@needs_double
def test_bench_codec_without_a_gpu(env):
    for kind in ("no_driver", "no_device"):
        done = bench_codec(env, kind, "--device", "cuda")
        assert done.returncode == 1 and done.stderr.startswith("GB-D622 NO_GPU: ")
    beyond = bench_codec(env, "processor", "--device", "cuda:2")
    assert beyond.returncode == 2 and "GB-D622 NO_GPU: --device cuda:2: there are 2 GPUs" in beyond.stderr
    assert "cpu, cuda or cuda:1" in bench_codec(env, "processor", "--device", "gpu").stderr


@needs_double
def test_bench_codec_of_kernels_finds_what_the_codecs_do(env, tmp_path):
    """The kernels, run by a double of the plug-in on the processor: as much is sent, and as wrong."""
    specs = ["int8", "onebit:block=0", "topk:ratio=0.1", "dgc:ratio=0.01", "randk", "signum", "powersgd"]
    rows = {}
    for device in ("cuda", "cpu"):
        file = tmp_path / device
        done = bench_codec(env, "processor", "--device", device, "--json", str(file), *specs)
        assert done.returncode == 0, done.stderr
        rows[device] = {row["codec"]: row for row in json.loads(file.read_text())}
        assert ("# no kernels: powersgd" in done.stdout) == (device == "cuda")
    assert len(rows["cuda"]) == len(specs) - 1
    for codec, row in rows["cuda"].items():
        assert row["error"] == rows["cpu"][codec]["error"], codec
        assert row["encode_gbs"] > 0 and row["decode_gbs"] > 0
        # How long indices are depends on the round.
        assert row["bits_per_element"] == pytest.approx(rows["cpu"][codec]["bits_per_element"], rel=0.3), codec


def test_version_and_help(env):
    assert re.fullmatch(r"gradbus \d+\.\d+\.\d+\n", gradbus(env, "--version").stdout)
    words = gradbus(env, "--help").stdout
    assert gradbus(env, "help").stdout == words
    for command in ("run", "plan", "status", "stop", "doctor", "explain", "env"):
        assert command in words
        assert "--help" in gradbus(env, command, "--help").stdout
    assert gradbus(env).returncode == 2


@pytest.mark.parametrize("words, suggestion", [
    (["stauts"], "gradbus status"), (["rnu"], "gradbus run"), (["doctr"], "gradbus doctor"),
    (["status", "--jsno"], "--json"), (["run", "--agnets", "2"], "--agents")])
def test_did_you_mean(env, words, suggestion):
    done = gradbus(env, *words)
    assert done.returncode == 2
    assert done.stderr.endswith(f"| next: did you mean: {suggestion}\n")


def test_a_word_like_no_command(env):
    done = gradbus(env, "frobnicate")
    assert done.returncode == 2 and done.stderr.endswith("| next: gradbus --help\n")


def in_terminal(command: list[str], env: dict, columns: int, rows: int, keys: str) -> tuple[int, str]:
    """(exit status, all that was written) of a command with a terminal of this size, which gets these keys in turn."""
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    written = b""
    pages = 1  # that are to be written before the next key: the second one after a key has its effect
    deadline = time.monotonic() + DEADLINE_S
    with contextlib.suppress(OSError):  # it has ended
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                written += os.read(terminal, 65536)
            if keys and written.count(b"\x1b[J") >= pages:
                os.write(terminal, keys[0].encode())
                keys = keys[1:]
                pages = written.count(b"\x1b[J") + 2
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), written.decode()


def pages_of(written: str) -> list[list[str]]:
    """The lines of each page that top has written."""
    return [re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", page).split("\r\n") for page in written.split("\x1b[H")[1:]]


@pytest.mark.parametrize("columns, rows", [(80, 24), (200, 50)])
def test_top_fits_the_terminal_and_takes_keys(columns, rows):
    with rigs.cluster(2) as rig:
        ranks = rig.start_job(4, "steps:x:100:5", "await:" + str(rig.folder / "end"), job="digits")
        rigs.wait_until(lambda: all(rank in rig._ranks_of("digits") for rank in range(4)), what="four ranks")
        env = dict(os.environ, NO_COLOR="1", TERM="xterm", GRADBUS_COORDINATOR=rig.server.ready["address"])
        status, written = in_terminal([GRADBUS, "top", "--every", "0.2"], env, columns, rows, "bnq")
        assert status == 0, written
        pages = pages_of(written)
        last = [line for line in pages[-1] if line]
        assert all(len(page) <= rows for page in pages)
        assert all(len(line.strip("\r")) <= columns for page in pages for line in page)
        assert any("digits" in line and "node-1" in line and "joined" in line for line in pages[0])
        assert last[2].split() == ["NODE", "ROLE", "CORES", "SILENT", "SENT", "RECEIVED", "JOBS"], last
        assert "\x1b[1m" not in written  # NO_COLOR
        once = subprocess.run([GRADBUS, "top", "--once"], env=env, text=True, capture_output=True, timeout=DEADLINE_S)
        assert once.returncode == 0 and once.stdout.count("digits") == 4
        table = gradbus(env, "jobs").stdout.splitlines()
        assert table[1].split()[:3] == ["digits", "running", "4"], table
        (job,) = json.loads(gradbus(env, "jobs", "--json").stdout)
        assert (job["job"], job["state"], job["world_size"]) == ("digits", "running", 4)
        (rig.folder / "end").touch()
        assert [rank.finish()[0] for rank in ranks] == [0] * 4


def start_unequal_jobs(rig) -> None:
    """"often" has many operations, for which its rank 0 waits; "big" has few of 4 MB."""
    for rank in range(2):
        rig.start_rank(rank, 2, f"loop:x:10:600:{4 * rank}", job="often")
    rig.start_job(2, "loop:x:1000000:600:250", job="big")

    def differ() -> bool:
        jobs = {job["job"]: job["ranks"] for job in rig.status()["jobs"]}
        if [len(ranks) for ranks in jobs.values()] != [2, 2]:
            return False
        often, big = jobs["often"], jobs["big"]
        return (min(rank["operations_per_s"] for rank in often) > 3 * max(rank["operations_per_s"] for rank in big) > 0
                and min(rank["bytes_per_s"] for rank in big) > 3 * max(rank["bytes_per_s"] for rank in often) > 0
                and often[0]["waiting"] > 0.5 > 0.3 > often[1]["waiting"])  # fmt: skip

    rigs.wait_until(differ, what="rates that differ")


def test_the_keys_of_top_sort_its_rows():
    """w: who waits least is first. b, o: the most data, the most operations. r: job and rank, as status lists them."""
    with rigs.cluster(1) as rig:
        start_unequal_jobs(rig)
        env = dict(os.environ, NO_COLOR="1", TERM="xterm", GRADBUS_COORDINATOR=rig.server.ready["address"])
        rows = {}
        for key in "wbor":
            before = "r" if key != "r" else "b"  # so that the key itself gives the order
            status, written = in_terminal([GRADBUS, "top", "--every", "0.2"], env, 100, 24, f"{before}{key}q")
            assert status == 0, written
            words = [line.split() for line in pages_of(written)[-1][3:]]
            rows[key] = [line for line in words if line and line[0] in ("often", "big")]
        order = [(job["job"], str(rank["rank"])) for job in rig.status()["jobs"] for rank in job["ranks"]]
    assert [tuple(row[:2]) for row in rows["r"]] == order, rows
    assert [row[0] for row in rows["b"]] == ["big", "big", "often", "often"], rows
    assert [row[0] for row in rows["o"]] == ["often", "often", "big", "big"], rows
    waits = [int(row[-2]) for row in rows["w"]]
    assert len(waits) == 4 and waits == sorted(waits) and rows["w"][0][:2] != ["often", "0"], rows


@pytest.mark.parametrize("words", [["top"], ["top", "--json"], ["jobs"], ["jobs", "--json"]])
def test_without_a_coordinator_top_and_jobs_end_with_2(env, words):
    done = gradbus(env, *words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and "GB-C501" in done.stderr
