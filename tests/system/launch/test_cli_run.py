"""`gradbus run` with real processes: output, exit codes, bad input, and that nothing is ever left.

Most tests need no daemon: a listening socket is all that the launcher asks of an agent, and the
ranks here are small shell programs. Programs come from GRADBUS_BIN (default build/release/bin).
"""

import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("GRADBUS_BIN", ROOT / "build" / "release" / "bin"))
GRADBUS = str(BIN / "gradbus")
DEADLINE_S = 60.0


@pytest.fixture
def agent_socket(tmp_path_factory):
    """A socket that answers, as an agent's does: enough for the launcher to use "the daemon"."""
    path = tmp_path_factory.mktemp("s") / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        yield str(path)


@pytest.fixture
def mark():
    """A word that finds this test's processes again, wherever they went."""
    return "gradbus-test-" + uuid.uuid4().hex


@pytest.fixture
def scratch():
    """The launcher's TMPDIR: short, as the paths of sockets in it must be."""
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as path:
        yield path


@pytest.fixture
def env(agent_socket, mark, scratch):
    base = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_")}
    base.pop("OMP_NUM_THREADS", None)
    base.pop("XDG_RUNTIME_DIR", None)
    return dict(base, GRADBUS_SOCKET=agent_socket, TEST_MARK=mark, TMPDIR=scratch, TERM="xterm")


def run(env, *words, **options):
    return subprocess.run([GRADBUS, "run", *words], env=env, text=True, capture_output=True,
                          timeout=DEADLINE_S, **options)


