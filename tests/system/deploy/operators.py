"""What operators of Kubernetes make of deploy/kubernetes/examples: the fields that they know, and their pods.

Facts of the operators' published schemas and sources, all under Apache-2.0:

| operator | read at |
| --- | --- |
| Kubeflow Trainer v2, TrainJob and TrainingRuntime | github.com/kubeflow/trainer, 8c0f505 and branch release-2.0 |
| Kubeflow Training Operator v1, PyTorchJob | github.com/kubeflow/trainer, branch release-1.9 at 3a3a1da |
| MPI Operator, MPIJob v2beta1 | github.com/kubeflow/mpi-operator, caa3c47 of July 2026 |
"""

from __future__ import annotations

import dataclasses

TEMPLATE = "a template of pods"  # test_manifests.py checks it with the schemas of Kubernetes
NUMBER, TEXT, FLAG, ANY = "a number", "a text", "true or false", "anything"
RUN_POLICY = {"activeDeadlineSeconds": NUMBER, "backoffLimit": NUMBER, "ttlSecondsAfterFinished": NUMBER,
              "cleanPodPolicy": {"All", "Running", "None"}, "managedBy": TEXT, "schedulingPolicy": ANY,
              "suspend": FLAG}  # fmt: skip
REPLICAS = {"replicas": NUMBER, "template": TEMPLATE, "restartPolicy": {"Always", "OnFailure", "Never", "ExitCode"}}
# {(group and version, kind): fields of spec}. A set has the values that are allowed; "!" marks what is required.
FIELDS = {
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "runtimeRef!": {"name!": TEXT, "apiGroup": TEXT, "kind": {"TrainingRuntime", "ClusterTrainingRuntime"}},
        "trainer": {"numNodes": NUMBER, "numProcPerNode": NUMBER, "command": ANY, "args": ANY, "env": ANY,
                    "image": TEXT, "resourcesPerNode": ANY},
        "suspend": FLAG, "managedBy": TEXT, "initializer": ANY,
    },
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): {
        "mlPolicy": {"numNodes": NUMBER, "torch": {}},  # until release 2.1, torch has numProcPerNode
        "podGroupPolicy": ANY,
        "template": {"metadata": ANY, "spec": {"replicatedJobs": [{
            "name!": TEXT, "replicas": NUMBER, "dependsOn": ANY,
            "template!": {"metadata": ANY, "spec": {"template!": TEMPLATE, "backoffLimit": NUMBER}}}]}},
    },
    ("kubeflow.org/v1", "PyTorchJob"): {
        "pytorchReplicaSpecs!": {"Master": REPLICAS, "Worker": REPLICAS},
        "elasticPolicy": {"rdzvBackend": {"c10d", "etcd", "etcd-v2"}, "rdzvHost": TEXT, "rdzvPort": NUMBER,
                          "rdzvId": TEXT, "minReplicas": NUMBER, "maxReplicas": NUMBER, "maxRestarts": NUMBER,
                          "metrics": ANY, "rdzvConf": ANY, "standalone": FLAG},
        "nprocPerNode": TEXT, "runPolicy": RUN_POLICY,
    },
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "mpiReplicaSpecs!": {"Launcher": REPLICAS, "Worker": REPLICAS},
        "slotsPerWorker": NUMBER, "runLauncherAsWorker": FLAG, "sshAuthMountPath": TEXT, "runPolicy": RUN_POLICY,
        "mpiImplementation": {"OpenMPI", "Intel", "MPICH"}, "launcherCreationPolicy": TEXT,
    },
}  # fmt: skip
KINDS = {NUMBER: int, TEXT: str, FLAG: bool}


def problems(value, known, path: str = "spec") -> list[str]:
    """Fields that the operator does not know, values that it does not take, and fields that are missing."""
    if known in (ANY, TEMPLATE):
        return []
    if isinstance(known, list):
        return [p for i, one in enumerate(value) for p in problems(one, known[0], f"{path}[{i}]")]
    if isinstance(known, set):
        return [] if value in known else [f"{path} is {value!r}"]
    if not isinstance(known, dict):
        return [] if type(value) is KINDS[known] else [f"{path} is not {known}: {value!r}"]
    fields = {name.rstrip("!"): of for name, of in known.items()}
    found = [f"{path}.{name[:-1]} is missing" for name in known if name.endswith("!") and name[:-1] not in value]
    for name, inner in value.items():
        found += problems(inner, fields[name], f"{path}.{name}") if name in fields else [f"{path}.{name} is unknown"]
    return found


