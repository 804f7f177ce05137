"""`gradbus plan` as a user runs it: tables, JSON, profiles, and one line for each mistake."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("GRADBUS_BIN", ROOT / "build" / "release" / "bin"))
CLUSTER = ("--nodes", "16", "--bandwidth", "25G", "--latency", "10us")
SCHEDULES = ["wfbp", "ddp", "fusion", "bytescheduler", "mg-wfbp", "dear", "mergecomp", "auto"]
MODELS = ["resnet50", "resnet101", "vgg16", "densenet201", "bert-base", "bert-large", "mlp"]


def plan(*words):
    return subprocess.run([str(BIN / "gradbus"), "plan", *words], text=True, capture_output=True, timeout=60)


def plan_json(*words):
    result = plan(*words, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def profile(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_text(text)
    return str(path)


# Two layers of 1,000,000 bytes, 1 ms forward and 2 ms backward each.
PROFILE = json.dumps({"name": "mine", "layers": [
    {"name": name, "elements": 250_000, "forward_us": 1000, "backward_us": 2000} for name in ("a", "b")]})


def test_it_prints_every_schedule_a_timeline_and_a_recommendation():
    result = plan("--model", "resnet50", *CLUSTER)
    assert result.returncode == 0 and result.stderr == ""
    rows = [line.split()[0] for line in result.stdout.splitlines() if line.rstrip().split()[2:3] == ["ms"]]
    assert [row for row in rows if row in SCHEDULES] == SCHEDULES
    streams = [line.split() for line in result.stdout.splitlines() if line.startswith(("  compute", "  link"))]
    assert [name for name, _ in streams] == ["compute", "link"]
    assert len(streams[0][1]) == len(streams[1][1]) == 66
    assert streams[0][1].startswith("F") and "A" in streams[1][1]
    assert result.stdout.splitlines()[-1].split()[1] in SCHEDULES
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_planned_and_auto_is_never_slower(model):
    report = plan_json("--model", model, *CLUSTER)
    times = {row["schedule"]: row["iteration_us"] for row in report["schedules"]}
    assert list(times) == SCHEDULES
    assert times["auto"] <= min(times.values()) * (1 + 1e-6)
    assert all(us >= report["compute_us"] * (1 - 1e-9) for us in times.values())
    for row in report["schedules"]:
        assert row["efficiency"] == pytest.approx(report["compute_us"] / row["iteration_us"])
        assert row["exposed_us"] == pytest.approx(row["iteration_us"] - report["compute_us"], abs=1e-3)


# Two nodes in a ring at 8 Gbit/s, 100 us a message: 2 * 100 us + 1,000,000 B * 1 ns = 1.2 ms for each layer.
# Ready at 4 and 6 ms after the step's start; the second exchange ends at 7.2 ms.
def test_a_profile_gives_the_time_that_is_worked_by_hand(tmp_path):
    report = plan_json("--profile-file", profile(tmp_path, PROFILE), "--nodes", "2", "--bandwidth", "8gbit",
                       "--latency", "100us", "--algorithm", "ring", "--schedule", "wfbp")
    row = report["schedules"][0]
    assert row["schedule"] == report["shown"] == "wfbp"
    assert row["iteration_us"] == pytest.approx(7200)
    assert row["exposed_us"] == pytest.approx(1200)
    exchanges = [(i["begin_us"], i["end_us"]) for i in report["timeline"] if i["stream"] == "link"]
    assert exchanges == [pytest.approx((4000, 5200)), pytest.approx((6000, 7200))]


# The exchanges of the profile above take 1.2 ms each, and both layers together 2.2 ms.
@pytest.mark.parametrize(
    ("words", "us"),
    [
        (["delayed:k=2"], 6000),
        (["delayed:k=2", "--bandwidth", "800mbit"], 2 * 10_200),
        (["ps:sync", "--shards", "2"], 7200),
        (["ps:sync", "--shards", "1"], 4000 + 2 * 2200),
    ],
)
def test_a_mode_changes_the_time_of_a_step(tmp_path, words, us):
    report = plan_json("--profile-file", profile(tmp_path, PROFILE), "--nodes", "2", "--latency", "100us",
                       *([] if "--bandwidth" in words else ["--bandwidth", "8gbit"]), "--algorithm", "ring",
                       "--schedule", "wfbp", "--mode", *words)
    assert report["mode"] == words[0] and report["shards"] == int(dict(zip(words, words[1:])).get("--shards", 0))
    assert report["schedules"][0]["iteration_us"] == pytest.approx(us)
    assert bool(report["timeline"]) == words[0].startswith("ps:")


def test_a_mode_that_exchanges_parameters_has_no_schedules(tmp_path):
    words = ["--profile-file", profile(tmp_path, PROFILE), "--nodes", "2", "--bandwidth", "8gbit", "--latency",
             "100us", "--algorithm", "ring", "--mode", "localsgd:H=4"]
    report = plan_json(*words)
    assert [row["schedule"] for row in report["schedules"]] == ["none"] == [report["recommended"]]
    assert report["schedules"][0]["iteration_us"] == pytest.approx(6000 + 2200 / 4)
    text = plan(*words).stdout
    assert "mode localsgd:H=4" in text and "parameters are exchanged every 4 steps" in text


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["localsgd", "--schedule", "dear"], "exchanges no gradients"),
        (["gossip"], "exchanges in the background"),
        (["ps:sync"], "for example: --shards 4"),
        (["delayed", "--shards", "4"], "it uses no shards"),
        (["delayd"], "delayed"),
    ],
)
def test_a_mode_without_a_formula_is_refused(words, part):
    refused = plan("--model", "resnet50", *CLUSTER, "--mode", *words)
    assert refused.returncode == 2 and part in refused.stderr, refused


def test_computing_times_can_be_replaced():
    assert plan_json("--model", "vgg16", *CLUSTER, "--compute-ms", "77")["compute_us"] == pytest.approx(77_000)


def test_a_codec_is_used_where_it_pays_and_only_there():
    slow = ("--model", "bert-base", "--nodes", "8", "--bandwidth", "1G")
    dense = plan_json(*slow)["schedules"][-1]["iteration_us"]
    assert plan_json(*slow, "--codec", "onebit")["schedules"][-1]["iteration_us"] < dense / 4
    # One that is slower than the link: auto stays dense.
    bad = plan_json(*slow, "--codec", "topk:encode_ns=1000")["schedules"][-1]
    assert bad["iteration_us"] == pytest.approx(dense, rel=1e-6)


def test_a_schedule_that_cannot_carry_the_codec_says_so():
    rows = plan_json("--model", "resnet50", *CLUSTER, "--codec", "topk")["schedules"]
    assert "cannot carry the codec topk" in rows[SCHEDULES.index("dear")]["error"]
    forced = plan("--model", "resnet50", *CLUSTER, "--codec", "topk", "--schedule", "dear")
    assert forced.returncode == 2 and "cannot carry the codec topk" in forced.stderr


def test_a_thousand_nodes_are_planned():
    report = plan_json("--model", "densenet201", "--nodes", "1024", "--bandwidth", "10G")
    assert len(report["schedules"]) == len(SCHEDULES)


MISTAKES = {
    "no model": ((), "GB-F100", "one of --model, --profile-file, --replay"),
    "both": (("--model", "mlp", "--profile-file", "x"), "GB-F100", "one of --model, --profile-file, --replay"),
    "unknown model": (("--model", "resnet51"), "GB-F100", 'did you mean "resnet50"?'),
    "unknown schedule": (("--model", "mlp", "--schedule", "deer"), "GB-F100", 'did you mean "dear"?'),
    "unknown codec": (("--model", "mlp", "--codec", "topq"), "GB-O910", 'did you mean "topk"?'),
    "no bandwidth": (("--model", "mlp", "--bandwidth", "0G"), "GB-F100", "--bandwidth"),
    "odd bandwidth": (("--model", "mlp", "--bandwidth", "25X"), "GB-F100", "--bandwidth"),
    "odd latency": (("--model", "mlp", "--latency", "10"), "GB-F100", "--latency"),
    "no nodes": (("--model", "mlp", "--nodes", "0"), "GB-F100", '--nodes: "0" is not a whole number in 1..'),
    "odd nodes": (("--model", "mlp", "--nodes", "many"), "GB-F100", "--nodes"),
    "odd algorithm": (("--model", "mlp", "--algorithm", "star"), "GB-F100", "has no formula"),
    "odd compute": (("--model", "mlp", "--compute-ms", "-1"), "GB-F100", "--compute-ms"),
    "budget": (("--model", "mlp", "--schedule", "bytescheduler", "--budget-bytes", "4096"), "GB-F100",
               "a budget of 4096 bytes in flight"),
    "groups": (("--model", "mlp", "--schedule", "mergecomp", "--groups", "4"), "GB-F100", "but mlp has 3"),
    "no file": (("--profile-file", "/nowhere/p.json"), "GB-F102", "/nowhere/p.json cannot be read"),
    "folder": (("--profile-file", "/"), "GB-F102", "the profile / cannot be read"),
    "unknown option": (("--model", "mlp", "--modell", "x"), "GB-F101", "did you mean: --model"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_line(name):
    words, number, part = MISTAKES[name]
    result = plan("--nodes", "4", *words) if "--nodes" not in words else plan(*words)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith(number + " ") and "| next: " in result.stderr
    assert part in result.stderr


@pytest.mark.parametrize("part", [0, 0.3, 0.9])
def test_a_truncated_profile_is_named(tmp_path, part):
    path = profile(tmp_path, PROFILE[:int(len(PROFILE) * part)])
    result = plan("--profile-file", path, *CLUSTER)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"GB-F102 BAD_FILE: {path}: this is no JSON, or it is cut short | next: " in result.stderr


RECORDED = {**json.loads(PROFILE), "recorded": {"ranks": 4, "nodes": 2, "schedule": "auto", "step_us": 7500.0,
                                                "network": {"startup_us": 200.0, "byte_ns": 1.0}}}


def test_a_recording_is_replayed_on_its_own_network_and_on_others(tmp_path):
    path = profile(tmp_path, json.dumps(RECORDED))
    # 200 us and 1 ns a byte between two nodes: 100 us a message, 8 Gbit/s.
    own = plan_json("--replay", path)
    assert own["nodes"] == 2 and own["latency_us"] == 100 and own["bits_per_second"] == 8e9
    same = plan_json("--profile-file", path, "--nodes", "2", "--bandwidth", "8gbit", "--latency", "100us")
    assert own["schedules"] == same["schedules"] and own["recorded_step_us"] == 7500
    other = plan_json("--replay", path, "--nodes", "4", "--bandwidth", "80G", "--schedule", "dear")
    assert other["nodes"] == 4 and other["bits_per_second"] == 80e9 and other["shown"] == "dear"
    assert "recorded: 7.50 ms a step with auto, 4 ranks on 2 nodes" in plan("--replay", path).stdout


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (PROFILE, 'there is no part "recorded"'),
        (json.dumps({**RECORDED, "recorded": {"ranks": 2}}), "does not say how long a step took"),
        (json.dumps(RECORDED)[:200], "cut short"),
    ],
)
def test_what_is_no_recording_is_named(tmp_path, text, part):
    result = plan("--replay", profile(tmp_path, text))
    assert result.returncode == 2 and result.stdout == "" and result.stderr.count("\n") == 1
    assert result.stderr.startswith("GB-F102 ") and part in result.stderr


def test_profile_runs_a_program_and_says_when_it_records_nothing(tmp_path):
    program = tmp_path / "recorder.py"
    program.write_text(f"import os; open(os.environ['GRADBUS_RECORD'], 'w').write({json.dumps(json.dumps(RECORDED))})")
    report = json.loads(plan("--profile", "--nodes", "4", "--json", "--", "python3", str(program)).stdout)
    assert report["recorded_step_us"] == 7500 and report["nodes"] == 4
    for command, part in ((["true"], "has recorded nothing"), (["sh", "-c", "exit 7"], "sh ended with 7"),
                          (["/nowhere/x"], "cannot be started")):  # fmt: skip
        result = plan("--profile", "--nodes", "4", "--", *command)
        assert result.returncode == 2 and part in result.stderr, result
    assert "belong together" in plan("--profile", "--nodes", "4").stderr
