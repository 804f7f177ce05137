"""The examples for three operators of Kubernetes: known fields, and pods that train a model.

No operator runs here. operators.py has what each one adds to a pod, from its sources; sandbox.py starts the pods
with that: torchrun, mpirun, ssh and sshd are the real programs.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess

import operators
import pytest
import rendered
import rig as rigs
import sandbox
import yaml
from conftest import RANK_DEADLINE_S

EXAMPLES = rendered.DEPLOY / "examples"
GROUP = 7400  # of agent.yaml's socket
needs_namespaces = pytest.mark.skipif(bool(rigs.why_no_namespaces()), reason=f"no pods: {rigs.why_no_namespaces()}")
pytestmark = pytest.mark.timeout(300)


def example(name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


# ---- fields


@pytest.mark.parametrize("name", ["trainjob.yaml", "pytorchjob.yaml", "mpijob.yaml"])
def test_operators_know_every_field(name):
    for thing in example(name):
        known = operators.FIELDS[thing["apiVersion"], thing["kind"]]
        assert operators.problems(thing["spec"], known) == []
        assert set(thing) == {"apiVersion", "kind", "metadata", "spec"}


def test_wrong_fields_are_found():
    (job,) = example("mpijob.yaml")
    spec = copy.deepcopy(job["spec"])
    spec["slotsPerWorker"] = "2"
    spec["mpiReplicaSpecs"]["Worker"]["replica"] = 2
    spec["runPolicy"]["cleanPodPolicy"] = "Sometimes"
    known = operators.FIELDS["kubeflow.org/v2beta1", "MPIJob"]
    assert operators.problems(spec, known) == [
        "spec.slotsPerWorker is not a number: '2'", "spec.runPolicy.cleanPodPolicy is 'Sometimes'",
        "spec.mpiReplicaSpecs.Worker.replica is unknown"]  # fmt: skip
    assert operators.problems({}, known) == ["spec.mpiReplicaSpecs is missing"]


# ---- pods


@pytest.fixture(scope="module")
def nodes():
    """Two agents, and the directory of each one's node, whose socket is open to the group of jobs."""
    with rigs.cluster(0) as rig:
        for number in range(2):
            place = rig.folder / f"run-{number}"
            place.mkdir(mode=0o750)
            rig.agents.append(rig.start_daemon(
                "gradbus-agent", "--coordinator", rig.server.ready["address"], "--name", f"node-{number + 1}",
                "--socket", str(place / "agent.sock"), "--bind", "127.0.0.1:0"))  # fmt: skip
            for path in (place, place / "agent.sock"):
                os.chown(path, 0, GROUP)
        rig.folder.chmod(0o711)
        yield rig


@pytest.fixture
def pods(nodes, tmp_path):
    """add(PODS): their sandboxes, on both nodes in turn."""
    with sandbox.network(tmp_path) as network:
        yield lambda made: [network.add(pod, nodes.folder / f"run-{i % 2}") for i, pod in enumerate(made)]


def ended(processes: list[subprocess.Popen]) -> str:
    """What they all wrote, once each has ended well."""
    texts = [process.communicate(timeout=RANK_DEADLINE_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(texts)
    return "".join(texts)


def check_trained(nodes, text: str, job: str) -> None:
    """Four ranks of one job, two on each node, with equal parameters and a model that knows the digits."""
    (result,) = [json.loads(line) for line in text.splitlines() if line.startswith('{"')]
    assert result["world_size"] == 4 and result["ranks_identical"] and result["accuracy"] > 0.9, text
    (found,) = [one for one in nodes.status()["jobs"] if one["job"].startswith(job)]
    assert found["outcome"] == "finished" and found["uid"] == 1000, found
    assert sorted((rank["rank"], rank["agent"]) for rank in found["ranks"]) == [
        (0, "node-1"), (1, "node-1"), (2, "node-2"), (3, "node-2")]  # fmt: skip


FEW = ("--epochs", "4")


@needs_namespaces
def test_a_train_job_of_kubeflow_trainer_trains(nodes, pods):
    started = [pod.start(*FEW) for pod in pods(operators.of_train_job(*example("trainjob.yaml")))]
    check_trained(nodes, ended(started), "digits-trainer")


@needs_namespaces
def test_a_pytorch_job_trains(nodes, pods):
    (job,) = example("pytorchjob.yaml")
    started = [pod.start(*FEW) for pod in pods(operators.of_pytorch_job(job))]
    check_trained(nodes, ended(started), "digits-pytorch")


# ---- MPI

SSH_CONFIG = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\nPort 2222\n"
SSHD_CONFIG = f"PidFile {sandbox.HOME}/sshd.pid\nHostKey {sandbox.HOME}/.ssh/id_rsa\nStrictModes no\nPort 2222\n"
SSHD = rigs.REPOSITORY / "build/sshd"  # scripts/setup.sh --frameworks


def why_no_mpi() -> str:
    if shutil.which("mpirun.openmpi") is None or shutil.which("ssh") is None:
        return "mpirun.openmpi or ssh is missing: run scripts/setup.sh --frameworks"
    return "" if (SSHD / "usr/sbin/sshd").exists() else "sshd is missing: run scripts/setup.sh --frameworks"


def make_image_of_mpi(pod: sandbox.Sandbox, mount: str) -> None:
    """What the operator's base image has for ssh without root, and `mpirun`, which Debian calls mpirun.openmpi."""
    (pod.folder / "etc/ssh/ssh_config").write_text(SSH_CONFIG)
    (pod.home / ".sshd_config").write_text(SSHD_CONFIG)
    for name in ("mpirun", "orted"):
        (pod.folder / "usr/local/bin" / name).symlink_to(shutil.which(f"{name}.openmpi") or shutil.which(name))
    assert mount == f"{sandbox.HOME}/.ssh"
    (pod.home / ".ssh").mkdir()
    key = pod.folder.parent / "key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", key], check=True)
    for source, name in ((key, "id_rsa"), (f"{key}.pub", "id_rsa.pub"), (f"{key}.pub", "authorized_keys")):
        shutil.copy(source, pod.home / ".ssh" / name)
        (pod.home / ".ssh" / name).chmod(0o644)  # the mode of a Secret; the files are root's


@needs_namespaces
@pytest.mark.skipif(bool(why_no_mpi()), reason=why_no_mpi() or "Open MPI and sshd are there")
def test_an_mpi_job_trains(nodes, pods):
    (job,) = example("mpijob.yaml")
    launcher, workers = operators.of_mpi_job(job)
    *running, first = pods([*workers, launcher])
    for pod in (*running, first):
        make_image_of_mpi(pod, job["spec"]["sshAuthMountPath"])
    library = str(SSHD / "usr/lib/x86_64-linux-gnu")
    for pod in running:
        program, *words = pod.container["command"]
        assert program == "/usr/sbin/sshd"
        pod.container["command"] = [str(SSHD / "usr/sbin/sshd"), *words]
        pod.start(LD_LIBRARY_PATH=library)
    check_trained(nodes, ended([first.start(*FEW)]), "openmpi-")
