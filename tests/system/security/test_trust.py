"""The cluster token: who may be an agent, a shard or an administrator; and what an intruder cannot do.

The intruder is another user of the machine, who can reach every port and the agents' sockets.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import rig as rigs
from intruder import UID, intruder, needs_root

SEEN_S = 20


@pytest.fixture(scope="module")
def nodes():
    """Two nodes whose sockets every user may open."""
    with rigs.cluster(2, "--socket-mode", "0666") as running:
        running.folder.chmod(0o755)
        yield running


@pytest.fixture(scope="module")
def other():
    """Another user."""
    with intruder() as one:
        yield one


@pytest.fixture
def other_token(tmp_path):
    """The token of some other cluster."""
    return str(rigs.make_token_file(tmp_path / "other-token"))


def command(*words, token=None, env=None):
    """(exit status, output) of a program that ends by itself; `token`: its token file."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_")}
    if token is not None:
        variables["GRADBUS_TOKEN_FILE"] = str(token)
    done = subprocess.run([rigs.BIN / words[0], *words[1:]], env={**variables, **(env or {})}, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=rigs.DEADLINE_S)
    return done.returncode, done.stdout


def one_error(output: str, number: str, *parts: str) -> str:
    """The one line of `output` with this error, which names all `parts`."""
    lines = [line for line in output.splitlines() if f"GB-{number} " in line]
    assert len(lines) == 1 and "| next: " in lines[0], output
    assert all(part in lines[0] for part in parts), (parts, lines[0])
    return lines[0]


def logged(nodes, pattern: str) -> None:
    """The coordinator has logged such a line."""
    log = nodes.server.text()
    assert re.search(pattern, log), log


# ---- token files


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_token_file_that_others_can_use_is_refused(tmp_path, mode):
    """The message names the mode and the command that mends it."""
    path = rigs.make_token_file(tmp_path / "token")
    path.chmod(mode)
    for program in ("gradbus-server", "gradbus-agent"):
        status, output = command(program, "--token-file", str(path))
        assert status == 1
        one_error(output, "F104", str(path), f"{mode:04o}", f"chmod 600 {path}")
    status, output = command("gradbus", "status", "--token-file", str(path), "--coordinator", "127.0.0.1:1")
    assert status == 2
    one_error(output, "F104", f"{mode:04o}")


def test_token_files_that_are_none(tmp_path):
    """Missing, a folder, too short, not hexadecimal."""
    short, letters = tmp_path / "short", tmp_path / "letters"
    for path, text in ((short, "ab" * 31), (letters, "zz" * 32)):
        path.touch(mode=0o600)
        path.write_text(text)
    for path in (tmp_path / "none", tmp_path, short, letters):
        status, output = command("gradbus-agent", token=path)
        assert status == 1
        one_error(output, "F104", str(path), "openssl rand -hex 32")


@needs_root
def test_a_token_file_of_another_user_is_refused(tmp_path):
    """Whoever owns the file knows the token and may change it."""
    path = rigs.make_token_file(tmp_path / "token")
    os.chown(path, UID, UID)
    status, output = command("gradbus-server", "--token-file", str(path))
    assert status == 1
    one_error(output, "F104", f"uid {UID}", "uid 0")


# ---- who may listen without a token


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"])
def test_no_token_no_port(listen):
    """Loopback is refused, too: every user of the machine reaches it."""
    status, output = command("gradbus-server", "--listen", listen)
    assert status == 1
    one_error(output, "F100", "--token-file", "--insecure-i-understand", "unix:")


@pytest.mark.parametrize("words", [["gradbus-agent"], ["gradbus-agent", "--shard"], ["gradbus-server", "--role=shard"]])
def test_no_token_no_data_port(words, tmp_path):
    """The same rule for the data plane of agents and shards."""
    status, output = command(*words, "--socket", str(tmp_path / "a.sock"))
    assert status == 1
    one_error(output, "F100", "--bind 127.0.0.1", "--token-file", "--insecure-i-understand")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:"])
def test_a_cluster_without_a_token(tmp_path, monkeypatch, listen):
    """It works where that is asked for; the coordinator says that it has none."""
    monkeypatch.delenv("GRADBUS_TOKEN_FILE")
    rig = rigs.Rig(tmp_path)
    try:
        address = f"unix:{tmp_path}/coordinator.sock" if listen == "unix:" else listen
        flag = [] if listen == "unix:" else ["--insecure-i-understand"]
        rig.server = rig.start_daemon("gradbus-server", "--listen", address, *flag)
        for index in range(2):
            rig.start_agent(f"node-{index}", "--insecure-i-understand")
        for rank in rig.start_job(4, "red:x:1000:f32:sum"):
            status, output = rank.finish()
            assert status == 0, output
        assert len(rig.status()["agents"]) == 2
        assert "without a cluster token" in rig.server.text()
        if listen == "unix:":
            assert (tmp_path / "coordinator.sock").stat().st_mode & 0o777 == 0o600
    finally:
        rig.stop()


