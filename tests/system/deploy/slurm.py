"""A Slurm cluster on this machine: munged, slurmctld, and a slurmd for each node, in a folder, ended by process id."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import secrets
import shutil
import socket
import subprocess

import rig as rigs

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SCRIPTS = rigs.REPOSITORY / "deploy/slurm"
CPUS = 4  # of each node; more than this machine has
RECONFIGURED = "CPU frequency setting"  # a line of slurmd whenever it has read its configuration

CONF = """
ClusterName=gradbus
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} State=UNKNOWN\n"


@functools.cache
def why_no_slurm() -> str:
    """Why Slurm cannot run here; empty where it can."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (scripts/setup.sh)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Slurm:
    """Daemons of Slurm, without prolog and epilog until install()."""

    def __init__(self, folder: pathlib.Path, nodes: list[str]) -> None:
        self.folder = folder
        self.nodes = nodes
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen] = []
        ports = free_ports(1 + len(nodes))
        host = socket.gethostname()
        lines = [NODE.format(name=node, host=host, port=port, cpus=CPUS) for node, port in zip(nodes, ports[1:])]
        (folder / "slurm.conf").write_text(
            CONF.format(folder=folder, host=host, port=ports[0]) + "".join(lines)
            + "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")

    def start(self) -> Slurm:
        """Runs the daemons until all nodes are idle."""
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        (self.folder / "state").mkdir()
        ends = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{name}={self.folder}/munge.{end}" for name, end in ends.items()]
        self._daemon("munged", "--foreground", "--force", *files)
        rigs.wait_until((self.folder / "munge.sock").exists, what="munged")
        self._daemon("slurmctld", "-D")
        for node in self.nodes:
            self._daemon("slurmd", "-D", "-N", node)
        rigs.wait_until(self.idle, what="idle nodes")
        return self

    def _daemon(self, *words: str) -> None:
        with open(self.folder / f"{words[0]}.out", "a") as out:
            self._daemons.append(subprocess.Popen(words, env=self.environment, stdout=out, stderr=out))

    def install(self, commands: str, settings: dict[str, str]) -> None:
        """Runs the page's commands that install deploy/slurm, in `folder` instead of /etc, until all daemons know it.
        `settings` is what /etc/gradbus/slurm.env has."""
        tree = self.folder / "tree/deploy/slurm"
        shutil.copytree(SCRIPTS, tree)
        (self.folder / "settings").write_text("".join(f'{name}="{value}"\n' for name, value in settings.items()))
        places = {"/etc/gradbus/slurm.env": f"{self.folder}/settings", "/etc/slurm/gradbus": f"{self.folder}/scripts",
                  "/etc/slurm/slurm.conf": f"{self.folder}/slurm.conf"}  # fmt: skip
        for place, own in places.items():
            commands = commands.replace(place, own)
            for file in tree.iterdir():
                file.write_text(file.read_text().replace(place, own))
        (self.folder / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
        (self.folder / "sudo").chmod(0o755)
        with self.reconfigured():
            self.call("bash", "-euo", "pipefail", "-c", f"cd tree\n{commands}", PATH=f"{self.folder}:{PATH}")

    @contextlib.contextmanager
    def reconfigured(self):
        """At its end, each slurmd has read its configuration again; slurmctld tells them."""
        logs = [self.folder / f"slurmd-{node}.log" for node in self.nodes]
        before = [log.read_text().count(RECONFIGURED) for log in logs]
        yield
        rigs.wait_until(lambda: all(log.read_text().count(RECONFIGURED) > times for log, times in zip(logs, before)),
                        what="the new configuration")  # fmt: skip

    def idle(self) -> bool:
        """Whether all nodes wait for jobs."""
        done = self.call("sinfo", "--noheader", "--Node", "--format=%N %T", check=False)
        return sorted(done.stdout.split("\n")[:-1]) == sorted(f"{node} idle" for node in self.nodes)

    def call(self, *words: str | pathlib.Path, check: bool = True, timeout: float = 120, **variables: str):
        """A command of Slurm."""
        done = subprocess.run(words, env={**self.environment, **variables}, capture_output=True, text=True, check=False,
                              timeout=timeout, cwd=self.folder)  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.logs()}"
        return done

    def logs(self) -> str:
        """The end of what the daemons said."""
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        """Ends the daemons, the last first."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
