"""What tests/system/transport/test_rdma_vm.py has done inside one virtual machine (machine.py), step by step:

    python3 rdma_checks.py OUT [STEP...]

Each step is a function below; OUT/steps.json gets {step: {"ok", "seconds", "text"}} as they end, where
`text` is what the step found, or why it failed. Standard library only: imports are slow in there.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))
import rig as rigs  # noqa: E402

NEAR, FAR = "10.9.0.1", "10.9.0.2"
DEADLINE_S = 60.0  # for what ends by itself; everything is emulated
# A network that is gone is told after the peer timeout at the latest; the rest is emulation.
TOLD_WITHIN_S = 45.0  # below the ranks' own deadline of 60; two seconds on an idle machine
EPOCHS = 2  # of 29 steps; 20 take minutes here and are what tests/system/training/test_python_digits.py does over TCP
TORCH_MAX_S = 400.0  # a minute on an idle machine
# Soft-RoCE gives up a link when seven tries in a row bring no acknowledgement, and asks for one every 64 packets only.
# With 3 % of loss each run of three ended so, with 1 % one run of dozens did. RoCE networks lose far less than 0.1 %.
LOSS_PERCENT = 0.2
LONG_MS = 60000  # where nobody is to be lost, and six processes share two emulated processors
PEER_TIMEOUT_MS = 3000  # an emulated processor may pause for longer than the usual 1500


def run(*command: str, timeout: float = DEADLINE_S, env: dict | None = None) -> str:
    """What a command prints; an AssertionError with it when the command fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          timeout=timeout, env={**os.environ, **(env or {})})
    said = "\n".join(line for line in done.stdout.splitlines() if "] [info] " not in line)
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {said[-3000:]}"
    return done.stdout


def lockups() -> int:
    """How often the kernel has found one of its processors stuck: for 20 s and more it ran nothing else."""
    return run("dmesg").count("soft lockup")