# ---- what must be proven


def test_commands_prove_the_token(nodes, other_token):
    """None, another one, the right one."""
    address = nodes.server.ready["address"]
    for words in (["status"], ["stop", "job"], ["mode", "job", "*", "sync"]):
        status, output = command("gradbus", *words, "--coordinator", address)
        assert status != 0
        one_error(output, "C503", "no proof of the cluster token", "--token-file")
        status, output = command("gradbus", *words, "--coordinator", address, token=other_token)
        assert status != 0
        one_error(output, "C503", address, other_token, "does not prove")
    assert command("gradbus", "status", "--coordinator", address, "--token-file", str(rigs.TOKEN_FILE))[0] == 0
    rigs.wait_until(lambda: "no proof of the cluster token" in nodes.server.text(), SEEN_S)


def test_refusals_are_logged_at_most_once_a_second(nodes):
    """With the number of those that were not."""
    address = nodes.server.ready["address"]
    before = nodes.server.text().count("no proof of the cluster token")
    started = time.monotonic()
    for _ in range(12):
        command("gradbus", "status", "--coordinator", address)
    passed = time.monotonic() - started
    assert nodes.server.text().count("no proof of the cluster token") - before <= passed + 2


@pytest.mark.parametrize("shard", [False, True])
def test_an_agent_without_the_token_stays_outside(nodes, tmp_path, other_token, shard):
    """It is told why, is in no list, and says why to its clients; so is a shard."""
    kind = ["--shard"] if shard else ["--socket", str(tmp_path / "own.sock")]
    log = tmp_path / "own.log"
    for flags, reason in ((["--insecure-i-understand"], "no proof of the cluster token"),
                          (["--token-file", other_token], "does not prove that it knows this agent's cluster token")):
        env = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_")}
        with log.open("w") as file:
            agent = subprocess.Popen(
                [rigs.BIN / "gradbus-agent", "--coordinator", nodes.server.ready["address"], "--name", "outside",
                 *kind, *flags], env=env, stdout=file, stderr=file)
        try:
            rigs.wait_until(lambda reason=reason: reason in log.read_text(), SEEN_S, reason)
            assert "outside" not in [one["name"] for one in nodes.status()["agents"]]
            if not shard:
                status, output = command("scripted_rank", env={
                    "GRADBUS_SOCKET": str(tmp_path / "own.sock"), "GRADBUS_RANK": "0", "GRADBUS_SIZE": "1",
                    "GRADBUS_JOB": "outside"})
                assert status == 3
                one_error(output, "C503", reason)
            time.sleep(1)  # it tries again and again, and says so once
            assert log.read_text().count("no connection to the coordinator") == 1
        finally:
            agent.kill()
            agent.wait()


