"""Links of several paths: two machines with two cables between them, one of which goes down in the middle.

Each machine is a network namespace; a third cable carries what goes to the coordinator, so that only the data
plane feels what happens. Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and iproute2.
"""

import contextlib
import re
import subprocess

import pytest
import rig as rigs

WHY_NOT = rigs.why_no_namespaces()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"no namespaces here: {WHY_NOT}")

MIB = 1 << 20
PEER_TIMEOUT_MS = 3000  # short enough for a test, longer than a busy machine's pauses
# Both sides have given up by then, the second one two peer timeouts after it has seen its path end; the rest is
# a machine with other work.
TOLD_WITHIN_S = 60
RETURN_MS = 500
# Two answers on the mended cable; before that, up to eight pauses for those that did not come.
BACK_WITHIN_S = 120


class Cables:
    """Two namespaces with cables between them, gone with the processes that hold them."""

    def __init__(self) -> None:
        self.holders = []
        for _ in range(2):
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo ready; exec sleep 3600"], stdout=subprocess.PIPE, text=True)
            self.holders.append(holder)
            assert holder.stdout.readline() == "ready\n"

    def inside(self, machine):
        """Words in front of a command that runs on that machine."""
        return ["nsenter", f"--net=/proc/{self.holders[machine].pid}/ns/net"]

    def ip(self, machine, *words):
        subprocess.run([*self.inside(machine), "ip", *words], check=True, capture_output=True, text=True)

    def lay(self, name, net):
        """A cable with an end called `name` on both machines, at 198.18.NET.1 and .2."""
        self.ip(0, "link", "add", name, "type", "veth", "peer", "name", name, "netns", str(self.holders[1].pid))
        for machine in range(2):
            self.ip(machine, "address", "add", f"198.18.{net}.{machine + 1}/24", "dev", name)
            self.ip(machine, "link", "set", name, "up")

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


@pytest.fixture
def cables():
    with contextlib.closing(Cables()) as two:
        for machine in range(2):
            two.ip(machine, "link", "set", "lo", "up")
        for net, name in enumerate(("control", "one", "two")):
            two.lay(name, net)
        yield two


@pytest.fixture
def cluster(cables, tmp_path):
    """A coordinator and an agent on the first machine, an agent on the second."""
    rig = rigs.Rig(tmp_path)
    try:
        rig.within = cables.inside(0)
        rig.server = rig.start_daemon(
            "gradbus-server", "--role=coordinator", "--listen", "198.18.0.1:0", "--lease-ms", "15000")
        for machine in range(2):
            rig.within = cables.inside(machine)
            binds = ",".join(f"198.18.{net}.{machine + 1}:0" for net in (1, 2))
            rig.start_agent(f"node-{machine}", "--bind", binds, "--peer-timeout-ms", str(PEER_TIMEOUT_MS),
                            "--return-ms", str(RETURN_MS))
        rig.within = []
        yield rig
    finally:
        rig.stop()


