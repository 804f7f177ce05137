"""The image of scripts/image.sh and the pods of deploy/kubernetes run: a cluster of two nodes trains a model."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import tempfile

import grpc
import pytest
import rendered
import rig as rigs
import yaml
from containers import Containers, why_no_containers
from grpc_health.v1 import health_pb2, health_pb2_grpc

WHY_NOT = why_no_containers() or rendered.why_no_kustomize()
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "containers run here")]
IMAGE_BYTES_MAX = 120_000_000
GROUP = 7400
NAMES = {"node-1", "node-2", "gradbus-shard-0"}
PROBED = ((0, 7400), (0, 9402), (1, 9402), (2, 9402))  # (node, port) of coordinator, shard and agents
JOB = yaml.safe_load((rendered.DEPLOY / "examples/job.yaml").read_text())


def bundle_of(store: Containers) -> pathlib.Path:
    """The bundle of which the image is made."""
    (bundle,) = store.folder.glob("gradbus-*.tar.gz")
    return bundle


@pytest.fixture(scope="module")
def containers():
    """A store with the image."""
    store = Containers(pathlib.Path(tempfile.mkdtemp(prefix="gradbus-pods-")))
    store.folder.chmod(0o755)
    try:
        if why := store.why_not():
            pytest.skip(why)
        store.call(rigs.REPOSITORY / "scripts/bundle.sh", store.folder)
        store.call(rigs.REPOSITORY / "scripts/image.sh", "--bundle", bundle_of(store))
        yield store
    finally:
        store.close()


class Cluster:
    """The rendered overlay on three nodes: one for the coordinator, two with agents."""

    def __init__(self, containers: Containers) -> None:
        self.containers = containers
        self.objects = rendered.render("cluster", containers.folder)
        prefix = f"127.{random.randrange(16, 250)}.{random.randrange(250)}"
        names = ["node-0", "node-1", "node-2"]
        self.nodes = [rendered.Node(name, f"{prefix}.{i}", containers.folder / name) for i, name in enumerate(names, 1)]
        for node in self.nodes:
            node.aliases["gradbus-coordinator"] = self.nodes[0].address
            node.keep_secret(rendered.one(self.objects, "Secret"), GROUP)
        self.coordinator = self._start(0, "Deployment", "coordinator")
        self.shard = self._start(0, "StatefulSet", "gradbus-shard-0")
        self.agents = [self._start(1, "DaemonSet", "agent-1"), self._start(2, "DaemonSet", "agent-2")]

    def _start(self, node: int, kind: str, name: str) -> str:
        return self.containers.play_all(self.nodes[node].pods(rendered.one(self.objects, kind), name))

    def serves(self, node: int, port: int, service: str = "") -> bool:
        """Whether a probe of the kubelet succeeds."""
        with contextlib.suppress(grpc.RpcError), grpc.insecure_channel(f"{self.nodes[node].address}:{port}") as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
            return answer.status == health_pb2.HealthCheckResponse.SERVING
        return False

    def wait_until_ready(self) -> None:
        """The readiness probes of all pods succeed."""
        for node, port in PROBED:
            rigs.wait_until(lambda at=node, p=port: self.serves(at, p), what=f"node {node}")

    def status(self) -> dict:
        """gradbus status in the coordinator's pod, as an administrator asks for it."""
        return json.loads(self.containers.podman("exec", self.coordinator, "gradbus", "status", "--json", check=False))

    def start_rank(self, rank: int, name: str, *words: str, **variables: str) -> str:
        """One pod of examples/job.yaml, whose training image is this machine's Python; its container.
        `words` for the example, and more variables."""
        pod = self.nodes[1 + rank // 2].pod(
            JOB, f"{name}-{rank}", annotations={"batch.kubernetes.io/job-completion-index": str(rank)},
            labels={"batch.kubernetes.io/controller-uid": name})  # fmt: skip
        container = pod["spec"]["containers"][0]
        container["image"] = "localhost/gradbus:latest"
        container["command"] = [str(rigs.REPOSITORY / ".venv/bin/python"), "-B",
                                str(rigs.REPOSITORY / "examples/digits/train.py"), *words]  # fmt: skip
        variables["OMP_NUM_THREADS"] = "1"
        known = {entry["name"]: entry["value"] for entry in container["env"]}
        container["env"] = [{"name": name, "value": value} for name, value in {**known, **variables}.items()]
        for path in ("/usr", str(rigs.REPOSITORY)):
            volume = path.strip("/").replace("/", "-").lower()
            pod["spec"]["volumes"].append({"name": volume, "hostPath": {"path": path, "type": "Directory"}})
            container["volumeMounts"].append({"name": volume, "mountPath": path, "readOnly": True})
        return self.containers.play(pod)

    def kill(self, container: str) -> None:
        """Ends its first process as the kernel does when memory is short; returns once another one runs."""
        before = self.containers.inspect(container)["State"]["Pid"]
        os.kill(before, signal.SIGKILL)
        rigs.wait_until(lambda: self.containers.inspect(container)["State"]["Pid"] not in (0, before),
                        what=f"{container} runs again")  # fmt: skip


