"""A cluster that Debian's Prometheus watches: each panel of the dashboard has data, and the web page shows alerts and
the timeline of a job that was traced.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import rig as rigs
from browser import AXE, CHROMIUM, browser
from conftest import PYTHONS, RANKS
from prometheus import RULES, free_port, needs_prometheus, prometheus
from scrape import METRICS, get

sys.path.insert(0, str(rigs.REPOSITORY / "scripts"))
import dashboard_picture

GRADBUS = str(rigs.BIN / "gradbus")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: scripts/setup.sh")
pytestmark = [pytest.mark.timeout(300), needs_prometheus]
SIZE = 4
PICTURES = pathlib.Path(os.environ["GRADBUS_PICTURES"]) if "GRADBUS_PICTURES" in os.environ else None


def gradbus(rig, *words: str) -> str:
    """What a command for this rig's coordinator wrote."""
    done = subprocess.run([GRADBUS, *words, "--coordinator", rig.server.ready["address"]], text=True,
                          capture_output=True, check=False, timeout=rigs.DEADLINE_S)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def watched():
    """Agents, a shard, Prometheus with rules that do not wait; jobs: compressed, asynchronous, ended, killed."""
    port = free_port()
    server = (*METRICS, "--prometheus-url", f"http://127.0.0.1:{port}")
    with rigs.cluster(3, *METRICS, shards=1, server_arguments=server) as rig:
        rules = rig.folder / "rules.yml"
        rules.write_text(re.sub(r"(?m)^( +for:) .*", r"\1 0s", RULES.read_text()))
        with prometheus(rig, port, rules) as watcher:
            steps = [str(PYTHONS["newest"]), str(RANKS / "operation/slow_steps.py"), "20"]
            for name, size, more in (("train", SIZE, {"GRADBUS_COMPRESSION": "fp16:fidelity=2"}),
                                     ("async", 2, {"GRADBUS_MODE": "ps:async"})):  # fmt: skip
                for rank in range(size):
                    rig.start_rank(rank, size, program=steps, job=name, agent=2 * rank // size,
                                   env={"OMP_NUM_THREADS": "1", **more})  # fmt: skip
            for rank in rig.start_job(2, "red:x:1000:i64:sum", job="short"):
                assert rank.finish()[0] == 0
            for rank in rig.start_job(2, "red:x:1000:i64:sum", "kill:9", job="killed"):
                rank.finish()
            for job in ("train", "async"):
                rig.wait_until_running(job)
            page = json.loads(gradbus(rig, "page", "--json"))
            yield rig, watcher, page


def test_each_panel_has_data(watched):
    rig, watcher, _ = watched
    queries = dashboard_picture.queries()
    assert len(queries) > 25

    def empty() -> list[str]:
        return [query for query in queries if not watcher.ask(query)]

    with contextlib.suppress(AssertionError):
        rigs.wait_until(lambda: not empty(), what="data for all panels")
    assert empty() == []
    if PICTURES:
        time.sleep(100)  # curves of two minutes
        dashboard_picture.draw(f"http://{watcher.address}", PICTURES / "dashboard.png", seconds=100)
        for name, size in (("top", "100x24"), ("top-small", "80x24"), ("top-wide", "200x50")):
            command = [sys.executable, rigs.REPOSITORY / "scripts/terminal_picture.py", "--size", size,
                       PICTURES / f"{name}.png", "--", GRADBUS, "top", "--coordinator", rig.server.ready["address"],
                       "--token-file", rigs.TOKEN_FILE]  # fmt: skip
            subprocess.run(command, check=True, timeout=100)


def test_the_traced_steps_are_as_the_file_has_them(watched):
    """Only the one with the key reads it; its spans are those of the trace."""
    rig, _, page = watched
    file = rig.folder / "trace.json"
    gradbus(rig, "trace", "train", "--seconds", "1", "-o", str(file))
    job = next(job for job in rig.status()["jobs"] if job["job"] == "train")
    path = f"timeline/{job['job_id']}.json"
    assert get(page["url"].removeprefix("http://").rstrip("/"), f"/{path}")[0] == 401
    rigs.wait_until(lambda: str(job["job_id"]) in state_of(page)["timelines"], what="the timeline")
    timeline = ask(page, path)
    ranks = {track["rank"]: track for track in timeline["tracks"] if track["rank"] is not None}
    assert set(ranks) == set(range(SIZE)) and timeline["steps"] == 3 and timeline["length_us"] > 0
    assert {track["node"] for track in timeline["tracks"]} == {"node-0", "node-1"}
    recorded = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("name") == "wait"]
    assert recorded and all(track["spans"] for track in ranks.values())
    lengths = {round(event["dur"]) for event in recorded}
    for track in ranks.values():
        inner = [end - begin for kind, begin, end in track["spans"] if kind == "wait" and 0 < begin
                 and end < timeline["length_us"]]  # fmt: skip
        assert all(any(abs(length - known) <= 1 for known in lengths) for length in inner), inner