def received(cables, name):
    """Bytes that the second machine's end of a cable has received."""
    words = [*cables.inside(1), "cat", "/proc/net/dev"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return int(re.search(rf"^\s*{name}:\s*(\d+)", text, re.MULTILINE).group(1))


def links_on(cables, rig):
    """For each agent, as `gradbus status` shows: links on the first cable, on the second, switches so far."""
    rig.within = cables.inside(0)
    shown = [agent["transport"] for agent in rig.status().get("agents", [])]
    return [(*(path["links"] for path in one["paths"]), one["switches"]) for one in shown]


def all_on(cables, rig, first, second, switches):
    """Whether both agents have so many ends of links on each cable, after so many switches at least."""
    found = links_on(cables, rig)
    return len(found) == 2 and all(one[:2] == (first, second) and one[2] >= switches for one in found)


def start_job(rig, *steps):
    """Four ranks that do these steps; they have begun. Each sum's elements are checked by every rank."""
    begun = rig.folder / "begun"
    ranks = rig.start_job(4, f"touch:{begun}", *steps)
    rigs.wait_until(begun.exists, what="the ranks")
    return ranks


def phase(folder, number):
    """Sums while a cable goes down, and more of them after that, however slow this machine is."""
    down = folder / f"down{number}"
    return ["loop:grad:300000:3", f"await:{down}", f"steps:after{number}:300000:5", f"touch:{folder}/done{number}"]


def assert_ok(ranks):
    results = [rank.finish() for rank in ranks]
    assert all(status == 0 for status, _ in results), results


def test_a_job_goes_on_over_the_second_cable_when_the_first_goes_down(cables, cluster):
    ranks = start_job(cluster, *phase(cluster.folder, 1))
    rigs.wait_until(lambda: received(cables, "one") > MIB, what="bytes on the first cable")
    assert received(cables, "two") < MIB // 16, "one path at a time"
    cables.ip(1, "link", "set", "one", "down")
    (cluster.folder / "down1").touch()
    assert_ok(ranks)
    assert received(cables, "two") > MIB
    logs = "".join(agent.text() for agent in cluster.agents)
    assert re.search(r" W gradbus-agent: link to \S+ of job \d+: a path ended \(.*\), now tcp 198\.18\.2\.", logs), logs
    assert all(agent.alive() for agent in cluster.agents)


def test_back_and_forth(cables, cluster):
    ranks = start_job(cluster, *phase(cluster.folder, 1), *phase(cluster.folder, 2))
    cables.ip(0, "link", "set", "one", "down")
    (cluster.folder / "down1").touch()
    rigs.wait_until((cluster.folder / "done1").exists, what="sums over the second cable")
    assert received(cables, "two") > MIB
    before = received(cables, "one")
    cables.ip(0, "link", "set", "one", "up")
    cables.ip(0, "link", "set", "two", "down")
    (cluster.folder / "down2").touch()
    assert_ok(ranks)
    assert received(cables, "one") > before + MIB


def test_links_return_to_a_cable_that_is_mended(cables, cluster):
    ranks = start_job(cluster, *phase(cluster.folder, 1), *phase(cluster.folder, 2))
    rigs.wait_until(lambda: received(cables, "one") > MIB, what="bytes on the first cable")
    cables.ip(1, "link", "set", "one", "down")
    (cluster.folder / "down1").touch()
    rigs.wait_until((cluster.folder / "done1").exists, what="sums over the second cable")
    on_second = rigs.wait_until(lambda: all_on(cables, cluster, 0, 2, 2), what="four ends on the second cable")
    print(f"on the second cable after {on_second:.1f} s")
    before = received(cables, "one")
    cables.ip(1, "link", "set", "one", "up")
    back = rigs.wait_until(lambda: all_on(cables, cluster, 2, 0, 4), BACK_WITHIN_S, "four ends on the first cable")
    print(f"back after {back:.1f} s")
    (cluster.folder / "down2").touch()
    assert_ok(ranks)
    assert received(cables, "one") > before + MIB
    logs = "".join(agent.text() for agent in cluster.agents)
    returned = re.findall(r" I gradbus-agent: link to .* of job \d+: tcp (?:at )?198\.18\.1\.\d:\d+ works again", logs)
    assert len(returned) >= 4, logs  # both ends say so


def test_both_down_is_a_lost_link_in_time(cables, cluster):
    ranks = start_job(cluster, f"loop:grad:300000:{3 * TOLD_WITHIN_S}")
    rigs.wait_until(lambda: received(cables, "one") > MIB, what="bytes on the first cable")
    for name in ("one", "two"):
        cables.ip(1, "link", "set", name, "down")
    results = [rank.finish(TOLD_WITHIN_S) for rank in ranks]
    assert all(status == 3 for status, _ in results), results
    assert any("GB-P102" in output and "no path is left" in output for _, output in results), results
    assert all(agent.alive() for agent in cluster.agents)


def test_a_killed_agent_is_told_as_before(cables, cluster):
    ranks = start_job(cluster, f"loop:grad:300000:{3 * TOLD_WITHIN_S}")
    cluster.agents[1].kill()
    status, output = ranks[0].finish(TOLD_WITHIN_S)
    assert status == 3 and "GB-P10" in output, (status, output)
    assert cluster.agents[0].alive()
