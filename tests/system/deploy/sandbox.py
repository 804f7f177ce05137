"""Pods without an engine: namespaces of the kernel, with what the kubelet gives a pod of a template.

Each pod has a network namespace with an address on a bridge, a host name, its own /etc, /home, /tmp and /run, and the
user, group and rights of its securityContext. /run/gradbus is the directory of its node's agent. Where an image has
`python` and `torchrun`, the pod has this repository's. The network leads to other pods only: not to agents.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess

import rendered
import rig as rigs

HOME = "/home/mpiuser"
NET = "10.244.7"
ENTER = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 none /run
mkdir /run/gradbus
mount --bind "$1/gradbus" /run/gradbus
for folder in usr/local/bin etc home tmp; do mount --bind "$1/$folder" "/$folder"; done
cd "$2"
uid=$3 gid=$4
shift 4
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@"
"""


def python_programs(folder: pathlib.Path) -> None:
    """`python` and `torchrun`, as an image has them."""
    python = rigs.REPOSITORY / ".venv/bin/python"
    for name, words in (("python", ""), ("torchrun", " -m torch.distributed.run")):
        (folder / name).write_text(f'#!/bin/sh\nexec {python} -B{words} "$@"\n')
        (folder / name).chmod(0o755)


class Network:
    """The pod network: a bridge in a namespace that ends with its holder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.holders: list[subprocess.Popen] = []
        self.running: list[subprocess.Popen] = []
        self.hosts: dict[str, str] = {}  # what DNS answers
        self.bridge = self._hold("bridge")
        self._ip(self.bridge, "link", "add", "pods", "type", "bridge")
        self._ip(self.bridge, "link", "set", "pods", "up")

    def _hold(self, name: str) -> int:
        """A network and host name; the process that keeps it."""
        words = ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name}; echo ready; exec sleep 3600"]
        self.holders.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        assert self.holders[-1].stdout.readline() == "ready\n"
        return self.holders[-1].pid

    @staticmethod
    def _ip(holder: int, *words: str) -> None:
        subprocess.run(["nsenter", f"--net=/proc/{holder}/ns/net", "ip", *words], check=True, capture_output=True)

    def add(self, pod, gradbus: pathlib.Path) -> Sandbox:
        """Makes the sandbox of a pod (operators.Pod); its node's agent has its socket in `gradbus`."""
        number = len(self.holders)
        holder = self._hold(pod.name)
        peer = ("peer", "name", f"pod{number}", "netns", str(self.bridge))
        self._ip(holder, "link", "add", "eth0", "type", "veth", *peer)
        self._ip(holder, "address", "add", f"{NET}.{number}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            self._ip(holder, "link", "set", name, "up")
        self._ip(self.bridge, "link", "set", f"pod{number}", "master", "pods", "up")
        for name in (pod.name, *pod.names):
            self.hosts[name] = f"{NET}.{number}"
        return Sandbox(self, pod, holder, gradbus)

    def close(self) -> None:
        """Ends what runs in the pods, and their namespaces."""
        for process in [*self.running, *self.holders]:
            process.kill()
            process.wait()
            process.stdout.close()


class Sandbox:
    """One pod."""

    def __init__(self, network: Network, pod, holder: int, gradbus: pathlib.Path) -> None:
        self.network = network
        self.pod = pod
        self.holder = holder
        self.folder = network.folder / pod.name
        (self.folder / "node").mkdir(parents=True)
        node = rendered.Node("node", "", self.folder / "node")
        meta = {"annotations": pod.annotations, "labels": pod.labels}
        self.spec = node.pod({"spec": {"template": pod.template}}, pod.name, **meta)["spec"]
        (self.container,) = self.spec["containers"]
        mounts = {mount["mountPath"] for mount in self.container["volumeMounts"]}
        for name in ("tmp", "usr/local/bin", "gradbus"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "tmp").chmod(0o1777)
        self.gradbus = gradbus if "/run/gradbus" in mounts else self.folder / "gradbus"
        self._make_etc()
        python_programs(self.folder / "usr/local/bin")
        self.home = self.folder / HOME.strip("/")
        self.home.mkdir(parents=True)
        shutil.chown(self.home, self.user, self.group)
        (self.home / "train.py").symlink_to(rigs.REPOSITORY / "examples/digits/train.py")

    @property
    def user(self) -> int:
        """Of the pod's processes."""
        return self.spec["securityContext"]["runAsUser"]

    @property
    def group(self) -> int:
        """Of the pod's processes."""
        return self.spec["securityContext"]["runAsGroup"]

    def _make_etc(self) -> None:
        etc = self.folder / "etc"
        subprocess.run(["cp", "-a", "/etc", etc], check=True)
        (etc / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\nmpiuser:x:{self.user}:{self.user}::{HOME}:/bin/bash\n")
        for path, text in self.pod.files.items():
            (self.folder / path.strip("/")).parent.mkdir(exist_ok=True)
            (self.folder / path.strip("/")).write_text(text)

    def start(self, *words: str, **variables: str) -> subprocess.Popen:
        """Runs the container's command with more words; its output is one pipe. The last variables win."""
        names = "".join(f"{address} {name}\n" for name, address in self.network.hosts.items())
        (self.folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
        known = {entry["name"]: entry["value"] for entry in self.container["env"]}
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": HOME, **known, **self.pod.variables, **variables}
        target = self.folder / "gradbus"
        if self.gradbus != target:
            target.rmdir()
            target.symlink_to(self.gradbus)
        command = [*self.container["command"], *self.container.get("args", []), *words]
        process = subprocess.Popen(
            ["nsenter", f"--net=/proc/{self.holder}/ns/net", f"--uts=/proc/{self.holder}/ns/uts", "unshare", "--mount",
             "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", self.folder, HOME, str(self.user),
             str(self.group), *command], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.network.running.append(process)
        return process


@contextlib.contextmanager
def network(folder: pathlib.Path):
    """A pod network that ends with the block."""
    with contextlib.closing(Network(folder)) as pods:
        yield pods