@dataclasses.dataclass
class Pod:
    """A pod that an operator makes: `name` is its host name as well, `names` are those that DNS knows."""

    name: str
    template: dict
    variables: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    names: list[str] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)


INDEX = "batch.kubernetes.io/job-completion-index"


def of_train_job(runtime: dict, job: dict) -> list[Pod]:
    """Trainer: a JobSet with one pod a node, and torchrun's variables if the TrainJob has a trainer."""
    name = job["metadata"]["name"]
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    (group,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert group["name"] == "node"
    assert group["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    trainer = job["spec"].get("trainer")
    nodes = (trainer or {}).get("numNodes", runtime["spec"]["mlPolicy"]["numNodes"])
    torchrun = {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": str((trainer or {}).get("numProcPerNode", "auto")),
                "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29500"}  # fmt: skip
    return [Pod(f"{name}-node-0-{i}", group["template"]["spec"]["template"],
                variables={} if trainer is None else {**torchrun, "PET_NODE_RANK": str(i)},
                labels={"jobset.sigs.k8s.io/jobset-name": name}, annotations={INDEX: str(i)},
                names=[f"{name}-node-0-{i}.{name}"]) for i in range(nodes)]  # fmt: skip


# What a pod of a PyTorchJob with a master gets: it has no securityContext, so a restricted namespace refuses it.
PYTORCH_WAITS_FOR_MASTER = {"name": "init-pytorch", "image": "alpine:3.10", "command": ["sh", "-c", "nslookup ..."]}


def of_pytorch_job(job: dict) -> list[Pod]:
    """Training Operator: workers of an elastic job. torchrun starts the ranks and meets at the first worker."""
    name, spec = job["metadata"]["name"], job["spec"]
    worker, elastic = spec["pytorchReplicaSpecs"]["Worker"], spec["elasticPolicy"]
    assert "Master" not in spec["pytorchReplicaSpecs"], PYTORCH_WAITS_FOR_MASTER
    assert any(c["name"] == "pytorch" for c in worker["template"]["spec"]["containers"])
    variables = {"PYTHONUNBUFFERED": "1", "PET_RDZV_BACKEND": elastic.get("rdzvBackend", "c10d"),
                 "PET_RDZV_ENDPOINT": f"{name}-worker-0:23456", "PET_NPROC_PER_NODE": spec.get("nprocPerNode", "auto"),
                 "PET_NNODES": "{0}:{1}".format(elastic.get("minReplicas", worker["replicas"]),
                                                elastic.get("maxReplicas", worker["replicas"]))}  # fmt: skip
    return [Pod(f"{name}-worker-{i}", worker["template"], variables, names=[f"{name}-worker-{i}"],
                labels={"training.kubeflow.org/job-name": name}) for i in range(worker["replicas"])]  # fmt: skip


def of_mpi_job(job: dict) -> tuple[Pod, list[Pod]]:
    """MPI Operator: the launcher, with a host file and the variables of Open MPI, and workers that run sshd."""
    name, spec = job["metadata"]["name"], job["spec"]
    replicas, slots = spec["mpiReplicaSpecs"], spec["slotsPerWorker"]
    workers = []
    for i in range(replicas["Worker"]["replicas"]):
        full = f"{name}-worker-{i}.{name}.{job['metadata']['namespace']}.svc"
        workers.append(Pod(f"{name}-worker-{i}", replicas["Worker"]["template"], {"K_MPI_JOB_ROLE": "worker"},
                           names=[full]))  # fmt: skip
    variables = {"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                 "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile", "OMPI_MCA_orte_set_default_slots": str(slots),
                 "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10"}  # fmt: skip
    hosts = "".join(f"{worker.names[0]} slots={slots}\n" for worker in workers)
    launcher = Pod(f"{name}-launcher", replicas["Launcher"]["template"], variables,
                   files={"/etc/mpi/hostfile": hosts}, names=[f"{name}-launcher.{name}"])  # fmt: skip
    return launcher, workers
