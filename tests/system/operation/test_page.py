"""The coordinator's web page in Chromium, with real daemons and ranks behind it."""

import json
import re
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import pytest
import rig as rigs
from browser import AXE, CHROMIUM, browser
from scrape import METRICS

GRADBUS = str(rigs.BIN / "gradbus")
HOSTILE_JOB = "<img src=x onerror=document.title=1>"
BANDWIDTH_MBIT = 100  # that each agent is told
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: scripts/setup.sh")
pytestmark = pytest.mark.timeout(300)


def gradbus(rig, *words):
    """A command that asks this rig's coordinator."""
    return subprocess.run([GRADBUS, *words, "--coordinator", rig.server.ready["address"]], text=True,
                          capture_output=True, check=False, timeout=rigs.DEADLINE_S)


def fetch(url: str, key: str | None = None) -> tuple[int, str, dict]:
    """(status, body, headers) of a page."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as page:
            return page.status, page.read().decode(), dict(page.headers)
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode(), dict(refused.headers)


@pytest.fixture(scope="module")
def watched():
    """A coordinator with a page, three agents, a shard, and jobs that run: compressed, and one with a hostile name."""
    with rigs.cluster(3, *METRICS, "--bandwidth", f"{BANDWIDTH_MBIT}mbit", shards=1, server_arguments=METRICS) as rig:
        rig.start_job(6, "loop:layer1.weight:50000:600:40", job="digits",
                      env={"GRADBUS_COMPRESSION": "fp16:fidelity=2"})
        for rank in range(2):  # the second one is late
            rig.start_rank(rank, 2, f"loop:grad:1000:600:{40 + 40 * rank}", job=HOSTILE_JOB)
        for job in ("digits", HOSTILE_JOB):
            rig.wait_until_running(job)
        page = json.loads(gradbus(rig, "page", "--json").stdout)
        rigs.wait_until(lambda: sampled(page), what="samples of the compressed job")
        yield rig, page


def state_of(page) -> dict:
    """What the page asks for once a second."""
    status, text, _ = fetch(page["url"] + "state.json", page["key"])
    assert status == 200, text
    return json.loads(text)


def sampled(page) -> bool:
    """Whether a sample has a compression ratio and a fidelity."""
    status, text, _ = fetch(page["url"] + "state.json", page["key"])
    sample = json.loads(text)["sample"] if status == 200 else None
    return bool(sample) and any(job["ratio"] and job["cosine"] for job in sample["jobs"].values())


def test_the_state_needs_the_key_and_the_files_do_not(watched):
    rig, page = watched
    for path in ("state.json", "history.json"):
        for key in (None, "", "0" * 32, page["key"][:-1], rigs.TOKEN_FILE.read_text().strip()):
            status, text, headers = fetch(page["url"] + path, key)
            assert status == 401 and text.startswith("GB-C503 "), (path, key)
            assert headers["WWW-Authenticate"] == "Bearer"
            assert text.count("\n") == 1 and " | next: gradbus page" in text
    status, text, headers = fetch(page["url"])
    assert status == 200 and "<main" in text
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    for path in ("page.css", "page.js", "parts.js", "draw.js"):
        assert fetch(page["url"] + path)[0] == 200
    assert fetch(page["url"] + "../server.toml")[0] in (400, 404)
    assert gradbus(rig, "page").stdout == f"{page['url']}#{page['key']}\n"


def test_the_state_is_what_the_command_shows(watched):
    rig, page = watched
    state = state_of(page)
    jobs = {job["job"]: job for job in state["cluster"]["jobs"]}
    known = {job["job"]: job for job in rig.status()["jobs"]}
    assert set(jobs) == set(known) == {"digits", HOSTILE_JOB}
    assert state["job_ids"] == [str(job["job_id"]) for job in state["cluster"]["jobs"]]
    assert len(jobs["digits"]["ranks"]) == 6 and state["ranks_left_out"] == 0
    sample = state["sample"]["jobs"][str(jobs["digits"]["job_id"])]
    # fp16 sends two bytes for the four of an f32, and holds the ranks' values without an error.
    assert 1.9 < sample["ratio"] <= 2 and abs(sample["cosine"] - 1) < 1e-6
    assert 1.9 < jobs["digits"]["uncompressed_bytes"] / jobs["digits"]["compressed_bytes"] <= 2
    assert {"attached", "job_started", "started"} <= {event["kind"] for event in state["events"]}
    status, text, _ = fetch(page["url"] + "history.json", page["key"])
    history = json.loads(text)
    numbers = [one["number"] for one in history["samples"]]
    assert status == 200 and numbers == list(range(1, len(numbers) + 1)) and history["every_ms"] == 2000


@needs_chromium
def test_a_browser_shows_the_cluster(watched):
    rig, page = watched
    with browser() as tab:
        tab.screen(1280, 900)
        tab.open(page["url"])
        tab.wait("!document.getElementById('sign-in').hidden", "the question for the key")
        tab.run("document.getElementById('key').value = 'wrong'")
        tab.run("document.getElementById('sign-in').requestSubmit()")
        tab.wait("document.getElementById('sign-in-why').textContent.includes('does not accept')", "the refusal")
        tab.problems.clear()  # the browser reports answers 401
        tab.open(f"{page['url']}#{page['key']}")
        tab.wait("document.querySelectorAll('#jobs tr').length === 2", "two jobs")
        assert tab.run("location.hash") == "", "the key must not stay in the address"
        check_contents(tab)
        check_bandwidth(tab, page)
        check_lateness(tab, page)
        check_names_are_texts(tab)
        check_keyboard(tab)
        check_screen_reader(tab)
        check_phone(tab)
        check_dark(tab)
        check_rules(tab)
        check_live(tab, rig)
        assert tab.problems == []


def rows(tab, table: str) -> list[str]:
    """The texts of a table's rows."""
    return tab.run(f"[...document.querySelectorAll('#{table} tr')].map((row) => row.innerText)")