@pytest.fixture(scope="module")
def cluster(containers):
    """Ready for jobs."""
    running = Cluster(containers)
    running.wait_until_ready()
    return running


def test_the_image_is_small_and_runs_without_root(containers):
    image = json.loads(containers.podman("image", "inspect", "localhost/gradbus"))[0]
    assert image["Size"] < IMAGE_BYTES_MAX
    assert image["Config"]["User"] == "7400:7400"
    run = ("run", "--rm", "--pull", "never", "--network", "host", "--read-only", "--cap-drop", "all")
    said = containers.podman(*run, "localhost/gradbus", "sh", "-c",
                             "id -u; gradbus --version; ls /opt/gradbus/licences")  # fmt: skip
    lines = said.split("\n")
    assert lines[0] == "7400" and lines[1].startswith("gradbus ")
    assert {"gradbus", "libgrpc++1.51", "libc6", "busybox-static"} <= set(lines)
    owned = containers.podman(*run[:6], "--user", "0", "localhost/gradbus", "sh", "-c",
                              "busybox find / -xdev ! -user 0; busybox find / -xdev -perm -4000")
    assert set(owned.split()) == {"/home/gradbus", "/run/gradbus", "/var/lib/gradbus"}


def test_the_base_of_the_image_is_debian_or_another_image(containers):
    """The first one by mmdebstrap. Then an image with another name is made from that base."""
    run = ("run", "--rm", "--pull", "never", "--network", "host")
    said = containers.podman(*run, "localhost/gradbus-base", "sh", "-c",
                             ". /etc/os-release; echo $ID $VERSION_ID; ls /usr/share/doc/libc6/copyright")  # fmt: skip
    assert said.splitlines() == ["debian 12", "/usr/share/doc/libc6/copyright"]
    tag = "localhost/gradbus-again"
    containers.call(rigs.REPOSITORY / "scripts/image.sh", "--base", "localhost/gradbus-base", "--bundle",
                    bundle_of(containers), "--tag", tag)  # fmt: skip
    assert containers.podman(*run, tag, "gradbus", "--version").startswith("gradbus ")
    names = containers.podman("images", "--format", "{{.Repository}}")
    assert f"{tag}-base" not in names and tag in names


def test_killed_pods_come_back_and_four_ranks_train(cluster):
    """One after the other, so that the job proves what came back."""
    assert all(cluster.serves(node, port, "liveness") for node, port in PROBED)
    for container in (cluster.agents[1], cluster.shard, cluster.coordinator):
        cluster.kill(container)
    cluster.wait_until_ready()
    rigs.wait_until(lambda: {agent["name"] for agent in cluster.status().get("agents", [])} == NAMES,
                    what="agents and shard")  # fmt: skip
    ranks = [cluster.start_rank(rank, "digits", "--epochs", "8") for rank in range(4)]
    statuses = [cluster.containers.wait(rank) for rank in ranks]
    logs = [cluster.containers.logs(rank) for rank in ranks]
    assert statuses == [0] * 4, logs
    result = json.loads(logs[0].strip().splitlines()[-1])
    assert result["world_size"] == 4 and result["ranks_identical"] and result["accuracy"] > 0.95, result
    (job,) = cluster.status()["jobs"]
    assert job["job"] == "digits" and {rank["agent"] for rank in job["ranks"]} == {"node-1", "node-2"}, job


def test_ranks_train_through_the_shard_of_the_statefulset(cluster):
    """After the test before: its pod was killed and is back. At the end of a job, its volume has a snapshot."""
    ranks = [cluster.start_rank(rank, "sharded", "--epochs", "2", GRADBUS_SIZE="2", GRADBUS_MODE="ps:async")
             for rank in range(2)]  # fmt: skip
    statuses = [cluster.containers.wait(rank) for rank in ranks]
    assert statuses == [0, 0], [cluster.containers.logs(rank) for rank in ranks]
    job = next(job for job in cluster.status()["jobs"] if job["job"] == "sharded")
    assert [shard["shard"] for shard in job["shards"]] == ["gradbus-shard-0"], job
    disk = cluster.nodes[0].folder / "disks/snapshots-gradbus-shard-0"
    rigs.wait_until(lambda: any(file.stat().st_size > 10_000 for file in disk.rglob("*") if file.is_file()),
                    what="a snapshot on the volume")  # fmt: skip


def test_the_socket_is_for_its_group(cluster):
    """A pod of the node without the group 7400 has the directory, and cannot open the socket."""
    folder = cluster.nodes[1].folder / "run"
    stat = (folder / "agent.sock").stat()
    assert (stat.st_uid, stat.st_gid, stat.st_mode & 0o777) == (GROUP, GROUP, 0o660)
    assert folder.stat().st_mode & 0o777 == 0o750