def test_an_agent_with_a_token_trusts_no_coordinator_without(nodes, tmp_path):
    """A false coordinator that has no token, on the address where the agent looks for its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_")}
    reader, writer = os.pipe()
    with (tmp_path / "false.log").open("w") as file:
        server = subprocess.Popen([rigs.BIN / "gradbus-server", "--listen", "127.0.0.1:0", "--insecure-i-understand",
                                   "--ready-fd", str(writer)], env=env, pass_fds=[writer], stdout=file, stderr=file)
    os.close(writer)
    try:
        address = json.loads(os.read(reader, 4096))["address"]
        log = tmp_path / "agent.log"
        with log.open("w") as file:
            agent = subprocess.Popen([rigs.BIN / "gradbus-agent", "--coordinator", address, "--name", "honest",
                                      "--socket", str(tmp_path / "a.sock")], stdout=file, stderr=file)
        try:
            rigs.wait_until(lambda: "GB-C503" in log.read_text(), SEEN_S)
            one_error(log.read_text(), "C503", address)
            assert "honest" not in (tmp_path / "false.log").read_text()
        finally:
            agent.kill()
            agent.wait()
    finally:
        os.close(reader)
        server.kill()
        server.wait()


# ---- the attack


@needs_root
def test_an_intruder_gets_nowhere(nodes, other, tmp_path):
    """Own agent, own shard, stop, mode, a rank of the job: all fail with clear messages, the job goes on."""
    address, socket = nodes.server.ready["address"], nodes.agents[0].ready["socket"]
    ranks = nodes.start_job(2, f"touch:{tmp_path}/started", "loop:x:1000:8", job="prey")
    rigs.wait_until(lambda: (tmp_path / "started").exists())

    with other.agent(address, "--insecure-i-understand") as (_, own_socket, log):
        rigs.wait_until(lambda: "GB-C503" in log.read_text(), SEEN_S)
        status, output = other.rank(own_socket, 1, 2, "prey")
        assert status == 3
        one_error(output, "C503", "no proof of the cluster token")
    with other.agent(address, "--insecure-i-understand", shard=True) as (_, _, log):
        rigs.wait_until(lambda: "GB-C503" in log.read_text(), SEEN_S)
    status, output = other.rank(socket, 1, 2, "prey")
    assert status == 3
    one_error(output, "J408", "root (uid 0)", f"uid {UID}")

    for words in (["stop", "prey"], ["mode", "prey", "*", "delayed:k=1"]):
        status, output = other.run("gradbus", *words, "--coordinator", address)
        assert status == 1
        one_error(output, "C503", "no proof of the cluster token")
        status, output = other.run("gradbus", *words, env={"GRADBUS_SOCKET": socket})
        assert status == 1
        one_error(output, "J408", 'job "prey"', "root (uid 0)", f"uid {UID}")
    status, output = other.run("gradbus", "status", "--coordinator", address, "--token-file", str(rigs.TOKEN_FILE))
    assert status == 2
    one_error(output, "F104", "Permission denied")

    assert [agent["name"] for agent in nodes.status()["agents"]] == ["node-0", "node-1"]
    for rank in ranks:
        status, output = rank.finish()
        assert status == 0, output
    logged(nodes, rf'stop of job "prey" asked by .*uid {UID}\) on node-0, through agent node-0 .*: refused, GB-J408')
    logged(nodes, rf'mode "delayed:k=1" for job "prey" asked by .*uid {UID}.*: refused, GB-J408')


@needs_root
def test_an_owner_without_the_token_stops_its_job_through_the_agent(nodes, other):
    """And root stops anybody's. The log has caller, address and result."""
    socket = nodes.agents[0].ready["socket"]
    for job, run in (("by-owner", other.run), ("by-root", command)):
        ranks = [other.popen("scripted_rank", "loop:x:10:100", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={
            "GRADBUS_SOCKET": socket, "GRADBUS_RANK": str(rank), "GRADBUS_SIZE": "2", "GRADBUS_JOB": job})
            for rank in range(2)]
        try:
            nodes.wait_for_rank(1, job)
            nodes.wait_for_rank(0, job)
            done = run("gradbus", "stop", job, "--reason", "enough", env={"GRADBUS_SOCKET": socket})
            assert done == (0, f"job {job} is stopped\n")
            for rank in ranks:
                output, _ = rank.communicate(timeout=rigs.DEADLINE_S)
                assert rank.returncode == 3 and "GB-J405" in output and "enough" in output, output
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()
    logged(nodes, rf'stop of job "by-owner" asked by .*uid {UID}\) on node-0, through agent node-0 .*: done')
    logged(nodes, r'stop of job "by-root" asked by root \(uid 0\) on node-0, through agent node-0 .*: done')


def test_a_wish_through_an_agent_that_makes_no_sense(nodes):
    """One line, whatever the words."""
    env = {"GRADBUS_SOCKET": nodes.agents[0].ready["socket"]}
    status, output = command("gradbus", "stop", "nobody's", env=env)
    assert status == 1
    one_error(output, "J406", "nobody's")
    status, output = command("gradbus", "stop", "x" * 300, env=env)
    assert status == 1
    one_error(output, "J406")


# ---- gradbus run


def test_gradbus_run_has_a_token_of_its_own(tmp_path):
    """Its user's commands find it; it is on no command line and in no environment; it is gone afterwards."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GRADBUS_")} | {"TMPDIR": str(tmp_path)}
    env.pop("XDG_RUNTIME_DIR", None)
    run = subprocess.Popen(
        [rigs.BIN / "gradbus", "run", "-np", "2", "--agents", "2", "--job", "own", "--embedded", "--verbose", "--",
         rigs.BIN / "scripted_rank", f"touch:{tmp_path}/started", "loop:x:10:100"],
        env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        rigs.wait_until(lambda: (tmp_path / "started").exists())
        (folder,) = tmp_path.glob("gradbus-run-*")
        token = (folder / "token").read_text().strip()
        assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "token").stat().st_mode & 0o777 == 0o600
        address = (folder / "coordinator").read_text().strip()
        for pid in [path for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]:
            for name in ("cmdline", "environ"):
                try:
                    assert token.encode() not in (pid / name).read_bytes(), pid
                except OSError:
                    pass
        status, output = command("gradbus", "status", "--coordinator", address, env={"TMPDIR": str(tmp_path)})
        assert status == 0 and "own" in output, output
        status, output = command("gradbus", "status", "--coordinator", address, env={"TMPDIR": "/nowhere"})
        assert status == 2
        one_error(output, "C503")
        status, output = command("gradbus", "stop", "own", "--coordinator", address, env={"TMPDIR": str(tmp_path)})
        assert (status, output) == (0, "job own is stopped\n")
        output, _ = run.communicate(timeout=rigs.DEADLINE_S)
        assert "GB-J405" in output
        assert not folder.exists()
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
            run.communicate(timeout=rigs.DEADLINE_S)
