"""`gradbus bench` with real processes: columns, JSON, exactness, bad options, and that nothing is left."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid

import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
MODELS = rigs.REPOSITORY / "cli/bench/models"
DEADLINE_S = 120  # starting daemons on a machine with other things to do
COLUMNS = ["size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"]
KEYS = [*COLUMNS, "time_p50", "time_p99", "cpu_s_per_gb", "shards_cpu_s_per_gb", "batch"]


@pytest.fixture
def env():
    """Variables with a word that finds this test's processes again, and a TMPDIR of its own, short as sockets need."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("GRADBUS_")}
    base.pop("XDG_RUNTIME_DIR", None)
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as scratch:
        yield {**base, "TEST_MARK": uuid.uuid4().hex, "TMPDIR": scratch}


def processes_of(env) -> list[str]:
    """Command lines of the processes that have the test's mark."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"TEST_MARK={env['TEST_MARK']}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def assert_nothing_left(env) -> None:
    rigs.wait_until(lambda: not processes_of(env), what="all processes gone")
    rigs.wait_until(lambda: not list(pathlib.Path(env["TMPDIR"]).iterdir()), what="no files left")


def bench(env, *words: str) -> subprocess.CompletedProcess:
    done = subprocess.run([GRADBUS, "bench", *words], env=env, capture_output=True, text=True, timeout=DEADLINE_S,
                          check=False)
    assert_nothing_left(env)
    return done


def rows_of(env, tmp_path, *words: str) -> list[dict]:
    """The rows of a run that must succeed with nothing wrong; the table says the same."""
    file = tmp_path / "rows.json"
    done = bench(env, *words, "--check", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())
    printed = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [line[:2] for line in printed] == [[str(row["size"]), str(row["count"])] for row in rows]
    assert [line[7] for line in printed] == ["0"] * len(rows)
    for row in rows:
        assert row["#wrong"] == 0, row
        assert 0 < row["time"] <= row["time_p50"] <= row["time_p99"], row
    return rows


def test_columns_and_json(env, tmp_path):
    file = tmp_path / "rows.json"
    done = bench(env, "all_reduce", "--ranks", "2", "-b", "4", "-e", "1M", "-f", "64", "-n", "3", "-w", "1", "--check",
                 "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("# gradbus 0.1.0 bench: all_reduce of registered tensors, in place")
    assert "# ranks 2, agents 1, transport tcp, algorithm auto" in lines
    titles = [line for line in lines if line.startswith("#")][-2]
    assert titles.lstrip("#").split() == [*COLUMNS, "p50", "p99"]
    rows = json.loads(file.read_text())
    assert [row["size"] for row in rows] == [4, 256, 16384, 1 << 20]
    for row in rows:
        assert list(row) == KEYS
        assert row["count"] * 4 == row["size"] and row["type"] == "f32" and row["redop"] == "sum"
        assert row["#wrong"] == 0
        assert row["algbw"] == pytest.approx(row["size"] / row["time"] / 1e3)
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * (2 - 1) / 2)
        assert row["cpu_s_per_gb"] > 0
    assert rows[-1]["batch"] == 1 and all(1 <= row["batch"] <= 128 for row in rows)


# Expect: standard output is the JSON and nothing else, the table is on standard error, and no file is made.
@pytest.mark.parametrize("words, titles", [
    (["all_reduce", "--ranks", "2", "--agents", "2", "-b", "4", "-e", "16", "-n", "2", "-w", "1", "--check"],
     COLUMNS[:3]),
    (["codec", "fp16", "--elements", "4096"], ["codec", "encode"]),
    (["machine"], ["stream", "1"])])
def test_json_to_standard_output(env, tmp_path, monkeypatch, words, titles):
    monkeypatch.chdir(tmp_path)
    done = bench(env, *words, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("# gradbus 0.1.0 bench")
    assert any(line.lstrip("# ").split()[: len(titles)] == titles for line in lines), done.stderr
    if words[0] == "all_reduce":
        assert [(row["size"], row["#wrong"]) for row in found] == [(4, 0), (16, 0)]
        assert [line.split()[0] for line in lines if not line.startswith("#")] == ["4", "16"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words, best_of", [([], 5), (["-n", "2"], 2)])
def test_codecs_are_timed_as_often_as_asked(env, words, best_of):
    done = bench(env, "codec", "fp16", "--elements", "4096", *words)
    assert done.returncode == 0, done.stderr
    assert f"one core, best of {best_of}\n" in done.stdout


@pytest.mark.parametrize("collective, factor, in_blocks", [
    ("all_reduce", 2 * 2 / 3, False), ("reduce_scatter", 2 / 3, True), ("all_gather", 2 / 3, True),
    ("broadcast", 1, False), ("reduce", 1, False), ("gather", 2 / 3, True), ("scatter", 2 / 3, True),
    ("all_to_all", 2 / 3, True)])
def test_every_collective_is_right(env, tmp_path, collective, factor, in_blocks):
    rows = rows_of(env, tmp_path, collective, "--ranks", "3", "--agents", "2", "-b", "8", "-e", "600K", "-f", "300",
                   "-n", "2", "-w", "1", "--private")
    blocks = 3 if in_blocks else 1
    for row, asked in zip(rows, (8, 2400)):
        assert row["count"] == asked // 4 // blocks and row["size"] == row["count"] * blocks * 4
        assert row["busbw"] == pytest.approx(row["algbw"] * factor)


@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter"])
@pytest.mark.parametrize("agents", ["1", "2"])
def test_registered_tensors_are_right(env, tmp_path, collective, agents):
    root = [] if collective != "reduce" else ["--root", "2"]
    rows = rows_of(env, tmp_path, collective, "--ranks", "3", "--agents", agents, "-b", "300K", "-e", "300K",
                   "-n", "2", "-w", "1", "--dtype", "bf16", "--op", "average", *root)
    assert rows[0]["redop"] == "average" and rows[0]["type"] == "bf16"


@pytest.mark.parametrize("dtype, op", [("f16", "max"), ("i8", "min"), ("f64", "product"), ("i64", "bit_and"),
                                       ("bool", "bit_or"), ("u8", "sum"), ("f32", "adasum"), ("i16", "average"),
                                       ("u16", "product"), ("u32", "max"), ("u64", "sum")])
def test_operations(env, tmp_path, dtype, op):
    rows_of(env, tmp_path, "all_reduce", "--ranks", "2", "--private", "-b", "40000", "-e", "40000", "-n", "1",
            "-w", "0", "--dtype", dtype, "--op", op)


@pytest.mark.parametrize("algorithm", ["ring", "chain", "halving_doubling", "recursive_doubling", "tree"])
def test_algorithms(env, tmp_path, algorithm):
    rows_of(env, tmp_path, "all_reduce", "--ranks", "3", "--agents", "3", "--algorithm", algorithm, "-b", "400K",
            "-e", "400K", "-n", "1", "-w", "0")


# Expect: the daemons get what is said here. The coordinator refuses to be deterministic by such an algorithm, and an
# agent has no transport between processes by that name.
# Expect: what shards sum is the sum, from nothing to many chunks; the rows say the mode.
@pytest.mark.parametrize("agents", ["1", "3"])
def test_shards_sum_exactly(env, tmp_path, agents):
    rows = rows_of(env, tmp_path, "all_reduce", "--ranks", "3", "--agents", agents, "--shards", "2", "--mode",
                   "ps:sync", "-b", "0", "-e", "16M", "-f", "64", "-n", "5")
    assert {row["mode"] for row in rows} == {"ps:sync"} and rows[-1]["size"] >= 1 << 20


def test_options_reach_the_daemons(env):
    env["GRADBUS_SERVER_DETERMINISTIC"] = "true"
    done = bench(env, "all_reduce", "--algorithm", "ring", "-e", "4")
    assert done.returncode == 1 and "--algorithm=ring does not give the same bits" in done.stderr
    del env["GRADBUS_SERVER_DETERMINISTIC"]
    done = bench(env, "all_reduce", "--agents", "2", "--transport", "loopback", "-e", "4")
    assert done.returncode == 1 and "loopback" in done.stderr


@pytest.mark.skipif(subprocess.call(["unshare", "--net", "true"], stderr=subprocess.DEVNULL) != 0,
                    reason="network namespaces need root")
def test_links_limit_the_rate(env, tmp_path):
    (row,) = rows_of(env, tmp_path, "all_reduce", "--ranks", "2", "--agents", "2", "--link", "100mbit", "-b", "2M",
                     "-e", "2M", "-n", "1", "-w", "0")
    assert row["algbw"] < 0.014, "100 Mbit/s are 12.5 MB/s"


def test_barrier(env, tmp_path):
    (row,) = rows_of(env, tmp_path, "barrier", "--ranks", "2", "-n", "5")
    assert row["size"] == 0 and row["type"] == "none" and row["algbw"] == 0 and row["cpu_s_per_gb"] is None


@pytest.mark.parametrize("options", [[], ["--fuse", "25M", "--private"]])
def test_model(env, tmp_path, options):
    (row,) = rows_of(env, tmp_path, "all_reduce", "--ranks", "2", "--model", "resnet50", "-n", "1", "-w", "0", *options)
    assert row["model"] == "resnet50" and row["size"] == 4 * 25_557_032


def test_tables_of_models_are_what_their_script_writes(tmp_path):
    subprocess.run([sys.executable, MODELS / "write_tables.py", tmp_path], check=True, timeout=DEADLINE_S)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in MODELS.glob("*.csv")}


# Expect: where ranks bring other data than they should, elements are counted as wrong and the exit status is 1.
def test_wrong_elements_are_counted(env, tmp_path):
    program = str(rigs.BIN / "gradbus-bench-rank")
    file = tmp_path / "rows.json"
    words = f"exec {program} all_reduce -b 4K -e 4K -n 1 -w 0 --check --json {file} --seed $GRADBUS_RANK"
    done = subprocess.run([GRADBUS, "run", "-np", "2", "--embedded", "--", "sh", "-c", words], env=env, text=True,
                          capture_output=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert "GB-D610 WRONG_RESULT" in done.stderr
    (row,) = json.loads(file.read_text())
    assert row["#wrong"] > 1024, "most of 1024 elements, twice at least"
    assert_nothing_left(env)


def test_a_command_without_its_programs_names_them(env, tmp_path):
    alone = shutil.copy(rigs.BIN / "gradbus", tmp_path)
    done = subprocess.run([alone, "bench", "all_reduce", "--ranks", "2"], env=env, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False)
    assert done.returncode == 2
    assert "gradbus-bench-rank is not there" in done.stderr and "build the target" in done.stderr, done.stderr


def test_machine(env, tmp_path):
    file = tmp_path / "machine.json"
    done = bench(env, "machine", "--json", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    cores = len(os.sched_getaffinity(0))
    assert found["cores"] == cores
    for stream in ("read", "add", "copy", "mix_2r2w"):
        rates = found[f"{stream}_gbs"]
        assert len(rates) == 2 and min(rates) > 0.01, stream
        assert f"  {stream} " in done.stdout
    for signalled in ("queue_one_way_ns", "futex_one_way_ns"):
        assert signalled in found and (found[signalled] is None or found[signalled] > 1)


@pytest.mark.parametrize("words, told", [
    (["all_redvce"], 'did you mean: gradbus bench all_reduce'),
    (["tickle"], "take one of: all_reduce, "),
    ([], "GB-F100"),
    (["all_reduce", "--ranks", "0"], "GB-J401"),
    (["all_reduce", "--ranks", "2", "--agents", "3"], "GB-H200 BAD_LAUNCH: 3 agents for 2 ranks"),
    (["all_reduce", "-b", "12Q"], '-b is "12Q"'),
    (["all_reduce", "-n", "0"], "GB-F100"),
    (["all_reduce", "-f", "1"], "GB-F100"),
    (["all_reduce", "--op", "mean"], '--op is "mean"'),
    (["all_reduce", "--transport", "pigeon"], '--transport is "pigeon"'),
    (["all_reduce", "--algorithm", "circle"], '--algorithm is "circle"'),
    (["all_reduce", "--algorithm", "rin"], "did you mean: --algorithm ring; take one of: auto, ring, "),
    (["all_reduce", "--algorithm", "shards"], "did you mean: --mode ps:sync --shards 1; take one of: auto, ring, "),
    (["all_reduce", "--model", "alexnet"], 'no model "alexnet"'),
    (["all_reduce", "--json", "/nowhere/at/all.json"], "--json /nowhere/at/all.json cannot be written: No such file"),
    (["all_reduce", "--rank", "2"], "did you mean: --ranks"),
    (["all_reduce", "--link", "1gbit"], "--link needs at least two agents"),
    (["all_reduce", "--", "true"], "starts its own ranks"),
    (["machine", "--ranks", "2"], "--ranks has no meaning for the machine"),
])
def test_bad_options_are_named(env, words, told):
    done = bench(env, *words)
    assert done.returncode == 2 and told in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and "| next: " in done.stderr


# Expect: Ctrl-C ends ranks and daemons, and the file holds the rows that were complete.
@pytest.mark.parametrize("options, rows", [(["-e", "4", "-n", "10000000"], 0), (["-e", "256M", "-n", "2000"], 1)])
def test_interrupt_leaves_nothing(env, tmp_path, options, rows):
    file = tmp_path / "rows.json"
    command = [GRADBUS, "bench", "all_reduce", "--ranks", "2", "--agents", "2", "-b", "4", "-f", "1024", *options,
               "-w", "1", "--json", str(file)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = iter(process.stdout.readline, "")
        assert any("(elements)" in line for line in printed)
        for _ in range(rows):
            assert not next(printed).startswith("#")
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 128 + signal.SIGINT
    assert_nothing_left(env)
    assert len(json.loads(file.read_text())) >= rows
