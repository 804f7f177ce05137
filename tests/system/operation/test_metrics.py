"""Metrics of real daemons: exact figures, and Prometheus that scrapes four agents."""

import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest
import rig as rigs
from conftest import assert_all_ok, start_ranks
from prometheus import free_port, needs_prometheus, prometheus
from scrape import METRICS, get, scrape

sys.path.insert(0, str(rigs.REPOSITORY / "scripts"))
import reference_metrics

ROUNDS, COUNT, AGENTS = 20, 1000, 4


@pytest.fixture(scope="module")
def four_agents():
    """A coordinator and four agents with metrics, and a job of a rank on each that has done ROUNDS rounds and waits."""
    with rigs.cluster(AGENTS, *METRICS, server_arguments=METRICS) as rig:
        go_on = rig.folder / "go-on"
        ranks = rig.start_job(
            AGENTS, f"steps:x:{COUNT}:{ROUNDS}", f"touch:{rig.folder}/done", f"await:{go_on}", job="digits")
        rigs.wait_until((rig.folder / "done").exists, what="the rounds")
        time.sleep(1.5)  # pages are renewed once a second
        yield rig
        go_on.touch()
        assert [rank.finish()[0] for rank in ranks] == [0] * AGENTS


def test_an_agent_counts_each_operation_and_byte(four_agents):
    for rank, agent in enumerate(four_agents.agents):
        page = scrape(agent)
        job = {"job_name": "digits", "op": "all_reduce"}
        operations = page.value("gradbus_operations_total", **job)
        assert operations == ROUNDS
        assert page.value("gradbus_operation_bytes_total", **job) == operations * COUNT * 4
        assert page.value("gradbus_operation_duration_seconds_count", **job) == operations
        assert page.value("gradbus_operation_duration_seconds_bucket", le="+Inf", **job) == operations
        assert 0 < page.value("gradbus_operation_duration_seconds_sum", **job) < 60
        assert page.value("gradbus_rank_lateness_seconds_count", job_name="digits") == operations
        assert page.value("gradbus_rank_operations_total", job_name="digits", rank=str(rank)) >= ROUNDS
        assert page.value("gradbus_waiting_frames", job_name="digits") == 0
        queued = page.value("gradbus_send_queue_frames_count", job_name="digits")
        assert queued >= ROUNDS * 2  # frames, each with the depth of the queue that it found
        assert page.value("gradbus_send_queue_frames_bucket", le="+Inf", job_name="digits") == queued
        assert page.value("gradbus_clients") == 1
        assert page.value("gradbus_coordinator_connected") == 1
        assert 0 < page.value("gradbus_arena_bytes") < page.value("gradbus_arena_max_bytes")
        assert page.value("gradbus_build_info", role="agent") == 1


def test_what_agents_send_is_what_their_peers_receive(four_agents):
    pages = {f"node-{i}": scrape(agent) for i, agent in enumerate(four_agents.agents)}
    sent = received = 0
    for page in pages.values():
        job_sent = page.value("gradbus_link_sent_bytes_total", job_name="digits")
        assert 0 < job_sent <= page.value("gradbus_sent_bytes_total")  # that also counts measurements of paths
        sent += job_sent
        received += page.value("gradbus_link_received_bytes_total", job_name="digits")
        peers = {dict(labels)["peer"] for name, labels in page if name == "gradbus_link_sent_bytes_total"}
        assert peers <= set(pages)
    # All-reduce of n nodes: each element leaves at least n - 1 nodes before its sum and n - 1 after it.
    assert sent == received >= ROUNDS * COUNT * 4 * 2 * (AGENTS - 1)


def test_the_coordinator_counts_agents_jobs_and_ranks(four_agents):
    page = scrape(four_agents.server)
    assert page.value("gradbus_agents", role="agent") == AGENTS
    assert page.value("gradbus_jobs", state="running") == 1
    assert page.value("gradbus_job_ranks", job_name="digits") == AGENTS
    assert page.value("gradbus_leases_lost_total") == 0
    assert page.value("gradbus_build_info", role="coordinator") == 1