def check_contents(tab) -> None:
    tab.run("[...document.querySelectorAll('#jobs button')].find((job) => job.textContent === 'digits').click()")
    tab.wait("document.querySelectorAll('#ranks tr').length === 6", "six ranks")
    tab.wait("document.getElementById('health').textContent === 'healthy'", "a healthy cluster")
    assert tab.run("(() => { const table = document.getElementById('jobs').closest('table').parentElement;"
                   " return table.scrollWidth <= table.clientWidth; })()"), "the table of jobs is cut"
    assert len(rows(tab, "nodes")) == 4 and any("shard-0" in row for row in rows(tab, "nodes"))
    assert tab.run("document.querySelectorAll('#map g').length") == 4
    charts = tab.run("[...document.querySelectorAll('#charts figure:not([hidden]) svg')]"
                     ".map((chart) => chart.getAttribute('aria-label'))")
    assert any(chart.startswith("Compression ratio: now 2.00") for chart in charts), charts
    assert any(chart.startswith("Fidelity (cosine): now 1.0000") for chart in charts), charts
    assert any("job_started" in row for row in rows(tab, "events"))


def check_bandwidth(tab, page) -> None:
    """The meter is the larger rate of the node over its bandwidth."""
    tab.wait("[...document.querySelectorAll('#nodes tr')].some((row) => / MB[/]s/.test(row.innerText))", "traffic")
    cells = tab.run("[...document.querySelectorAll('#nodes tr')]"
                    ".map((row) => [...row.children].map((cell) => cell.innerText.trim()))")
    rates = {}
    for name, _, _, _, _, sends, receives, used, _ in cells:
        rates[name] = max(bits_of(sends), bits_of(receives))
        shown = int(used.removesuffix(" %").lstrip("<"))
        assert shown == pytest.approx(100 * rates[name] / (BANDWIDTH_MBIT * 1e6), abs=1), cells
    assert max(rates.values()) > 2e6, cells  # six ranks with 50,000 elements
    sample = state_of(page)["sample"]["nodes"]
    assert {name for name, (sent, _) in sample.items() if sent > 0} == {"node-0", "node-1", "node-2"}, sample
    widths = tab.run("[...document.querySelectorAll('#map line')].map((line) => +line.getAttribute('stroke-width'))")
    assert max(widths) > 3, widths  # 1 to 7; agents send about the same