def ask(page, path: str) -> dict:
    """JSON of the page, with its key."""
    done = subprocess.run(["curl", "-sf", "-H", f"Authorization: Bearer {page['key']}", page["url"] + path],
                          capture_output=True, check=True, timeout=30)  # fmt: skip
    return json.loads(done.stdout)


def state_of(page) -> dict:
    return ask(page, "state.json")


@needs_chromium
def test_the_page_shows_the_timeline_and_alerts(watched):
    rig, watcher, page = watched
    gradbus(rig, "trace", "train", "--seconds", "1", "-o", str(rig.folder / "again.json"))
    with browser() as tab:
        tab.screen(1280, 900)
        tab.open(f"{page['url']}#{page['key']}")
        tab.wait("document.querySelectorAll('#jobs tr').length === 4", "four jobs")
        choose(tab, "async")
        tab.wait("document.getElementById('timeline-facts').textContent.startsWith('Job async was not traced')",
                 "the note that there is no timeline")  # fmt: skip
        choose(tab, "train")
        tab.wait(f"document.querySelectorAll('#timeline-ranks tr').length === {SIZE}", "the timeline")
        label = tab.run("document.querySelector('#timeline svg').getAttribute('aria-label')")
        assert re.fullmatch(rf"Timeline of job train: {SIZE} ranks wait \d+ % to \d+ % of the time", label), label
        assert tab.run("document.querySelectorAll('#timeline rect.exposed').length") >= 1
        assert tab.run("document.querySelectorAll('#timeline rect.compute').length") >= SIZE
        tab.wait("/^None|firing/.test(document.getElementById('alerts-facts').textContent)", "an answer of Prometheus")
        assert "GradbusNodeLost" not in tab.run("document.getElementById('alerts').innerText")
        rig.agents[2].kill()  # has no ranks
        tab.wait("document.getElementById('alerts').innerText.includes('GradbusNodeLost')", "the alert of a lost node")
        row = tab.run("[...document.querySelectorAll('#alerts tr')].map((row) => row.innerText)"
                      ".find((text) => text.includes('GradbusNodeLost'))")  # fmt: skip
        assert "firing" in row and "warning" in row and "Lost Gradbus nodes: 1" in row, row
        if PICTURES:
            take_pictures(tab)
        check_for_all(tab)
        assert tab.problems == []


def choose(tab, job: str) -> None:
    tab.run(f"[...document.querySelectorAll('#jobs button')].find((one) => one.textContent === '{job}').click()")


def check_for_all(tab) -> None:
    """New parts have names for a screen reader, are reached by Tab, and fit on a phone."""
    regions = {name for role, name in tab.accessible() if role == "region"}
    assert {"Alerts", "Last timeline"} <= regions, regions
    tab.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached = set()
    for _ in range(40):
        tab.press("Tab", 9)
        reached.add(tab.run("document.activeElement.id"))
    assert {"alerts-table", "timeline-table"} <= reached, reached
    assert AXE is None or tab.broken_rules() == []
    tab.screen(390, 844)
    tab.wait("window.innerWidth === 390", "the small window")
    assert tab.run("document.documentElement.scrollWidth") <= 390


def take_pictures(tab) -> None:
    """For the documentation: desktop, phone, dark."""
    for name, width, height, dark in (
            ("desktop", 1280, 900, False), ("phone", 390, 844, False), ("dark", 1280, 900, True)):  # fmt: skip
        tab.screen(width, height, dark)
        time.sleep(1.5)  # the next state
        tab.picture(PICTURES / f"page-{name}.png", "png")
        tab.picture(PICTURES / f"page-{name}.webp")