def processes_with(mark):
    """Pids whose environment holds `mark`, this test run itself not among them."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if f"TEST_MARK={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def wait_for(condition, what, seconds=DEADLINE_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    pytest.fail(f"not within {seconds} s: {what}")


def assert_nothing_left(env):
    wait_for(lambda: not processes_with(env["TEST_MARK"]), "all processes gone")
    wait_for(lambda: not list(pathlib.Path(env["TMPDIR"]).iterdir()), "no directory left")


@contextlib.contextmanager
def started(env, *words, **options):
    process = subprocess.Popen([GRADBUS, "run", *words], env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_lines(stream, count):
    return [stream.readline() for _ in range(count)]


# ---- places ----


def test_each_rank_knows_its_place(env, agent_socket):
    done = run(env, "-np", "3", "--start-timeout", "7", "--op-timeout", "2.5", "--", "sh", "-c",
               "echo $GRADBUS_RANK $GRADBUS_SIZE $GRADBUS_LOCAL_RANK $GRADBUS_JOB $GRADBUS_SOCKET "
               "$GRADBUS_START_TIMEOUT $GRADBUS_OP_TIMEOUT $PYTHONUNBUFFERED")
    assert done.returncode == 0, done.stderr
    places = {}
    for line in done.stdout.splitlines():
        label, rank, size, local, job, where, start, op, unbuffered = line.split()
        assert label == f"[{rank}]"
        assert (size, local, where, start, op, unbuffered) == ("3", rank, agent_socket, "7", "2.5", "1")
        places[int(rank)] = job
    assert sorted(places) == [0, 1, 2]
    assert len(set(places.values())) == 1
    assert re.fullmatch(r"run-[a-z]{8}", places[0])


def test_two_jobs_have_two_names(env):
    names = {run(env, "-np", "1", "sh", "-c", "echo $GRADBUS_JOB").stdout for _ in range(2)}
    assert len(names) == 2


def test_threads_are_shared_out_unless_set(env):
    show = ["sh", "-c", "echo $OMP_NUM_THREADS"]
    cores = len(os.sched_getaffinity(0))
    assert run(env, "-np", "1", *show).stdout == f"{cores}\n"
    assert run(env, "--no-prefix", "-np", "2", *show).stdout == f"{max(1, cores // 2)}\n" * 2
    assert run(dict(env, OMP_NUM_THREADS="7"), "-np", "1", *show).stdout == "7\n"


def test_hosts_of_this_machine_are_blocks(env, tmp_path):
    show = ["sh", "-c", "echo $GRADBUS_RANK:$GRADBUS_LOCAL_RANK"]
    done = run(env, "--no-prefix", "-H", "localhost:2,127.0.0.1:1", "--", *show)
    assert sorted(done.stdout.split()) == ["0:0", "1:1", "2:0"], done.stderr
    hostfile = tmp_path / "hosts"
    hostfile.write_text("\ufeff# here\r\nlocalhost slots = 1\r\n127.0.0.[1]:2\r\n")
    done = run(env, "--no-prefix", "-np", "3", "--hostfile", str(hostfile), "--", *show)
    assert sorted(done.stdout.split()) == ["0:0", "1:0", "2:1"], done.stderr


def test_extra_variables(env):
    done = run(env, "-np", "1", "-x", "MINE=a b=c", "--", "sh", "-c", "echo $MINE")
    assert done.stdout == "a b=c\n", done.stderr


# ---- the command line ----


def test_program_options_stay_the_programs(env):
    for separator in (["--"], []):
        done = run(env, "-np", "1", *separator, "printf", "%s|", "-np", "3", "--verbose", "--", "-x")
        assert done.stdout == "-np|3|--verbose|--|-x|", done.stderr


BAD_INPUT = [
    (["-np", "0", "true"], "GB-J401", 2),
    (["-np", "nan", "true"], "GB-J401", 2),
    (["-np", "-1", "true"], "GB-J401", 2),
    (["-np", "4097", "true"], "GB-J401", 2),
    (["-np", "99999999999999999999", "true"], "GB-J401", 2),
    (["-np", "2.5", "true"], "GB-J401", 2),
    (["true"], "GB-J401", 2),
    (["-np", "2"], "GB-H200", 2),
    (["-np", "2", "--"], "GB-H200", 2),
    (["-np", "2", "--", ""], "GB-H200", 2),
    (["-np", "3", "-H", "localhost:2", "true"], "GB-H200", 2),
    (["-np", "3", "-H", "localhost:zwei", "true"], "GB-H200", 2),
    (["-np", "1", "-H", "-oProxyCommand=x", "true"], "GB-H200", 2),
    (["-np", "1", "--hostfile", "/nowhere/hosts", "true"], "GB-H200", 2),
    (["-np", "2", "--agents", "3", "true"], "GB-H200", 2),
    (["-np", "2", "--agents", "0", "true"], "GB-H200", 2),
    (["-np", "2", "--agents", "1", "-H", "localhost:2", "true"], "GB-H200", 2),
    (["-np", "2", "--start-timeout", "nan", "true"], "GB-H200", 2),
    (["-np", "2", "--output-filename", "/proc/nope", "true"], "GB-H200", 2),
    (["-np", "2", "-x", "1=2", "true"], "GB-H200", 2),
    (["-np", "200", "true"], "GB-H200", 2),
    (["-np", "2", "--", "no-such-program"], "GB-H201", 127),
    (["-np", "2", "--", "/no/such/program"], "GB-H201", 127),
    (["-np", "2", "--", "/etc/passwd"], "GB-H201", 126),
    (["-np", "2", "--no-such-option", "--", "true"], "GB-F101", 2),
    (["-np"], "GB-F100", 2),
]


@pytest.mark.parametrize("words, number, code", BAD_INPUT, ids=[" ".join(w[0])[:50] for w in BAD_INPUT])
def test_bad_input_is_one_line_with_a_next_step(env, words, number, code):
    done = run(env, *words)
    assert done.returncode == code
    assert done.stdout == ""
    assert re.fullmatch(rf"{number} [A-Z_]+: [^\n]+ \| next: [^\n]+\n", done.stderr), done.stderr
    assert_nothing_left(env)


def test_a_named_socket_that_does_not_answer(env):
    done = run(dict(env, GRADBUS_SOCKET="/nowhere/agent.sock"), "-np", "2", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("GB-A300 NO_AGENT: no agent listens on GRADBUS_SOCKET=/nowhere/")


# ---- output ----


def test_lines_are_whole_and_in_order(env):
    count = 300
    script = f'i=0; while [ $i -lt {count} ]; do printf "$GRADBUS_RANK-$i-"; echo xxxxxxxx; i=$((i+1)); done'
    done = run(env, "-np", "4", "--", "sh", "-c", script)
    assert done.returncode == 0
    by_rank = {str(rank): [] for rank in range(4)}
    for line in done.stdout.splitlines():
        match = re.fullmatch(r"\[(\d)\] (\d)-(\d+)-xxxxxxxx", line)
        assert match and match[1] == match[2], repr(line)
        by_rank[match[1]].append(int(match[3]))
    assert all(numbers == list(range(count)) for numbers in by_rank.values())


def test_the_two_outputs_stay_apart(env):
    done = run(env, "-np", "2", "--", "sh", "-c", "echo to-out; echo to-err >&2")
    assert sorted(done.stdout.splitlines()) == ["[0] to-out", "[1] to-out"]
    assert sorted(done.stderr.splitlines()) == ["[0] to-err", "[1] to-err"]


def test_no_prefix_leaves_a_last_line_that_parses(env):
    done = run(env, "-np", "2", "--no-prefix", "--", "sh", "-c",
               '[ $GRADBUS_RANK = 1 ] || printf \'{"loss": 1}\'')
    assert done.stdout == '{"loss": 1}\n'


def test_one_rank_is_passed_through_byte_for_byte(env):
    done = subprocess.run([GRADBUS, "run", "-np", "1", "printf", r"a\rb\0c"], env=env,
                          capture_output=True, timeout=DEADLINE_S)
    assert done.stdout == b"a\rb\0c"


def test_rank_zero_reads_our_input_and_others_none(env):
    done = run(env, "-np", "2", "--", "sh", "-c", "cat", input="fed\n")
    assert done.stdout == "[0] fed\n"


def test_output_files(env, tmp_path):
    where = tmp_path / "deep" / "logs"
    done = run(env, "-np", "2", "--output-filename", str(where), "--", "sh", "-c",
               r'printf "o$GRADBUS_RANK\r\n"; printf e$GRADBUS_RANK >&2; [ $GRADBUS_RANK = 0 ]')
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"see {where}/rank.1.err" in done.stderr
    for rank in "01":
        assert (where / f"rank.{rank}.out").read_bytes() == f"o{rank}\r\n".encode()
        assert (where / f"rank.{rank}.err").read_bytes() == f"e{rank}".encode()


def test_a_reader_that_goes_away_ends_the_job(env):
    with started(env, "-np", "2", "--", "sh", "-c", "while :; do echo spam; done") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE
        process.stdout = open(os.devnull)
    assert_nothing_left(env)


def test_a_slow_reader_can_be_interrupted(env):
    with started(env, "-np", "2", "--", "sh", "-c", "while :; do echo spam; done") as process:
        process.stdout.readline()
        time.sleep(0.3)  # the pipe and the launcher's buffer fill; nobody reads them
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    assert_nothing_left(env)


def run_in_terminal(env, *words, watch=lambda received: None):
    """What a terminal of 80 columns receives; `watch` is shown it as it comes."""
    master, slave = pty.openpty()
    process = subprocess.Popen([GRADBUS, "run", *words], env=env, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    received = b""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            received += os.read(master, 65536)
        except OSError:
            break
        watch(received)
    os.close(master)
    try:
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
    return received


def test_colours_only_on_a_terminal_that_wants_them(env):
    words = ["-np", "2", "--", "echo", "x"]
    assert b"\x1b[36m[0] \x1b[0mx" in run_in_terminal(env, *words)
    assert b"\x1b" not in run_in_terminal(dict(env, NO_COLOR="1"), *words)
    assert b"\x1b" not in run_in_terminal(env, "--no-color", *words)
    assert "\x1b" not in run(env, *words).stdout


def test_a_progress_bar_moves_on_a_terminal(env, tmp_path):
    half = tmp_path / "half"  # drawn: only then the bar moves on
    script = (r'[ $GRADBUS_RANK = 1 ] || { printf "\r50 %%" >&2; '
              rf'until [ -e {half} ]; do sleep 0.01; done; printf "\r100 %%\n" >&2; }}')

    def watch(received):
        if b"\r\x1b[K[0] 50 %" in received:
            half.touch()

    seen = run_in_terminal(env, "--no-color", "-np", "2", "--", "sh", "-c", script, watch=watch)
    assert half.exists(), seen
    assert seen.endswith(b"\r\x1b[K[0] 100 %\r\n")


def test_a_rank_may_not_stop_on_terminal_input(env):
    assert b"[0] got nothing" in run_in_terminal(
        env, "--no-color", "-np", "2", "--", "sh", "-c", "read x || echo got nothing")


# ---- ends ----


def test_the_exit_code_is_the_first_failures(env):
    done = run(env, "-np", "3", "--", "sh", "-c",
               "[ $GRADBUS_RANK != 1 ] || { echo my last words >&2; exit 3; }; sleep 3; exit 4")
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert lines[0] == "[1] my last words"
    assert re.match(r"GB-H202 RANK_FAILED: rank 1 \(pid \d+\) on localhost ended with exit status 3 \| next: ",
                    lines[1])
    assert len(lines) == 2


def test_a_killed_rank_is_128_plus_signal(env):
    done = run(env, "-np", "2", "--", "sh", "-c", "[ $GRADBUS_RANK = 0 ] || kill -9 $$")
    assert done.returncode == 137
    assert "ended with signal 9 (Killed)" in done.stderr and "see dmesg on that node" in done.stderr


def test_the_others_get_five_seconds_then_are_stopped(env):
    begin = time.monotonic()
    done = run(env, "-np", "3", "--", "sh", "-c",
               "[ $GRADBUS_RANK != 0 ] || exit 9; trap '' TERM; while :; do sleep 0.1; done")
    took = time.monotonic() - begin
    assert done.returncode == 9
    assert 7.0 <= took < 25.0  # 5 s of grace, SIGTERM (ignored here), 2 s, SIGKILL
    assert "stopping what still runs: rank 1, rank 2" in done.stderr
    assert_nothing_left(env)


def test_a_ranks_own_children_end_with_it(env):
    done = run(env, "-np", "2", "--", "sh", "-c", "sleep 600 & exit 0")
    assert done.returncode == 0
    assert_nothing_left(env)


RUN_FOREVER = ["-np", "3", "--", "sh", "-c", "sleep 600 & echo up; wait"]


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_all(env, number, code):
    with started(env, *RUN_FOREVER) as process:
        read_lines(process.stdout, 3)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == code
        assert "stopping all ranks" in process.stderr.read()
        assert_nothing_left(env)


STUBBORN = ["-np", "2", "--", "sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.1; done"]


def test_a_stubborn_rank_is_killed_after_two_seconds(env):
    with started(env, *STUBBORN) as process:
        read_lines(process.stdout, 2)
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 143
        assert 2.0 <= time.monotonic() - begin < 20.0
    assert_nothing_left(env)


def assert_quicker_than(limit, measure, tries=5):
    """One try of several: a machine that is busy with other things may spoil some, a wrong program spoils all."""
    times = []
    while len(times) < tries:
        times.append(measure())
        if times[-1] < limit:
            return
    pytest.fail(f"never in {limit} s: {times}")


def test_a_second_ctrl_c_kills_at_once(env):
    def interrupt_twice():
        with started(env, *STUBBORN) as process:
            read_lines(process.stdout, 2)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert "once more" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130
            return time.monotonic() - begin

    assert_quicker_than(1.8, interrupt_twice)  # the SIGKILL of a single Ctrl-C comes after 2 s
    assert_nothing_left(env)


def test_a_stopped_rank_is_woken_to_end(env):
    def terminate():
        with started(env, "-np", "2", "--", "sh", "-c", "echo up; kill -STOP $$") as process:
            read_lines(process.stdout, 2)
            begin = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 143
            return time.monotonic() - begin

    assert_quicker_than(1.9, terminate)  # SIGTERM did it, not the SIGKILL after 2 s
    assert_nothing_left(env)


def test_a_killed_launcher_leaves_nothing(env):
    with started(env, *RUN_FOREVER) as process:
        read_lines(process.stdout, 3)
        wait_for(lambda: len(processes_with(env["TEST_MARK"])) >= 8, "launcher, guard, 3 shells, 3 sleeps")
        process.kill()
        process.wait(DEADLINE_S)
        assert_nothing_left(env)


# ---- other hosts: a stand-in for ssh that runs the script here ----


@pytest.fixture
def fake_ssh(tmp_path):
    # As with ssh, what it starts is elsewhere: it does not get our signals, only the end of its input.
    path = tmp_path / "fake-ssh"
    path.write_text('#!/bin/sh\necho "host $1" >&2\nexec 3<&0\n'
                    'setsid sh -c "$2" <&3 3<&- &\nexec 3<&-\nwait $!\n')
    path.chmod(0o755)
    return str(path)


def test_other_hosts_get_directory_variables_and_words(env, fake_ssh, tmp_path):
    where = tmp_path / "it's a dir"
    where.mkdir()
    env = dict(env, PYTHONPATH="/a'b $c", MY_SECRET="s")
    done = run(env, "--no-prefix", "-H", "node-b:2,node-c:1", "--ssh", fake_ssh, "-x", "MINE", "-x",
               "OTHER=o", "--", "sh", "-c",
               'echo "$GRADBUS_RANK/$GRADBUS_SIZE/$GRADBUS_LOCAL_RANK|$PWD|$PYTHONPATH|$OTHER|$1"',
               "sh", "two  words", cwd=where)
    assert done.returncode == 0, done.stderr
    tail = f"|{where}|/a'b $c|o|two  words"
    assert sorted(done.stdout.splitlines()) == [f"0/3/0{tail}", f"1/3/1{tail}", f"2/3/0{tail}"]
    assert sorted(done.stderr.split("\n")[:3]) == ["host node-b", "host node-b", "host node-c"]


def test_exit_code_from_another_host(env, fake_ssh):
    done = run(env, "-H", "node-b:2", "--ssh", fake_ssh, "--", "sh", "-c", "exit $((GRADBUS_RANK * 5))")
    assert done.returncode == 5
    assert "rank 1" in done.stderr and "on node-b" in done.stderr


def test_an_unknown_host_is_named(env, tmp_path):
    ssh = tmp_path / "ssh255"
    ssh.write_text("#!/bin/sh\necho 'Could not resolve hostname' >&2\nexit 255\n")
    ssh.chmod(0o755)
    done = run(env, "-H", "nowhere:1", "--ssh", str(ssh), "--", "true")
    assert done.returncode == 255
    assert 'GB-H200 BAD_LAUNCH: rank 0' in done.stderr and 'host "nowhere"' in done.stderr


def test_a_lost_connection_ends_the_remote_rank(env, fake_ssh):
    with started(env, "-H", "node-b:2", "--ssh", fake_ssh, "--", "sh", "-c", "echo up; sleep 600 & wait") as process:
        read_lines(process.stdout, 2)
        process.kill()
        process.wait(DEADLINE_S)
        # The script sends SIGTERM when its input ends, SIGKILL 2 s later.
        assert_nothing_left(env)


def test_ctrl_c_ends_remote_ranks(env, fake_ssh):
    with started(env, "-H", "node-b:2", "--ssh", fake_ssh, "--", "sh", "-c", "echo up; sleep 600 & wait") as process:
        read_lines(process.stdout, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    assert_nothing_left(env)


# ---- embedded daemons ----


@pytest.fixture
def embedded(env):
    if not os.access(BIN / "gradbus-agent", os.X_OK) or not os.access(BIN / "gradbus-server", os.X_OK):
        pytest.fail(f"gradbus-server and gradbus-agent are not in {BIN}: build them first")
    env = dict(env)
    del env["GRADBUS_SOCKET"]
    return env


def test_embedded_agents_serve_blocks_of_ranks(embedded):
    done = run(embedded, "-np", "5", "--agents", "2", "--no-prefix", "--", "sh", "-c",
               "echo $GRADBUS_RANK $GRADBUS_LOCAL_RANK $GRADBUS_SOCKET; test -S $GRADBUS_SOCKET")
    assert done.returncode == 0, done.stderr
    rows = sorted(line.split() for line in done.stdout.splitlines())
    assert [(rank, local) for rank, local, _ in rows] == [
        ("0", "0"), ("1", "1"), ("2", "2"), ("3", "0"), ("4", "1")]
    assert len({path for _, _, path in rows[:3]}) == 1
    assert len({path for _, _, path in rows}) == 2
    assert_nothing_left(embedded)


def test_embedded_coordinator_answers_status(embedded):
    done = run(embedded, "-np", "1", "--agents", "1", "--", GRADBUS, "status", "--json")
    assert done.returncode == 0, done.stderr
    assert '"name":"agent-0"' in done.stdout


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_embedded_daemons(embedded, number, code):
    with started(embedded, "--agents", "2", *RUN_FOREVER) as process:
        read_lines(process.stdout, 3)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == code
        assert_nothing_left(embedded)


def test_a_killed_launcher_leaves_no_embedded_daemon(embedded):
    with started(embedded, "--agents", "2", *RUN_FOREVER) as process:
        read_lines(process.stdout, 3)
        assert list(pathlib.Path(embedded["TMPDIR"]).iterdir())
        process.kill()
        process.wait(DEADLINE_S)
        assert_nothing_left(embedded)


def pid_of_daemon(env, name):
    for pid in processes_with(env["TEST_MARK"]):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.endswith(name.encode()) for word in words[:2]):
            return pid
    pytest.fail(f"no {name} runs")


@pytest.mark.parametrize("name, number", [("gradbus-agent", "GB-A301"), ("gradbus-server", "GB-C501")])
def test_a_killed_embedded_daemon_is_told(embedded, name, number):
    with started(embedded, *RUN_FOREVER) as process:
        read_lines(process.stdout, 3)
        os.kill(pid_of_daemon(embedded, name), signal.SIGKILL)
        assert process.wait(DEADLINE_S) == 1
        told = process.stderr.read()
        assert number in told and "signal 9 (Killed)" in told
        assert_nothing_left(embedded)
