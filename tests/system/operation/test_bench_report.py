"""scripts/bench: the report's ratios, limits and verdicts, from recorded inputs worked by hand; and that
what a command starts ends with it. The figures below are made so that each answer is a round number."""

import copy
import json
import pathlib
import signal
import subprocess
import sys

import pytest
import rig

sys.path.insert(0, str(rig.REPOSITORY / "scripts"))
from bench import campaign, entrants, experiments, facts, limits, lines, models, process, report, results  # noqa: E402

MIB = 1 << 20
DEADLINE_S = 30


def entrant(name, ours, cells, wrong=0):
    """An entrant whose cells are {cell: (times of rounds, medians of rounds)}."""
    kept = results.new_entrant(name, ours, [f"run {name}"])
    for cell, (best, medians) in cells.items():
        for time_best, time_p50 in zip(best, medians):
            results.add_row(kept, cell, {"time": time_best, "time_p50": time_p50, "#wrong": wrong})
    return kept


def experiment(name, kind, limit, *members, size=0):
    return {**results.new_experiment(name, f"About {name}", limit, list(members)), "kind": kind, "size": size,
            "rounds": 2}


def recorded():
    """Two ranks locally, TCP and a storm. 1 MiB at 4 bytes of traffic a byte is 4,194,304 bytes: at
    41.94304 GB/s that takes 100 us."""
    local = experiment(
        "local-2", "sizes", limits.memory_limit(4),
        entrant("Gradbus", True, {str(MIB): ([125, 130], [140, 160]), "4": ([0.5], [0.5]), "4096": ([2], [2])}),
        entrant("Open MPI", False, {str(MIB): ([700, 500], [900, 600]), "4": ([0.4], [0.6]), "4096": ([5], [6])}),
        entrant("Gloo", False, {str(MIB): ([1000], [1200]), "4": ([0.1], [0.1])}))
    tcp = experiment(
        "tcp-2", "sizes", limits.tcp_limit(),
        entrant("Gradbus", True, {str(100 * MIB): ([50000], [50000])}),
        entrant("Open MPI, TCP", False, {str(100 * MIB): ([100000], [100000])}))
    storm = experiment(
        "storm-resnet50", "forms", limits.memory_limit(4),
        entrant("Gradbus", True, {"arena": ([10000], [10000])}),
        entrant("Open MPI", False, {"sequential": ([90000], [90000]), "fused": ([30000], [50000])}), size=MIB)
    link = experiment("link-2", "sizes", limits.link_limit(2, 1.0),
                      entrant("Gradbus", True, {str(100 * MIB): ([873813.3333], [880000])}))
    return {
        "machine": {"processor": "P", "cores": 2, "caches": "L2 1M", "memory_gib": 4, "kernel": "6",
                    "load_at_start": 0},
        "versions": {"Open MPI": "4.1.4"}, "date": "2026-01-01 00:00 UTC", "commit": "abc",
        "command": "scripts/bench.sh", "minutes": 1.0, "experiments": [local, tcp, storm, link],
        "rates": {"machine": {"mix_2r2w_gbs": [21.0, 41.94304], "queue_one_way_ns": 100},
                  "iperf3_bidir_gbs": 4.194304},
        "costs": [{"name": "Gradbus", "cpu_s_per_gb": 0.25}, {"name": "MPICH", "problem": "it is missing"}],
        "idle": {"no_job": 0.0, "idle_job": 0.002},
    }  # fmt: skip


def verdict(measured, words):
    return next(v for v in lines.judge_all(measured) if words in v.promise.label)


def test_ratio_is_best_peer_over_ours():
    found = verdict(recorded(), "1 to 256 MiB, beside the best peer")
    assert found.peer == "Open MPI" and found.ours_us == 125 and found.peer_us == 500
    assert found.ratio == pytest.approx(4.0), "500 / 125"
    assert found.ratio_median == pytest.approx(750 / 150), "medians of the rounds: 750 and 150"
    assert found.words() == "missed by 20.0%", "4x of 5x"