def test_every_name_is_in_the_table(four_agents):
    known = reference_metrics.series_names()
    for daemon in [four_agents.server, *four_agents.agents]:
        assert scrape(daemon).names() <= known


def series(page, name: str, **labels: str) -> tuple[float, float]:
    """(count, sum) of a histogram."""
    return page.value(f"{name}_count", **labels), page.value(f"{name}_sum", **labels)


# What a codec makes of 50,000 f32. onebit (sign_codec.h): a head, two means for each 1024 elements, words of 64 signs.
@pytest.mark.parametrize("codec, compressed", [("fp16", 50_000 * 2), ("onebit", 16 + 49 * 2 * 4 + 782 * 8)])
def test_bytes_before_and_after_compression(codec, compressed):
    """Each of two nodes codes and sends as many elements as the tensor has."""
    with rigs.cluster(2, *METRICS) as rig:
        go_on, done = rig.folder / "go-on", rig.folder / "done"
        ranks = rig.start_job(2, f"steps:layer1.weight:50000:{ROUNDS}", f"touch:{done}", f"await:{go_on}",
                              job="coded", env={"GRADBUS_COMPRESSION": codec})  # fmt: skip
        rigs.wait_until(done.exists, what="the rounds")
        time.sleep(1.5)  # pages are renewed once a second
        pages = [scrape(agent) for agent in rig.agents]
        (job,) = rig.status()["jobs"]
        go_on.touch()
        assert [rank.finish()[0] for rank in ranks] == [0, 0]
    for page in pages:
        assert page.value("gradbus_uncompressed_bytes_total", job_name="coded") == ROUNDS * 50_000 * 4
        assert page.value("gradbus_compressed_bytes_total", job_name="coded") == ROUNDS * compressed
        assert page.value("gradbus_link_sent_bytes_total", job_name="coded") == ROUNDS * compressed
    assert job["uncompressed_bytes"] == 2 * ROUNDS * 50_000 * 4 and job["compressed_bytes"] == 2 * ROUNDS * compressed