def bits_of(rate: str) -> float:
    """Of "1.25 MB/s"."""
    value, unit = rate.removesuffix("/s").split()
    return 8 * float(value) * {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def check_lateness(tab, page) -> None:
    """The rank with the longer pause is first; what it is late by grows, and the other one waits for it."""
    name = json.dumps(HOSTILE_JOB)
    tab.run(f"[...document.querySelectorAll('#jobs button')].find((job) => job.textContent === {name}).click()")
    tab.wait("document.querySelectorAll('#ranks tr').length === 2", "two ranks")
    ranks = tab.run("[...document.querySelectorAll('#ranks tr')]"
                    ".map((row) => [...row.children].map((cell) => cell.innerText.trim()))")
    (job,) = [job for job in state_of(page)["cluster"]["jobs"] if job["job"] == HOSTILE_JOB]
    known = {str(rank["rank"]): rank["late_ns"] * 1e-9 for rank in job["ranks"]}
    late = {rank[0]: seconds_of(rank[5]) for rank in ranks}
    assert [rank[0] for rank in ranks] == ["1", "0"] and late["0"] == known["0"] == 0, (ranks, known)
    assert 0.3 * known["1"] < late["1"] <= known["1"] + 0.1, (ranks, known)
    charts = tab.run("[...document.querySelectorAll('#charts figure:not([hidden]) svg')]"
                     ".map((chart) => chart.getAttribute('aria-label'))")
    assert any(re.match("Lateness of the latest rank: now [1-9]", chart) for chart in charts), charts


def seconds_of(text: str) -> float:
    """Of "250 ms", "1.5 s" or "2 min 10 s"."""
    words = text.split()
    return sum(float(value) * {"ms": 1e-3, "s": 1, "min": 60}[unit] for value, unit in zip(words[::2], words[1::2]))


def check_names_are_texts(tab) -> None:
    """A job's name with markup is shown as it is, and is no markup."""
    assert any(HOSTILE_JOB in row for row in rows(tab, "jobs"))
    assert tab.run("document.title") == "Gradbus" and tab.run("document.querySelectorAll('main img').length") == 0


def check_keyboard(tab) -> None:
    """Tab reaches the skip link, then the button and all jobs; Enter chooses; rows keep the focus when renewed."""
    tab.run("document.activeElement.blur(); window.scrollTo(0, 0)")
    seen = []
    for _ in range(30):
        tab.press("Tab", 9)
        seen.append(tab.run("document.activeElement.textContent.trim().slice(0, 40) || document.activeElement.id"))
        if seen[-1] == HOSTILE_JOB[:40]:
            break
    assert seen[0] == "Skip to the cluster" and "Pause" in seen and seen[-1] == HOSTILE_JOB[:40], seen
    tab.press("Enter", 13, "\r")
    tab.wait("document.querySelectorAll('#ranks tr').length === 2", "the ranks of the other job")
    assert tab.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    shown = tab.run("document.getElementById('facts').textContent")
    tab.wait(f"document.getElementById('facts').textContent !== {json.dumps(shown)}", "the next state")
    assert tab.run("document.activeElement.textContent") == HOSTILE_JOB


def check_screen_reader(tab) -> None:
    found = tab.accessible()
    roles = {role for role, _ in found}
    assert {"banner", "main", "navigation", "contentinfo", "status"} <= roles, roles
    assert {"table", "columnheader", "rowheader"} <= roles, roles
    regions = {name for role, name in found if role == "region"}
    assert {"Problems", "Map", "Jobs", "Nodes", "Events"} <= regions, regions
    nameless = [role for role, name in found if role in ("button", "link", "image", "searchbox", "region") and not name]
    assert nameless == []
    pictures = [name for role, name in found if role in ("image", "img")]
    assert any(name.startswith("Map of 3 agents and 1 shard:") for name in pictures), pictures


def check_phone(tab) -> None:
    """Nothing is wider than the screen; tables scroll by themselves."""
    tab.screen(390, 844)
    tab.wait("window.innerWidth === 390", "the small window")
    assert tab.run("document.documentElement.scrollWidth") <= 390
    small = tab.run("[...document.querySelectorAll('header button, #filter')]"
                    ".filter((one) => one.getBoundingClientRect().height < 30).length")
    assert small == 0


def luminance(colour: list[int]) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def check_dark(tab) -> None:
    """Dark mode is dark, and texts have the contrast of WCAG AA in both modes."""
    colours = ("(() => { const of = (id, what) => getComputedStyle(document.querySelector(id))[what].match(/\\d+/g)"
               ".map(Number); return [of('#events-title', 'color'), of('.quiet', 'color'), of('#health', 'color'),"
               " of('a', 'color'), of('section', 'backgroundColor')]; })()")
    backs = []
    for dark in (False, True):
        tab.screen(1280, 900, dark)
        *texts, back = tab.run(colours)
        backs.append(luminance(back))
        for text in texts:
            light, deep = sorted([luminance(text), luminance(back)], reverse=True)
            assert (light + 0.05) / (deep + 0.05) >= 4.5, (dark, text, back)
    assert backs[0] > 0.8 and backs[1] < 0.05


def check_rules(tab) -> None:
    """axe-core has nothing to say: on a desktop and on a phone, light and dark."""
    if AXE is None:
        return
    for width, height in ((1280, 900), (390, 844)):
        for dark in (False, True):
            tab.screen(width, height, dark)
            assert tab.broken_rules() == []


def check_live(tab, rig) -> None:
    """What happens in the cluster comes up by itself; without a coordinator the page says so."""
    tab.screen(1280, 900)
    assert gradbus(rig, "drain", "node-2", "--reason", "new disk").returncode == 0
    tab.wait("document.getElementById('nodes').innerText.includes('drained')", "the drain")
    assert "new disk" in tab.run("document.getElementById('problems').innerText")
    rig.server.kill(signal.SIGSTOP)
    tab.wait("document.getElementById('health').textContent === 'no answer'", "the note that nobody answers")
    assert tab.run("document.querySelectorAll('#jobs tr').length") == 2, "the last state stays"
    rig.server.kill(signal.SIGCONT)
    tab.wait("document.getElementById('health').textContent === 'healthy'", "the next answer")
    tab.problems.clear()  # requests that were given up


def test_a_hundred_watchers_do_not_disturb_a_job(watched):
    """Watchers that never read, with small windows, beside a job: it is exact, and the page answers again."""
    rig, page = watched
    host, port = page["url"].removeprefix("http://").rstrip("/").split(":")
    files = rig.server.open_files()
    held = []
    for _ in range(100):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.setblocking(False)
        one.connect_ex((host, int(port)))
        held.append(one)
    time.sleep(0.2)
    for one in held:
        try:
            one.send(f"GET /state.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {page['key']}\r\n\r\n".encode())
        except OSError:
            continue  # the port has refused it
    try:
        ranks = rig.start_job(2, "steps:x:1000:100", job="beside")
        assert [rank.finish()[0] for rank in ranks] == [0, 0]
        assert rig.server.open_files() < files + 60
    finally:
        for one in held:
            one.close()
    rigs.wait_until(lambda: fetch_works(page), what="a page after the watchers")


def fetch_works(page) -> bool:
    """Whether the state is answered now."""
    try:
        return fetch(page["url"] + "state.json", page["key"])[0] == 200
    except OSError:
        return False


def test_a_new_token_makes_a_new_key(tmp_path):
    token = rigs.make_token_file(tmp_path / "token")
    arguments = (*METRICS, "--token-file", str(token))
    with rigs.cluster(0, server_arguments=arguments) as rig:
        page = json.loads(gradbus(rig, "page", "--json", "--token-file", str(token)).stdout)
        rigs.wait_until(lambda: fetch_works(page), what="the first state")
        token.unlink()
        rigs.make_token_file(token)
        rig.server.kill(signal.SIGHUP)
        rigs.wait_until(lambda: fetch(page["url"] + "state.json", page["key"])[0] == 401, what="the old key's end")
        renewed = json.loads(gradbus(rig, "page", "--json", "--token-file", str(token)).stdout)
        assert fetch(page["url"] + "state.json", renewed["key"])[0] == 200


def test_without_a_page_the_command_says_so():
    with rigs.cluster(0) as rig:
        done = gradbus(rig, "page")
        assert done.returncode == 1 and done.stderr.startswith("GB-C508 NO_PAGE: "), done.stderr
        assert "--metrics-listen" in done.stderr and done.stdout == ""