def test_share_is_limit_over_ours():
    found = verdict(recorded(), "beside what memory allows")
    assert found.limit_us == pytest.approx(100.0) and found.share == pytest.approx(0.8)
    assert found.words() == "met"
    # 100 MiB each way at 4.194304 GB/s in both directions together: 50 ms, which is what it took.
    assert verdict(recorded(), "beside `iperf3 --bidir`").share == pytest.approx(1.0)


def test_of_two_measurements_of_the_machine_the_better_figures_count():
    before = {"read_gbs": [10, 20], "queue_one_way_ns": 50, "machine": "m"}
    after = {"read_gbs": [11, 19], "queue_one_way_ns": 60, "machine": "m"}
    best = {"read_gbs": [11, 20], "queue_one_way_ns": 50, "machine": "m"}
    assert facts.best_rates(before, after) == best
    assert facts.best_rates({"problem": "busy"}, after) == after
    assert facts.best_rates(before, {"problem": "busy"}) == before


def test_line_rate_is_the_raw_one():
    found = verdict(recorded(), "1 Gbit/s, 2 agents")
    # 104,857,600 bytes out per rank at 125 MB/s: 838.8608 ms; 96 % of the time taken.
    assert found.limit_us == pytest.approx(838860.8) and found.share == pytest.approx(0.96)
    three = limits.link_limit(3, 1.0)
    assert limits.link_us(three, 3_000_000) == pytest.approx(32000), "4 MB at 125 MB/s"


def test_only_the_named_peer_counts():
    found = verdict(recorded(), "4 B, beside Open MPI")
    assert found.ratio == pytest.approx(0.8) and found.words() == "missed by 20.0%", "Gloo's 0.1 us is not asked for"
    assert verdict(recorded(), "4 KiB, beside Open MPI").ratio == pytest.approx(2.5)


def test_best_form_of_a_peer_counts():
    found = verdict(recorded(), "gradients of resnet50")
    assert found.peer == "Open MPI (fused)" and found.ratio == pytest.approx(3.0)
    assert found.words() == "missed by 25.0%"


def test_worst_size_decides():
    measured = recorded()
    for member, time_us in zip(measured["experiments"][0]["entrants"], (400, 1200)):
        results.add_row(member, str(4 * MIB), {"time": time_us, "time_p50": time_us})
    found = verdict(measured, "1 to 256 MiB, beside the best peer")
    assert found.cell == str(4 * MIB) and found.ratio == pytest.approx(3.0) and found.several
    assert found.words() == "missed by 40.0% (without Gloo)", "Gloo has no time for 4 MiB"


def test_wrong_results_do_not_count():
    measured = recorded()
    gradbus, openmpi, _ = measured["experiments"][0]["entrants"]
    openmpi["cells"][str(MIB)]["wrong"] = 1
    assert verdict(measured, "1 to 256 MiB, beside the best peer").peer == "Gloo"
    gradbus["cells"][str(MIB)]["wrong"] = 1
    assert verdict(measured, "beside what memory allows").words() == "not measured: its result was wrong"


def test_what_is_missing_is_said():
    measured = recorded()
    gradbus = measured["experiments"][0]["entrants"][0]
    gradbus["cells"] = {}
    results.add_problem(gradbus, "exit status 2: no command bench | next: update", "gradbus bench")
    results.add_problem(gradbus, "exit status 2: no command bench | next: update", "gradbus bench again")
    measured["rates"] = {"machine": {"problem": "not there"}, "iperf3_problem": "cannot start iperf3"}
    found = verdict(measured, "1 to 256 MiB, beside the best peer")
    assert found.words() == "not measured: exit status 2: no command bench | next: update"
    assert verdict(measured, "beside `iperf3").words() == "not measured: its limit was not measured"
    assert verdict(measured, "4 agents").words() == "not measured: left out of this run"
    assert len(gradbus["problems"]) == 1


def training_verdict(share):
    """Steps of 100 ms beside DDP's 110 ms, of which `share` is communication."""
    ours, peer = (entrant(name, name == "Gradbus", {"mlp": ([time_us], [time_us])})
                  for name, time_us in (("Gradbus", 100e3), ("DistributedDataParallel", 110e3)))  # fmt: skip
    peer["cells"]["mlp"]["share"] = [share]
    measured = {**recorded(), "experiments": [experiment("train-local", "programs", None, ours, peer)]}
    return verdict(measured, "training step of mlp, one machine, beside Dist")


