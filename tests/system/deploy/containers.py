"""Images by buildah and Pods by podman, in a store of their own that is gone afterwards.

No registry and no pod network is needed. The runtime is runc: crun does not start where cgroups are in hybrid mode.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import shutil
import subprocess

import rig as rigs
import yaml

COMMAND_S = 400
NEEDED = ("buildah", "podman", "runc", "kubectl")


class Containers:
    """A store of images and running pods in `folder`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        # Limits below the machine's own: raising them needs CAP_SYS_RESOURCE.
        (folder / "containers.conf").write_text(
            '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=2048:2048"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\nlock_type = "file"\n'
            f'tmp_dir = "{folder}/libpod"\n')  # fmt: skip
        (folder / "storage.conf").write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n')
        self.environment = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf"),
                            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}  # fmt: skip

    def call(self, *words: str | pathlib.Path, text: str | None = None, check: bool = True) -> str:
        """What a command wrote to its standard output."""
        done = subprocess.run(words, env=self.environment, input=text, capture_output=True, text=True, check=False,
                              timeout=COMMAND_S)  # fmt: skip
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def why_not(self) -> str:
        """Why not even an image with one program runs in this store; empty where it does."""
        place = self.folder / "probe"
        place.mkdir()
        shutil.copy(shutil.which("busybox") or "/bin/busybox", place / "busybox")
        (place / "Containerfile").write_text("FROM scratch\nCOPY busybox /busybox\n")
        run = ["podman", "run", "--rm", "--pull", "never", "--network", "host", "localhost/probe", "/busybox", "true"]
        for words in (["buildah", "bud", "-q", "--isolation", "chroot", "-t", "localhost/probe", place], run):
            done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False,
                                  timeout=COMMAND_S)  # fmt: skip
            if done.returncode != 0:
                return f"{words[0]} cannot work here: {done.stderr.strip()[-300:]}"
        return ""

    def podman(self, *words: str, **options) -> str:
        """What podman wrote."""
        return self.call("podman", *words, **options)

    def play(self, pod: dict) -> str:
        """Starts a Pod of one container; the name of that container."""
        self.podman("play", "kube", "-", text=yaml.safe_dump(pod))
        return f"{pod['metadata']['name']}-{pod['spec']['containers'][0]['name']}"

    def play_all(self, pods: list[dict]) -> str:
        """Starts Pods; each one before the last runs to its end first. The container of the last."""
        for pod in pods[:-1]:
            container = self.play(pod)
            assert self.wait(container) == 0, self.logs(container)
        return self.play(pods[-1])

    def wait(self, container: str) -> int:
        """Its exit status, once it has ended."""
        return int(self.podman("wait", container))

    def logs(self, container: str) -> str:
        """Its output, both streams."""
        done = subprocess.run(["podman", "logs", container], env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=COMMAND_S)  # fmt: skip
        return done.stdout

    def inspect(self, container: str) -> dict:
        """Everything that podman knows of it."""
        return json.loads(self.podman("inspect", container))[0]

    def close(self) -> None:
        """Ends all pods and takes the store's mounts away."""
        self.podman("pod", "rm", "--force", "--all", "--time", "0", check=False)
        self.podman("rm", "--force", "--all", "--time", "0", check=False)
        mounts = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([path for path in mounts if path.startswith(f"{self.folder}/")]):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


@functools.cache
def why_no_containers() -> str:
    """Why no container can run here; empty where one can."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (scripts/setup.sh)"
    if os.geteuid() != 0:
        return "containers with the network of the machine need root"
    if rigs.BIN.parent != rigs.REPOSITORY / "build/release":
        return "an image is made of the release build"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return f"no mount here: {probe.stderr.strip()}" if probe.returncode else ""