def test_waiting_and_lateness_are_the_time_that_a_late_rank_takes():
    """On each of two nodes, one of two ranks sleeps before each operation: the other one waits as long."""
    pause, rounds = 0.5, 4
    with rigs.cluster(2, *METRICS) as rig:
        go_on = rig.folder / "go-on"
        ranks = [rig.start_rank(rank, 4, "reg:x:1000:f32:sum", "barrier",
                                *([f"sleep:{pause}"] * (rank % 2) + ["red:x:1000:f32:sum"]) * rounds,
                                f"touch:{rig.folder}/done-{rank}", f"await:{go_on}", job="late")
                 for rank in range(4)]  # fmt: skip
        rigs.wait_until(lambda: all((rig.folder / f"done-{rank}").exists() for rank in range(4)), what="the rounds")
        time.sleep(1.5)  # pages are renewed once a second
        pages = [scrape(agent) for agent in rig.agents]
        known = [rank["wait_ns"] * 1e-9 for rank in rig.status()["jobs"][0]["ranks"]]
        go_on.touch()
        assert [rank.finish()[0] for rank in ranks] == [0] * 4
    waits = [pages[rank // 2].value("gradbus_rank_wait_seconds_total", job_name="late", rank=str(rank))
             for rank in range(4)]  # fmt: skip
    assert waits == pytest.approx(known, abs=0.01)
    slept = pause * rounds
    for page, (early, late) in zip(pages, (waits[:2], waits[2:])):
        assert early > 0.8 * slept and early - late > 0.6 * slept, waits
        count, seconds = series(page, "gradbus_rank_lateness_seconds", job_name="late")
        assert count >= rounds and 0.8 * slept < seconds < early + 1, (count, seconds, waits)


def test_staleness_of_steps_in_turn(python):
    """Two nodes take turns: the step of the other one lies between the parameters that a node has and its own step.
    A node gets parameters before its first step; these answers and the first steps have no staleness."""
    steps = 10
    with rigs.cluster(2, *METRICS, shards=1) as rig:
        ranks = start_ranks(rig, python, "operation/turns.py", 2, str(rig.folder), str(steps))
        done = [rig.folder / f"done-{rank}" for rank in range(2)]
        rigs.wait_until(lambda: all(file.exists() for file in done)
                        or any(rank.process.poll() is not None for rank in ranks), what="steps")  # fmt: skip
        time.sleep(1.5)  # pages are renewed once a second
        found = [series(scrape(agent), "gradbus_staleness_steps") for agent in rig.agents]
        at_most_1 = [scrape(agent).value("gradbus_staleness_steps_bucket", le="1") for agent in rig.agents]
        shown = rig.status()["jobs"][0]["staleness"]
        (rig.folder / "end").touch()
        assert_all_ok([rank.finish() for rank in ranks])
    assert found == [(steps + 1, steps - 1)] * 2 and at_most_1 == [steps + 1] * 2
    assert [(one["agent"], one["most"]) for one in shown] == [("node-0", 1), ("node-1", 1)], shown


@needs_prometheus
def test_promtool_has_nothing_to_say(four_agents):
    for daemon in (four_agents.server, four_agents.agents[0]):
        checked = subprocess.run(["promtool", "check", "metrics"], input=scrape(daemon).text, text=True,
                                 capture_output=True, check=False, timeout=60)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@needs_prometheus
def test_prometheus_scrapes_a_run_with_four_agents(four_agents):
    with prometheus(four_agents, free_port()) as server:
        rigs.wait_until(lambda: server.value("sum(up)") == AGENTS + 1, what="five targets that are up")
        assert server.value('sum(gradbus_operations_total{job_name="digits",job="gradbus-agent"})') == AGENTS * ROUNDS
        assert server.value("sum(gradbus_agents)") == AGENTS
        assert server.value("histogram_quantile(0.99, sum by (le) (gradbus_operation_duration_seconds_bucket))") > 0
        assert server.ask('ALERTS{alertstate="firing"}') == []


@pytest.mark.parametrize("address, reason", [
    ("nonsense", "GB-F100"), ("127.0.0.1:70000", "GB-F100"), ("example.org:80", "GB-F100"),
    ("192.0.2.1:9400", "GB-D603"),
])
@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_an_address_that_cannot_be_listened_on_is_one_clear_line(program, address, reason, tmp_path):
    done = subprocess.run(
        [rigs.BIN / program, "--metrics-listen", address,
         *(["--socket", str(tmp_path / "s"), "--bind", "127.0.0.1:0"] if program == "gradbus-agent"
           else ["--listen", "127.0.0.1:0"])],
        capture_output=True, text=True, check=False, timeout=30)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and reason in last and address in last and "| next: " in last, done.stderr


def test_other_pages_and_methods_are_refused(four_agents):
    address = four_agents.agents[0].ready["metrics"]
    assert get(address, "/")[0] == 404
    assert get(address, "/../../etc/passwd")[0] in (400, 404)
    with socket.create_connection(tuple(address.split(":")), timeout=10) as one:
        one.sendall(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        assert b" 405 " in one.recv(4096).splitlines()[0]


def test_readiness_follows_the_coordinator():
    with rigs.cluster(1, *METRICS) as rig:
        address = rig.agents[0].ready["metrics"]
        assert get(address, "/healthz") == (200, "ok\n")
        assert get(address, "/readyz") == (200, "ok\n")
        rig.server.kill()
        rigs.wait_until(lambda: get(address, "/readyz")[0] == 503, what="an agent that is not ready")
        assert "GB-C501" in get(address, "/readyz")[1]
        assert get(address, "/healthz")[0] == 200  # a restart of the agent would not help


@needs_prometheus
@pytest.mark.parametrize("command", [
    ["check", "rules", "gradbus.rules.yml"], ["test", "rules", "gradbus.rules.test.yml"]])
def test_alert_rules(command):
    folder = rigs.REPOSITORY / "deploy/prometheus"
    done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_the_configuration_of_the_page_is_valid(tmp_path):
    page = (rigs.REPOSITORY / "docs/how-to/monitor-a-cluster.md").read_text()
    (tmp_path / "prometheus.yml").write_text(reference_metrics.re.search(r"(?ms)^```yaml\n(.*?)^```$", page)[1])
    shutil.copy(rigs.REPOSITORY / "deploy/prometheus/gradbus.rules.yml", tmp_path)
    done = subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True,
                          text=True, check=False, timeout=60)  # fmt: skip
    assert done.returncode == 0 and "1 rule files found" in done.stdout, done.stdout + done.stderr


def test_alerts_and_dashboard_use_metrics_that_exist():
    known = reference_metrics.series_names() | {"up"}
    for path in ("deploy/prometheus/gradbus.rules.yml", "deploy/grafana/gradbus.json"):
        text = (rigs.REPOSITORY / path).read_text()
        used = set(reference_metrics.re.findall(r"\b(?:gradbus|process)_[a-z_]+\b", text))
        names = {name for name in used if not name.startswith("gradbus_rules")}
        assert names and names <= known, f"{path}: {names - known}"


def test_every_alert_has_a_section_in_the_runbook():
    rules = (rigs.REPOSITORY / "deploy/prometheus/gradbus.rules.yml").read_text()
    runbook = pathlib.Path(rigs.REPOSITORY / "docs/how-to/runbook.md").read_text()
    alerts = reference_metrics.re.findall(r"alert: (\w+)", rules)
    assert alerts and all(f"\n## {alert}\n" in runbook for alert in alerts)


def test_a_byte_budget_holds_on_every_node(python):
    """Ranks post in different orders. One of them waits for a result before it posts what others have posted first."""
    with rigs.cluster(3, *METRICS) as rig:
        words = [str(rigs.BIN / "gradbus"), rig.server.ready["address"], str(rigs.TOKEN_FILE)]
        done, go_on = rig.folder / "done", rig.folder / "go-on"
        ranks = start_ranks(rig, python, "operation/budget.py", 3, str(done), str(go_on), *words)
        rigs.wait_until(lambda: done.exists() or any(rank.process.poll() is not None for rank in ranks), what="rounds")
        time.sleep(1.5)  # pages are renewed once a second
        pages = [scrape(agent) for agent in rig.agents]
        go_on.touch()
        assert_all_ok([rank.finish() for rank in ranks])
    assert sum(page.value("gradbus_budget_delays_total") for page in pages) > 0
    for page in pages:
        assert 4000 <= page.value("gradbus_budget_bytes_max") <= 10_000
        assert page.value("gradbus_budget_bytes") == 0


def counts(rig) -> dict[tuple[str, ...], float]:
    """All that was sent so far, but for heartbeats. Pages are renewed once a second."""
    time.sleep(1.5)
    found = {}
    for number, agent in enumerate(rig.agents):
        found["client packets", str(number)] = scrape(agent).value("gradbus_client_packets_total")
    for (name, labels), count in scrape(rig.server).items():
        if name == "gradbus_control_messages_total" and ("message", "heartbeat") not in labels:
            found[tuple(value for _, value in labels)] = count
    return found


@pytest.mark.parametrize("schedule", ["auto", "bytescheduler:budget=64K"])
def test_a_step_sends_no_control_message(python, schedule):
    with rigs.cluster(2, *METRICS, server_arguments=METRICS) as rig:
        words = [str(rig.folder), "100"]
        ranks = start_ranks(rig, python, "operation/steady.py", 2, *words, GRADBUS_SCHEDULE=schedule)

        def until(file):
            rigs.wait_until(lambda: (rig.folder / file).exists() or any(r.process.poll() is not None for r in ranks),
                            what=file)  # fmt: skip

        until("warm")
        before = counts(rig)
        (rig.folder / "go").touch()
        until("done")
        after = counts(rig)
        (rig.folder / "end").touch()
        assert_all_ok([rank.finish() for rank in ranks])
    assert before["received", "register_tensors"] > 0 and before["client packets", "0"] > 2, before
    assert after == before, {key: (before.get(key), count) for key, count in after.items() if before.get(key) != count}