def test_a_peer_without_a_time_is_named():
    measured = recorded()
    storm = measured["experiments"][2]
    storm["entrants"].append(results.new_entrant("Open MPI, coll/sm", False, ["run"]))
    assert verdict(measured, "gradients of resnet50").words() == "missed by 25.0% (without Open MPI, coll/sm)"


def test_training_promise_needs_communication():
    assert training_verdict(0.5).words() == "missed by 8.3%", "1.1x of 1.2x"
    assert training_verdict(0.2).words() == "no promise: communication is 20% of the peer's step"


def test_report_holds_every_promise_and_a_picture(tmp_path):
    path = report.write(recorded(), tmp_path)
    text = path.read_text()
    for promise in (*lines.PROMISES, *lines.TRAINING):
        assert promise.label in text
    assert ("| 2 local ranks, arena, 1 to 256 MiB, beside the best peer | 125 us | Open MPI 500 us "
            "| 4x | 5x | 5x | 100 us | 80.0 % | missed by 20.0% |") in text
    assert "| 1 MiB | 125 us (150 us) | 500 us (750 us) | 1 ms (1.2 ms) | 100 us |" in text
    assert "| Gradbus | 0.25 |" in text and "| MPICH | - (it is missing) |" in text
    assert "| an idle job | 0.2 % | under 0.5 % | met |" in text
    picture = (tmp_path / "collectives/local-2.svg").read_text()
    assert "Open MPI" in picture and "limit" in picture and "25 MiB" not in picture


def test_same_figures_give_the_same_files(tmp_path):
    for name in ("a", "b"):
        report.write(copy.deepcopy(recorded()), tmp_path / name)
    for left in (tmp_path / "a").rglob("*.*"):
        assert left.read_bytes() == (tmp_path / "b" / left.relative_to(tmp_path / "a")).read_bytes()


def test_bars_of_an_error_do_not_break_the_table(tmp_path):
    measured = recorded()
    measured["costs"] = [{"name": "Gradbus", "problem": "GB-F101: no bench | next: update"}]
    assert "| Gradbus | - (GB-F101: no bench \\| next: update) |" in report.write(measured, tmp_path).read_text()


def test_rows_that_were_done_survive_a_deadline():
    whole = '[{"size": 4, "time": 1}\n,{"size": 8, "time": 2}\n]'
    assert [row["size"] for row in results.parse_rows("noise\n" + whole)] == [4, 8]
    indented = json.dumps(json.loads(whole), indent=1)
    assert [row["size"] for row in results.parse_rows(indented)] == [4, 8]
    cut_inside_the_second = whole[: whole.index("8")]
    assert [row["size"] for row in results.parse_rows(cut_inside_the_second)] == [4]
    with pytest.raises(ValueError):
        results.parse_rows("Killed")


def test_sweeps_give_exactly_the_sizes():
    for sizes in ([4], [4, 16, 64, 26214400], [4, 64, 256, 4096, 65536], [1, 3, 9, 10]):
        found = []
        for first, last, factor in entrants.sweeps(sizes):
            size = first
            while size <= last:
                found.append(size)
                size *= factor
        assert found == sizes


def test_models_have_their_published_sizes():
    assert (len(models.resnet50()), sum(models.resnet50())) == (161, 25_557_032)
    assert (len(models.bert_base()), sum(models.bert_base())) == (199, 109_482_240)
    assert models.resnet50()[0] == 1000 and models.resnet50()[-1] == 7 * 7 * 3 * 64, "backward order"


def python(code):
    return [sys.executable, "-c", code]