def counter(device: str, name: str) -> int:
    """A counter of soft-RoCE."""
    return int(pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{name}").read_text())


def port_state(device: str) -> str:
    """The state of its port: ACTIVE, DOWN."""
    return pathlib.Path(f"/sys/class/infiniband/{device}/ports/1/state").read_text().split(":")[1].strip()


@contextlib.contextmanager
def two_nodes(transport: str = "rdma", also_bind: str = "", peer_timeout_ms: int = PEER_TIMEOUT_MS,
              queue_pairs: int = 1):
    """A coordinator and an agent at each end of the cable, maybe with a path elsewhere."""
    with tempfile.TemporaryDirectory(prefix="gradbus-vm-") as folder:
        rig = rigs.Rig(pathlib.Path(folder))
        options = ["--transport", transport, "--peer-timeout-ms", str(peer_timeout_ms),
                   "--queue-pairs", str(queue_pairs)]
        try:
            rig.start(0)
            for name, address in (("near", NEAR), ("far", FAR)):
                rig.start_agent(name, "--bind", f"{address}:0{also_bind}", *options)
            yield rig
        finally:
            rig.stop()


def finish(ranks: list, timeout: float = DEADLINE_S) -> list[tuple[int, str]]:
    """(exit status, output) of each rank."""
    return [rank.finish(timeout) for rank in ranks]


def assert_ok(results: list[tuple[int, str]]) -> None:
    """Every rank ended well."""
    assert all(status == 0 for status, _ in results), results


def warm() -> None:
    """Reads the programs and their libraries once in large pieces: page by page takes minutes."""
    programs = [rigs.BIN / name for name in ("gradbus", "gradbus-server", "gradbus-agent", "gradbus-bench-rank",
                                             "digits_train", "scripted_rank", "transport_contract_test",
                                             "transport_allocation_test")]
    listed = run("ldd", *programs)
    libraries = {word for line in listed.splitlines() for word in line.split() if word.startswith("/lib")}
    for path in [*programs, *map(pathlib.Path, libraries)]:
        path.read_bytes()


# ---- steps


def contract(out: pathlib.Path) -> str:
    """The transport contract suite over rdma, with one queue pair per link and with three; behind the fault plan,
    which is above the transport, and with TCP behind it a part."""
    faulty = ("EveryPostEndsOnce", "NoWakeUpIsMissed", "DisconnectEndsEveryPost", "ManyFrames")
    wanted = ":".join(["*/rdma", "*/rdma_of_three_pairs", *(f"*{name}*/rdma_faulty" for name in faulty),
                       *(f"*{name}*/rdma_and_tcp" for name in faulty)])
    cases, said = run_contract(wanted, out)
    # When receives are short, soft-RoCE sends without end inside a system call, and stops a processor.
    for _ in range(2):
        failed = [case["full_name"] for case in cases if case.get("failures")]
        if not failed or not lockups():
            break
        again, said = run_contract(":".join(failed), out)
        cases = [case for case in cases if case["full_name"] not in failed] + again
    skipped = [case["name"] for case in cases if case["result"] != "COMPLETED"]
    assert len(cases) >= 55 and not skipped, f"{len(cases)} cases, skipped: {skipped}: {said[-500:]}"
    assert not any(case.get("failures") for case in cases), said[-3000:]
    said = run(rigs.BIN / "transport_allocation_test", timeout=180)
    assert "[  PASSED  ] 1 test" in said, said
    return f"{len(cases)} cases"


def run_contract(wanted: str, out: pathlib.Path) -> tuple[list[dict], str]:
    """What became of the tests of this filter, and what they printed."""
    report = out / "contract.json"
    report.unlink(missing_ok=True)
    done = subprocess.run([rigs.BIN / "transport_contract_test", f"--gtest_filter={wanted}", "--gtest_brief=1",
                           f"--gtest_output=json:{report}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=400)
    assert report.exists(), done.stdout[-3000:]
    found = json.loads(report.read_text())["testsuites"]
    suites = [(suite["name"], case) for suite in found for case in suite["testsuite"]]
    return [{**case, "full_name": f"{suite}.{case['name']}"} for suite, case in suites], done.stdout


def doctor(_: pathlib.Path) -> str:
    """Device, port and place are found; the trial registration works."""
    said = run(rigs.BIN / "gradbus", "doctor", "--json", env={"GRADBUS_AGENT_BIND": FAR})
    findings = {one["name"]: one for one in json.loads(said)["findings"]}
    ports = [findings[f"rdma rxe_{end}/1"] for end in ("near", "far")]
    assert all(port["level"] == "ok" and "active, RoCE" in port["value"] for port in ports), ports
    place = findings["rdma place"]
    assert place["level"] == "ok", place
    assert place["value"].startswith("rxe_far port 1, RoCE v2 GID ") and FAR in place["value"], place
    assert "RDMA packets of 1024" in findings["roce mtu near"]["value"], findings
    assert "dcb pfc show dev far" in findings["roce pfc far"]["next"], findings
    return place["value"]


def folders(_: pathlib.Path) -> str:
    """A folder of the host is visible although this machine has its own /tmp, so a clone may be there."""
    note = pathlib.Path(os.environ["GRADBUS_VM_NOTE"])
    assert note.is_relative_to(tempfile.gettempdir()), note
    assert note.read_text() == "from the host"
    return str(note)


def locked_memory(_: pathlib.Path) -> str:
    """An agent that may lock next to nothing says so in one line."""
    # The other user cannot reach a program in a home folder of mode 700.
    with tempfile.TemporaryDirectory(prefix="gradbus-vm-") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(rigs.BIN / "gradbus", folder)
        done = subprocess.run(
            ["setpriv", "--reuid", "65534", "--clear-groups", "--bounding-set=-all", "prlimit", "--memlock=4096",
             program, "doctor", "--json"],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd="/")
    findings = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "rdma memory"]
    assert findings and "GB-D606" in findings[0]["value"], done.stdout + done.stderr
    assert "limited to 1 MiB" in findings[0]["value"] and "ulimit -l" in findings[0]["next"], findings
    return findings[0]["value"]


def control_groups(_: pathlib.Path) -> str:
    """The machine's kernel has only control groups of version 2, where containers' hosts often have both."""
    top = pathlib.Path("/sys/fs/cgroup")
    run("mount", "-t", "cgroup2", "none", str(top))
    (top / "cgroup.subtree_control").write_text("+memory +cpu")
    tests = rigs.REPOSITORY / "tests/system/deploy/test_cgroup_limits.py"
    # Without the test of spinning: on emulated processors, no agent was seen to spin.
    said = run(str(rigs.REPOSITORY / ".venv/bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests),
               "-k", "not spin", timeout=3 * DEADLINE_S, env={"PYTHONDONTWRITEBYTECODE": "1"})
    last = said.strip().splitlines()[-1]
    assert "passed" in last and "skipped" not in last and "failed" not in last, said[-3000:]
    return last


def bench(_: pathlib.Path) -> str:
    """`gradbus bench all_reduce --transport rdma --check`: known data in, known sums out."""
    before = counter("rxe_near", "rdma_sends") + counter("rxe_far", "rdma_sends")
    said = run(rigs.BIN / "gradbus", "bench", "all_reduce", "--transport", "rdma", "--agents", "2", "--ranks", "2",
               "-b", "4", "-e", "1M", "-f", "64", "-n", "2", "-w", "1", "--check", "--op-timeout", "60")
    sends = counter("rxe_near", "rdma_sends") + counter("rxe_far", "rdma_sends") - before
    assert sends > 10, f"only {sends} frames went by RDMA: {said}"
    return said


def digits(_: pathlib.Path) -> str:
    """Four ranks on two agents train the digits example to the same parameters as over TCP."""
    results = {}
    for transport in ("rdma", "tcp"):
        said = run(rigs.BIN / "gradbus", "run", "-np", "4", "--agents", "2", "--transport", transport, "--no-prefix",
                   "--", rigs.BIN / "digits_train", EPOCHS, timeout=120)
        results[transport] = json.loads(said.strip().splitlines()[-1])
    rdma, tcp = results["rdma"], results["tcp"]
    assert rdma["world_size"] == 4 and rdma["epochs"] == EPOCHS and rdma["accuracy"] >= 0.8, rdma
    assert rdma["param_hash"] == tcp["param_hash"], results
    return json.dumps(rdma)


def torch_digits(_: pathlib.Path) -> str:
    """The same in PyTorch, its four ranks on two agents at the two ends of the cable."""
    program = [rigs.REPOSITORY / ".venv-debian/bin/python", rigs.REPOSITORY / "examples/digits/train.py"]
    before = counter("rxe_near", "rdma_sends")
    results = {}
    for transport in ("rdma", "tcp"):
        with two_nodes(transport, peer_timeout_ms=LONG_MS) as rig:
            said = finish(rig.start_job(4, "--epochs", "1", program=program, env={"OMP_NUM_THREADS": "1"}),
                          TORCH_MAX_S)
        assert_ok(said)
        results[transport] = json.loads(said[0][1].strip().splitlines()[-1])
    sends = counter("rxe_near", "rdma_sends") - before
    rdma, tcp = results["rdma"], results["tcp"]
    assert rdma["param_hash"] == tcp["param_hash"], results
    assert rdma["world_size"] == 4 and rdma["accuracy"] >= 0.8, rdma
    assert sends > rdma["steps"], f"only {sends} frames went by RDMA"
    return f"{sends} frames sent by rxe_near: {json.dumps(rdma)}"


def cable(_: pathlib.Path) -> str:
    """Two agents at the two ends, each with its own device: sums are right, and every one goes by RDMA."""
    before = counter("rxe_near", "rdma_sends")
    with two_nodes() as rig:
        assert_ok(finish(rig.start_job(4, "steps:grad:50000:5")))
        logs = [agent.text() for agent in rig.agents]
    sends = counter("rxe_near", "rdma_sends") - before
    assert sends > 10, f"only {sends} frames"
    assert "RDMA by rxe_near port 1, RoCE v2" in logs[0] and "RDMA by rxe_far port 1" in logs[1], logs
    return f"{sends} frames sent by rxe_near"


def counted(rig: rigs.Rig) -> list[dict]:
    """What each agent's transport has counted, once all of it has been told."""
    totals = ("sent_bytes", "received_bytes")
    shown: list[dict] = []

    def told() -> bool:
        before, shown[:] = list(shown), [agent["transport"] for agent in rig.status().get("agents", [])]
        time.sleep(1)
        return len(shown) == 2 and all(one[total] > 0 for one in shown for total in totals) and shown == before

    rigs.wait_until(told, what="counters that have come to rest")
    return shown


def copies(_: pathlib.Path) -> str:
    """No processor copies a byte of a payload over RDMA, with three queue pairs per link; TCP copies each at both
    ends."""
    found = []
    for transport in ("rdma", "tcp"):
        with two_nodes(transport, queue_pairs=3) as rig:
            assert_ok(finish(rig.start_job(2, "steps:grad:1000000:3")))
            agents = counted(rig)
        sent, received, sending, receiving = (
            sum(agent[name] for agent in agents)
            for name in ("sent_bytes", "received_bytes", "send_copied_bytes", "receive_copied_bytes"))
        assert sent == received >= 3 * 4_000_000, agents
        if transport == "rdma":
            assert sending == receiving == 0, agents
        else:
            assert sending == sent and receiving >= received, agents
        found.append(f"{transport}: {sending / sent:.2f} copies per byte sent, {receiving / received:.2f} received")
    return "; ".join(found)


def killed_agent(_: pathlib.Path) -> str:
    """An agent is killed in the middle: the ranks of the other are told at once, and who it was."""
    with two_nodes() as rig:
        ranks = rig.start_job(2, "touch:" + str(rig.folder / "begun"), "loop:grad:50000:60")
        rigs.wait_until((rig.folder / "begun").exists, what="the loop")
        time.sleep(2)
        killed = time.monotonic()
        rig.agents[1].kill()
        status, output = ranks[0].finish(TOLD_WITHIN_S)
        took = time.monotonic() - killed
        assert status == 3 and "GB-P10" in output, (status, output)
        assert ranks[1].finish(TOLD_WITHIN_S)[0] == 3
        assert rig.agents[0].alive()
    return f"after {took:.1f} s: {output.strip().splitlines()[-1]}"


def loss(_: pathlib.Path) -> str:
    """Some packets are lost in each direction: every sum is right all the same."""
    before = counter("rxe_near", "completer_retry_err") + counter("rxe_far", "completer_retry_err")
    for end in ("near", "far"):
        run("tc", "qdisc", "add", "dev", end, "root", "netem", "loss", f"{LOSS_PERCENT}%", "limit", "10000")
    try:
        with two_nodes() as rig:
            assert_ok(finish(rig.start_job(2, "steps:grad:100000:10")))
        said = run("tc", "-s", "qdisc", "show", "dev", "near")
    finally:
        for end in ("near", "far"):
            run("tc", "qdisc", "delete", "dev", end, "root")
    dropped = int(said.split("dropped ")[1].split(",")[0])
    retries = counter("rxe_near", "completer_retry_err") + counter("rxe_far", "completer_retry_err") - before
    assert dropped > 0, said
    return f"{dropped} packets of near dropped, {retries} retries"


def flap(_: pathlib.Path) -> str:
    """The interface goes down in the middle: a named error in time; when it is up again, so is the job."""
    with two_nodes() as rig:
        ranks = rig.start_job(2, "touch:" + str(rig.folder / "begun"), "loop:grad:50000:60")
        rigs.wait_until((rig.folder / "begun").exists, what="the loop")
        time.sleep(2)
        down = time.monotonic()
        run("ip", "link", "set", "far", "down")
        try:
            results = finish(ranks, TOLD_WITHIN_S)
        finally:
            took = time.monotonic() - down
            run("ip", "link", "set", "far", "up")
            run("ip", "route", "replace", NEAR, "dev", "far", "table", "1002", "src", FAR)
        assert all(status == 3 and "GB-P10" in output for status, output in results), results
        assert all(agent.alive() for agent in rig.agents)
        rigs.wait_until(lambda: port_state("rxe_far") == "ACTIVE", what="the port")
        assert_ok(finish(rig.start_job(2, "steps:grad:1000:3", job="again")))
    return f"after {took:.1f} s: {results[0][1].strip().splitlines()[-1]}"


def paths(_: pathlib.Path) -> str:
    """RDMA first, TCP along another way behind it: the cable goes down in the middle, and every sum is right."""
    # A third of the timeout is what a path has to answer, on a busy machine's emulation.
    with two_nodes("rdma,tcp", ",127.0.0.1:0", 3 * PEER_TIMEOUT_MS) as rig:
        begun, down = rig.folder / "begun", rig.folder / "down"
        before = counter("rxe_near", "rdma_sends")
        ranks = rig.start_job(2, "steps:first:50000:3", f"touch:{begun}", "loop:grad:50000:5", f"await:{down}",
                              "steps:after:50000:3")
        rigs.wait_until(begun.exists, what="the loop")
        sends = counter("rxe_near", "rdma_sends") - before
        run("ip", "link", "set", "far", "down")
        down.touch()
        try:
            results = finish(ranks)
        finally:
            run("ip", "link", "set", "far", "up")
            run("ip", "route", "replace", NEAR, "dev", "far", "table", "1002", "src", FAR)
        logs = "".join(agent.text() for agent in rig.agents)
        assert all(status == 0 for status, _ in results), f"{results} {logs}"
    assert sends > 10, f"only {sends} frames went by RDMA before"
    assert "now tcp 127.0.0.1:" in logs, logs
    rigs.wait_until(lambda: port_state("rxe_far") == "ACTIVE", what="the port")
    return "; ".join(line for line in logs.splitlines() if " now tcp " in line)


STEPS = (folders, doctor, locked_memory, control_groups, bench, digits, torch_digits, cable, copies, killed_agent, loss,
         flap, paths, contract)


def attempt(step: Callable[[pathlib.Path], str], out: pathlib.Path) -> tuple[bool, str]:
    """Whether a step succeeds, and what it found or why it failed."""
    try:
        return True, step(out)
    except Exception:
        return False, traceback.format_exc()


def main() -> int:
    """Runs the steps that were named, or all."""
    out = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:]
    report = {}
    os.environ["GRADBUS_AGENT_PEER_TIMEOUT_MS"] = str(PEER_TIMEOUT_MS)  # of embedded agents
    warm()
    for step in STEPS:
        if wanted and step.__name__ not in wanted:
            continue
        began = time.monotonic()
        stuck = lockups()
        ok, text = attempt(step, out)
        # The emulated processor itself stood still, as on a machine that is paused: no deadline in there holds.
        if not ok and lockups() > stuck:
            ok, again = attempt(step, out)
            text = f"{again}\n(again, after the kernel had found a processor stuck; the first time: {text})"
        report[step.__name__] = {"ok": ok, "seconds": round(time.monotonic() - began, 1), "text": text}
        (out / "steps.json").write_text(json.dumps(report, indent=1))
        print(step.__name__, json.dumps(report[step.__name__], indent=1).replace("\\n", "\n"), flush=True)
    return 0 if all(step["ok"] for step in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
