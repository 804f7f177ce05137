"""Traces of real jobs: `gradbus run --timeline`, `gradbus trace`, `gradbus timeline`.

The file is checked against the Trace Event Format as it is documented (complete events "X" with ts and dur in
microseconds, metadata "M"), and against what is known of the job: its steps, the order of phases, sums of time.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

import fork_server
import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
TRAINING = str(rigs.REPOSITORY / "tests" / "system" / "ranks" / "operation" / "traced_training.py")
STEPS = 20
PAUSE_MS = 20
AGENT_KINDS = ["wait for ranks", "reduce", "send", "receive"]


def gradbus(*words, timeout=300, cwd=None):
    return fork_server.run([GRADBUS, *words], text=True, capture_output=True, timeout=timeout, check=False, cwd=cwd)


def spans_of(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def names_of(trace, what):
    return {(e["pid"], e.get("tid")): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == what}


def end(span):
    return span["ts"] + span["dur"]


def union(intervals):
    """Length of the union of [begin, end)."""
    total, reached = 0.0, float("-inf")
    for begin, stop in sorted(intervals):
        total += max(0.0, stop - max(begin, reached))
        reached = max(reached, stop)
    return total


@pytest.fixture(scope="module", params=[1, 2], ids=["one node", "two nodes"])
def traced(request, tmp_path_factory):
    """(number of agents, trace, summary, seconds that the ranks printed) of one traced run."""
    folder = tmp_path_factory.mktemp("trace")
    file = folder / "trace.json"
    ran = gradbus("run", "-np", "2", "--agents", str(request.param), "--embedded", "--job", "traced", "--timeline",
                  str(file), "--", sys.executable, TRAINING, str(STEPS), str(PAUSE_MS))
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"gradbus trace: \d+ spans of job traced in ", ran.stderr), ran.stderr
    summed = gradbus("timeline", str(file), "--json", "--svg", str(folder / "trace.svg"))
    assert summed.returncode == 0, summed.stderr
    printed = {int(rank): float(seconds) for rank, seconds in re.findall(r"\[(\d)\] exposed ([0-9.]+)", ran.stdout)}
    return request.param, file, json.loads(file.read_text()), json.loads(summed.stdout), printed


def test_the_format(traced):
    _, _, trace, _, _ = traced
    assert trace["displayTimeUnit"] == "ms" and trace["otherData"]["job"] == "traced"
    processes, rows = names_of(trace, "process_name"), names_of(trace, "thread_name")
    for event in trace["traceEvents"]:
        assert event["ph"] in "XM" and isinstance(event["pid"], int) and isinstance(event["name"], str)
        if event["ph"] == "M":
            continue
        assert event["dur"] >= 0 and event["cat"] in ("rank", "agent")
        assert (event["pid"], None) in processes and (event["pid"], event["tid"]) in rows
    assert len(spans_of(trace)) == trace["otherData"]["spans"] > 0
    assert trace["otherData"]["dropped"] == 0


def test_every_step_has_its_phases_in_order(traced):
    _, _, trace, summary, _ = traced
    for rank in (0, 1):
        phases = collections.defaultdict(list)
        for span in spans_of(trace):
            if span["pid"] == rank and span["tid"] == 1:
                phases[span["name"]].append(span)
        # The first steps may be over before the agent has told the rank that it is traced.
        assert STEPS - 3 <= len(phases["step"]) <= STEPS
        for name in ("forward", "first", "relu", "second", "backward", "second.weight backward"):
            assert len(phases[name]) >= STEPS - 3, (name, len(phases[name]))
        last = {name: max(spans, key=end) for name, spans in phases.items()}
        assert last["first"]["ts"] >= last["forward"]["ts"] and end(last["second"]) <= end(last["forward"])
        assert end(last["first"]) <= last["second"]["ts"]
        assert end(last["forward"]) <= last["backward"]["ts"]
        assert end(last["backward"]) <= last["step"]["ts"] + last["step"]["dur"]
        assert summary["ranks"][rank]["steps"] == len(phases["step"])


def test_sums_fit_the_wall_time(traced):
    _, _, trace, summary, printed = traced
    for rank in (0, 1):
        spans = [span for span in spans_of(trace) if span["pid"] == rank]
        wall = max(map(end, spans)) - min(span["ts"] for span in spans)
        waits = union((s["ts"], end(s)) for s in spans if s["name"] == "wait")
        shown = summary["ranks"][rank]
        assert shown["wall_us"] == pytest.approx(wall, abs=1)
        assert shown["exposed_us"] == pytest.approx(waits, abs=1)
        assert shown["compute_us"] + shown["exposed_us"] == pytest.approx(wall, abs=1)
        assert shown["exposed_us"] <= shown["communication_us"] + 1 <= wall + 2
        # The optimizer counts the same waits, and those before the trace.
        assert printed[rank] * 1e6 >= 0.8 * shown["exposed_us"] - 2000
    # Rank 1 pauses in every step, and rank 0 waits for it.
    assert summary["ranks"][0]["exposed_us"] > 0.5 * PAUSE_MS * 1000 * (STEPS - 3)
    assert summary["ranks"][1]["exposed_us"] < summary["ranks"][0]["exposed_us"]


def test_agents_and_ranks_agree_on_the_time(traced):
    agents, _, trace, summary, _ = traced
    if agents == 1:
        return
    flights, work = {}, collections.defaultdict(dict)
    for span in spans_of(trace):
        if span["cat"] == "rank" and span["name"] != "in flight":
            continue
        # By the tensor's id, which decides the row: a name may be used again.
        key = span["pid"], (span["tid"] - 16) // 14, span["args"]["round"]
        if span["cat"] == "rank":
            flights[key] = span
        else:
            work[key][span["name"]] = span
    # What clocks may be wrong by, and the time from a post to the agent that sees it.
    slack = summary["clock_error_us"] * 2 + 50
    assert 0 < summary["clock_error_us"] < 2_000_000  # half of a round trip; the machine may be busy
    checked = 0
    for (pid, tensor, number), kinds in work.items():
        rank = pid - 1_000_000  # one rank on each agent
        if (rank, tensor, number) not in flights or not {"send", "receive"} <= set(kinds):
            continue  # a broadcast's root receives nothing
        flight = flights[rank, tensor, number]
        for span in kinds.values():
            assert span["dur"] >= 0
            if span["name"] in ("wait for ranks", "reduce", "send"):
                assert span["ts"] >= flight["ts"] - slack, (span, flight)
        assert kinds["wait for ranks"]["ts"] <= kinds["send"]["ts"]
        assert kinds["receive"]["ts"] <= end(flight) + slack
        assert kinds["send"]["args"]["bytes"] > 0 and kinds["receive"]["args"]["bytes"] > 0
        checked += 1
    assert checked >= 2 * (STEPS - 5)
    buckets = [tensor for tensor in summary["tensors"] if tensor["rounds"] >= STEPS - 3]
    assert buckets and all(set(AGENT_KINDS) <= set(tensor["agents_us"]) for tensor in buckets)


@pytest.mark.parametrize(("schedule", "queues"), [("ddp:budget=1K", True), ("ddp", False)])
def test_rounds_with_a_byte_budget_have_a_queue(tmp_path, schedule, queues):
    file = tmp_path / "trace.json"
    ran = gradbus("run", "-np", "2", "--agents", "2", "--embedded", "--timeline", str(file), "--schedule", schedule,
                  "--", sys.executable, TRAINING, str(STEPS))
    assert ran.returncode == 0, ran.stderr
    kinds = collections.defaultdict(dict)
    for span in spans_of(json.loads(file.read_text())):
        if span["cat"] == "agent":
            kinds[span["pid"], span["args"]["tensor"], span["args"]["round"]][span["name"]] = span
    queued = [names for names in kinds.values() if "queue" in names]
    assert len(queued) >= 2 * (STEPS - 5) if queues else not queued
    for names in queued:
        assert end(names["wait for ranks"]) <= names["queue"]["ts"] + 1
        assert end(names["queue"]) <= names["send"]["ts"] + 1


def test_the_text_and_the_picture(traced):
    _, file, _, summary, _ = traced
    text = gradbus("timeline", str(file)).stdout
    assert "exposed" in text and "hidden" in text and "rank 0" in text and "steps, forward" in text
    assert max(map(len, text.splitlines())) <= 100
    picture = tree.parse(file.with_suffix(".svg")).getroot()
    assert picture.tag.endswith("svg")
    bars = [bar for bar in picture.iter() if bar.tag.endswith("rect") and bar.get("height") == "16.00"]
    assert len(bars) > 8 and all(150 <= float(bar.get("x")) <= 1050 for bar in bars)
    assert len(summary["ranks"]) == 2


@pytest.mark.timeout(240)
def test_a_running_job_is_traced_from_outside(tmp_path):
    """It starts and stops at run time, and the job does not notice."""
    with rigs.cluster(2) as rig:
        ranks = rig.start_job(2, program=[sys.executable, TRAINING, "600", "10"], job="long")
        rig.wait_for_rank(1, "long")
        file = tmp_path / "trace.json"
        done = gradbus("trace", "long", "--seconds", "1", "-o", str(file), "--coordinator",
                       rig.server.ready["address"])
        assert done.returncode == 0, done.stderr
        assert "trace of job \"long\" asked by" in rig.server.text()
        trace = json.loads(file.read_text())
        spans = spans_of(trace)
        length = (max(map(end, spans)) - min(span["ts"] for span in spans)) / 1e6
        assert {span["pid"] for span in spans} == {0, 1, 1_000_000, 1_000_001}
        assert 0.5 < length < 20  # the machine may be busy
        assert [rank.finish(180)[0] for rank in ranks] == [0, 0]


def test_encode_and_decode_of_a_codec(tmp_path):
    file = tmp_path / "trace.json"
    ran = gradbus("run", "-np", "2", "--agents", "2", "--embedded", "--compression", "topk:ratio=0.1", "--timeline",
                  str(file), "--", sys.executable, TRAINING, str(STEPS), "0", "1024")
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(gradbus("timeline", str(file), "--json").stdout)
    kinds = set().union(*(tensor["agents_us"] for tensor in summary["tensors"]))
    assert {"encode", "decode", "send", "receive"} <= kinds


def test_a_client_that_writes_garbage_while_it_is_traced(tmp_path):
    """The ring of spans is memory of the client. What it writes there costs it its spans, and nobody else."""
    with rigs.cluster(1) as rig:
        address = rig.server.ready["address"]
        tracers = [subprocess.Popen(
            [GRADBUS, "trace", f"hostile-5-{number}", "--wait", "--to-the-end", "-o", tmp_path / f"{number}.json",
             "--coordinator", address]) for number in range(4)]
        rigs.wait_until(lambda: rig.server.text().count("trace of job") == len(tracers), what="the traces to begin")
        socket = rig.agents[0].ready["socket"]
        hostile = subprocess.run([rigs.BIN / "hostile_rank", "local_reductions", "5", "4", socket, socket],
                                 capture_output=True, text=True, timeout=60, check=False)
        assert hostile.returncode == 0, hostile
        for tracer in tracers:
            assert tracer.wait(timeout=60) == 0
        for number in range(4):
            json.loads((tmp_path / f"{number}.json").read_text())
        assert all(daemon.alive() for daemon in [*rig.agents, rig.server])
        assert [rank.finish()[0] for rank in rig.start_job(2, "red:x:1000:i64:sum", job="after")] == [0, 0]


@pytest.mark.parametrize("words, error, code", [
    (["trace", "nothing", "--coordinator", "{address}"], "GB-J406", 1),
    (["trace", "nothing", "--wait", "-o", "/nonexistent/t.json", "--coordinator", "{address}"], "GB-F114", 1),
    (["timeline", "/nonexistent/t.json"], "GB-F115", 2),
    (["timeline", "{cut}"], "GB-F115", 2),
    (["timeline", "{other}"], "GB-F115", 2),
    (["timeline", "{wrong}"], "GB-F115", 2),
    (["timeline", "/"], "GB-F115", 2),
])
def test_mistakes_get_one_line(tmp_path, words, error, code):
    (tmp_path / "cut.json").write_text('{"displayTimeUnit":"ms","traceEvents":[\n{"ph":"X"')
    (tmp_path / "other.json").write_text("[1, 2]")
    (tmp_path / "wrong.json").write_text(
        '{"displayTimeUnit":"ms","traceEvents":[\n{"ph":"X","pid":"zero"}\n],"otherData":{"job":"x"}}\n')
    with rigs.cluster(0) as rig:
        files = {name: tmp_path / f"{name}.json" for name in ("cut", "other", "wrong")}
        before = sorted(tmp_path.iterdir())
        done = gradbus(*(word.format(address=rig.server.ready["address"], **files) for word in words), cwd=tmp_path)
        assert sorted(tmp_path.iterdir()) == before  # a file that is there already is not lost by a wrong name
    assert done.returncode == code and done.stderr.startswith(error), done
    assert len(done.stderr.strip().splitlines()) == 1 and "next:" in done.stderr


def test_a_job_that_never_starts_leaves_an_empty_trace(tmp_path):
    file = tmp_path / "trace.json"
    ran = gradbus("run", "-np", "2", "--embedded", "--timeline", str(file), "--", "sh", "-c", "exit 3")
    assert ran.returncode == 3, ran.stderr
    assert json.loads(file.read_text())["otherData"]["spans"] == 0


def test_a_trace_is_for_one_tool_and_a_second_one_begins_anew(tmp_path):
    with rigs.cluster(1) as rig:
        ranks = rig.start_job(2, program=[sys.executable, TRAINING, "1500", "5"], job="twice")
        rig.wait_for_rank(1, "twice")
        words = ["trace", "twice", "--coordinator", rig.server.ready["address"], "--seconds"]
        with subprocess.Popen([GRADBUS, *words, "2", "-o", tmp_path / "first.json"]) as first:
            rigs.wait_until(lambda: (tmp_path / "first.json").exists(), what="the first trace")
            second = gradbus(*words, "1", cwd=tmp_path)
            assert second.returncode == 1 and second.stderr.startswith("GB-C506"), second
            assert "is being traced by another program" in second.stderr
            assert first.wait(timeout=60) == 0
        assert gradbus(*words, "0.5", cwd=tmp_path).returncode == 0
        spans = spans_of(json.loads((tmp_path / "trace.json").read_text()))
        assert min(span["ts"] for span in spans) >= 0
        assert max(map(end, spans)) < 20e6, "spans of the first trace"
        for rank in ranks:
            rank.process.kill()


def test_the_variable_of_horovod(tmp_path):
    file = pathlib.Path(tmp_path) / "horovod.json"
    ran = fork_server.run([GRADBUS, "run", "-np", "2", "--embedded", "--", sys.executable, TRAINING, "3"],
                          env={**rigs.os.environ, "HOROVOD_TIMELINE": str(file)}, capture_output=True, text=True,
                          timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(file.read_text())["otherData"]["spans"] > 0