def test_deadline_ends_everything_a_command_started(tmp_path):
    """A launcher that ignores SIGTERM, and a child of it in a session of its own."""
    code = f"""
import os, pathlib, signal, sys, time
sys.path.insert(0, {str(rig.REPOSITORY / "scripts")!r})
from bench import process
process.GRACE_S = 0.5
process.become_reaper()
stubborn = '''
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid))
time.sleep(600)
'''
done = process.run([sys.executable, "-c", stubborn], 5)
print(done.problem, process.children())
"""
    done = subprocess.run(python(code), text=True, capture_output=True, timeout=DEADLINE_S * 2, check=True)
    assert done.stdout.strip() == "not finished in 5 s []"
    child = int((tmp_path / "child").read_text())
    assert not pathlib.Path(f"/proc/{child}").exists()


def test_deadline_is_polite_first(tmp_path):
    """What ends well on SIGTERM (and removes its network namespaces) gets the chance to."""
    code = f"""
import sys
sys.path.insert(0, {str(rig.REPOSITORY / "scripts")!r})
from bench import process
process.become_reaper()
polite = '''
import pathlib, signal, sys, time
def leave(*_):
    pathlib.Path({str(tmp_path / "cleaned")!r}).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
time.sleep(600)
'''
process.run([sys.executable, "-c", polite], 5)
"""
    subprocess.run(python(code), timeout=DEADLINE_S * 2, check=True)
    assert (tmp_path / "cleaned").exists()


def test_interrupt_ends_the_command(tmp_path):
    code = f"""
import pathlib, sys
sys.path.insert(0, {str(rig.REPOSITORY / "scripts")!r})
from bench import process
process.become_reaper()
process.interrupt_on_terminate()
child = "import os, pathlib, time; pathlib.Path({str(tmp_path / "child")!r}).write_text(str(os.getpid()))"
child += "; time.sleep(600)"
try:
    process.run([sys.executable, "-c", child], 600)
except KeyboardInterrupt:
    print("interrupted")
"""
    runner = subprocess.Popen(python(code), text=True, stdout=subprocess.PIPE)
    try:
        path = tmp_path / "child"
        rig.wait_until(lambda: path.exists() and path.read_text(), DEADLINE_S, "the command's start")
        runner.send_signal(signal.SIGTERM)
        output, _ = runner.communicate(timeout=DEADLINE_S)
    finally:
        runner.kill()
        runner.wait()
    assert output.strip() == "interrupted"
    assert not pathlib.Path(f"/proc/{int(path.read_text())}").exists()


def test_campaign_takes_turns_and_notes_what_fails():
    """Two real commands a round; the second one prints rows, the first one does not exist."""
    rows = "[0]<stdout>:" + json.dumps([{"size": 4, "time": 2.0, "time_p50": 3.0, "#wrong": 0}])
    members = (entrants.Entrant("Gradbus", True, (entrants.Command(("/no/such/program",)),)),
               entrants.Entrant("Gloo", False, (entrants.Command(tuple(python(f"print('{rows}')"))),)))
    about = experiments.Experiment("local-2", "Two ranks", "sizes", members, limits.memory_limit(4))
    runs = campaign.Campaign([about], campaign.Clock(DEADLINE_S))
    runs.run(2)
    gradbus, gloo = runs.measured[0]["entrants"]
    assert runs.measured[0]["rounds"] == 2 and gloo["cells"]["4"]["best"] == [2.0, 2.0]
    assert [p["problem"] for p in gradbus["problems"]] == ["cannot start /no/such/program: No such file or directory"]


def test_failure_says_the_ranks_words():
    errors = "[0]<stderr>:ValueError: bad\nTraceback\nRuntimeError: Horovod detected that a process exited\n"
    assert process.describe_failure(1, errors) == "exit status 1: ValueError: bad"
    assert process.describe_failure(2, "---\nGB-F101 X: x | next: y\n---\n") == "exit status 2: GB-F101 X: x | next: y"
    assert process.describe_failure(3, "") == "exit status 3: it printed nothing"


def test_size_other_than_the_models_is_refused():
    about = experiments.Experiment("storm", "S", "forms", (), None, size_expected=8)
    campaign.check_size(about, {"size": 8})
    with pytest.raises(ValueError, match="exchanged 4 bytes, not 8"):
        campaign.check_size(about, {"size": 4})
