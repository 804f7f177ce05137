"""The text of deploy/kubernetes: the API's schemas know it, rights are the least, and the programs take the options."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
import rendered
import rig as rigs
import yaml

validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing: run scripts/setup.sh")
pytestmark = pytest.mark.skipif(bool(rendered.why_no_kustomize()), reason=rendered.why_no_kustomize() or "it is there")

OVERLAYS = ("cluster", "host-network")
EXAMPLES = sorted(path.name for path in (rendered.DEPLOY / "examples").glob("*.yaml"))
DAEMONS = {"coordinator": "server", "agent": "agent", "shard": "agent"}  # container: what its variables are named for


@pytest.fixture(scope="module")
def overlays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overlays")
    return {name: rendered.render(name, folder / name) for name in OVERLAYS}


def example(name):
    return list(yaml.safe_load_all((rendered.DEPLOY / "examples" / name).read_text()))


def templates(value):
    """Every template of a pod inside an object, whatever kind of resource it is."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PROFILES = {"RuntimeDefault", "Localhost"}


def containers_of(template):
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def restricted_problems(template):
    """What the level `restricted` of the pod security standards refuses."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    found += [f"volume {volume['name']}" for volume in spec.get("volumes", []) if not VOLUMES & set(volume)]
    for container in containers_of(template):
        own = container.get("securityContext", {})
        dropped, added = (set(own.get("capabilities", {}).get(key, [])) for key in ("drop", "add"))
        wanted = {
            "runAsNonRoot": own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True,
            "runAsUser": own.get("runAsUser", pod.get("runAsUser")) != 0,
            "escalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": "ALL" in dropped and added <= {"NET_BIND_SERVICE"},
            "seccomp": own.get("seccompProfile", pod.get("seccompProfile", {})).get("type") in PROFILES,
            "privileged": not own.get("privileged"),
            "ports": not any("hostPort" in port for port in container.get("ports", [])),
        }  # fmt: skip
        found += [f"{container['name']}: {name}" for name, good in wanted.items() if not good]
    return found


# ---- schemas


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_knows_every_field(overlays, overlay):
    for thing in overlays[overlay]:
        validate.validate(thing, "1.32", strict=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_api_knows_the_pods_of_examples(name):
    """Resources of operators have no schema here; their templates of pods are the API's own."""
    for thing in example(name):
        if thing["apiVersion"] in ("v1", "batch/v1"):
            validate.validate(thing, "1.32", strict=True)
        for template in templates(thing):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **template.get("metadata", {})},
                   "spec": template["spec"]}  # fmt: skip
            validate.validate(pod, "1.32", strict=True)


def test_a_wrong_field_is_found():
    with pytest.raises(validate.ValidationError):
        validate.validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
                           "spec": {"containers": [{"name": "a", "imagine": "b"}]}}, "1.32", strict=True)  # fmt: skip


# ---- rights


def test_jobs_run_in_a_restricted_namespace(overlays):
    namespace = rendered.one(overlays["cluster"], "Namespace", "gradbus-jobs")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for name in EXAMPLES:
        found = [template for thing in example(name) for template in templates(thing)]
        assert found or name == "none", name
        assert [restricted_problems(template) for template in found] == [[]] * len(found), name
        assert all(thing["metadata"]["namespace"] == "gradbus-jobs" for thing in example(name))


def test_daemons_have_the_least_rights(overlays):
    """All is restricted but the node's directory, and one step that gives it to the agent's user."""
    problems = {template["metadata"]["labels"]["app.kubernetes.io/name"]: restricted_problems(template)
                for thing in overlays["cluster"] for template in templates(thing)}  # fmt: skip
    step = ["socket-directory: runAsNonRoot", "socket-directory: runAsUser", "socket-directory: capabilities"]
    assert problems == {"gradbus-coordinator": [], "gradbus-shard": [], "gradbus-agent": ["volume sockets", *step]}
    agent = rendered.one(overlays["cluster"], "DaemonSet")["spec"]["template"]["spec"]
    (root,) = [c for c in agent["initContainers"] if c["name"] == "socket-directory"]
    assert root["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]}
    assert [v["hostPath"]["path"] for v in agent["volumes"] if "hostPath" in v] == ["/run/gradbus"]


def test_nobody_can_call_the_kubernetes_api(overlays):
    for thing in overlays["cluster"]:
        assert "rbac" not in thing["apiVersion"], thing
        if thing["kind"] == "ServiceAccount":
            assert thing["automountServiceAccountToken"] is False
        for template in templates(thing):
            assert template["spec"]["automountServiceAccountToken"] is False
            assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in containers_of(template))
    for name in EXAMPLES:
        for thing in example(name):
            assert all(t["spec"]["automountServiceAccountToken"] is False for t in templates(thing)), name


# ---- the page

KUBECTL = """#!/bin/sh
# No cluster is here: what is applied is rendered or read, other commands are looked up.
case "$1 $2" in
"apply -k") exec {kubectl} kustomize "$3";;
"apply -f") exec test -s "$3";;
"-n "*) exec {kubectl} help "$3" >/dev/null;;
*) echo "unknown: $*" >&2; exit 1;;
esac
"""


def test_the_commands_of_the_page_run(tmp_path):
    """In a copy of the repository; scripts/image.sh is for test_pods.py."""
    shutil.copytree(rendered.DEPLOY, tmp_path / "deploy/kubernetes", ignore=shutil.ignore_patterns("token"))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "kubectl").write_text(KUBECTL.format(kubectl=shutil.which("kubectl")))
    (programs / "kubectl").chmod(0o755)
    text = (rigs.REPOSITORY / "docs/how-to/deploy-on-kubernetes.md").read_text()
    blocks = [code for code in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "kubectl" in code]
    assert len(blocks) >= 3
    for code in blocks:
        variables = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", code], cwd=tmp_path, env=variables, timeout=60,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "deploy/kubernetes/overlays/cluster/token").stat().st_size == 65


# ---- what refers to each other


def listening(objects):
    """{name of a daemon: {name of a port: number}}"""
    found = {}
    for thing in rendered.workloads(objects):
        (container,) = thing["spec"]["template"]["spec"]["containers"]
        found[thing["metadata"]["name"]] = {p["name"]: p["containerPort"] for p in container["ports"]}
    return found


def test_names_meet(overlays):
    objects = overlays["cluster"]
    ports = listening(objects)
    secret = rendered.one(objects, "Secret")["metadata"]["name"]
    for thing in rendered.workloads(objects):
        spec, name = thing["spec"]["template"]["spec"], thing["metadata"]["name"]
        labels = thing["spec"]["template"]["metadata"]["labels"]
        assert thing["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert {v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v} == {secret}
        assert rendered.one(objects, "ServiceAccount", spec["serviceAccountName"])
        (container,) = spec["containers"]
        port = {"port": ports[name].get("health", ports[name].get("grpc"))}  # a number: no name is allowed here
        for probe, service in (("livenessProbe", "liveness"), ("startupProbe", "liveness"), ("readinessProbe", None)):
            assert container[probe]["grpc"] == {**port, **({"service": service} if service else {})}, name
    for service in [o for o in objects if o["kind"] == "Service"]:
        assert {p["targetPort"] for p in service["spec"]["ports"]} <= set(ports[service["metadata"]["name"]])
    budget = rendered.one(objects, "PodDisruptionBudget")
    assert budget["spec"]["selector"] == rendered.one(objects, "StatefulSet")["spec"]["selector"]


def test_the_network_lets_through_what_daemons_listen_on_and_nothing_else(overlays):
    policies = {o["metadata"]["name"]: o["spec"] for o in overlays["cluster"] if o["kind"] == "NetworkPolicy"}
    assert policies["deny-all"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened = {port["port"] for spec in policies.values() for rule in spec.get("ingress", []) for port in rule["ports"]}
    assert opened == {number for ports in listening(overlays["cluster"]).values() for name, number in ports.items()
                      if name != "health"}, "the kubelet needs no policy, and nobody else may probe"  # fmt: skip
    assert all(rule["from"] for spec in policies.values() for rule in spec.get("ingress", []))


def test_jobs_and_agents_share_a_directory(overlays):
    objects = overlays["cluster"]
    volume, claim = rendered.one(objects, "PersistentVolume"), rendered.one(objects, "PersistentVolumeClaim")
    assert volume["spec"]["hostPath"]["path"] == "/run/gradbus"
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"] == {key: claim["metadata"][key] for key in ("namespace", "name")}
    for name in EXAMPLES:
        mounted = [c for thing in example(name) for t in templates(thing) for c in containers_of(t)
                   if any(m["mountPath"] == "/run/gradbus" for m in c.get("volumeMounts", []))]  # fmt: skip
        assert mounted, name
        assert claim["metadata"]["name"] in (rendered.DEPLOY / "examples" / name).read_text()


def test_the_programs_take_the_options(overlays, tmp_path):
    """Each variable is an option that the program knows, and each value is one that it accepts."""
    node = rendered.Node("node-1", "10.1.2.3", tmp_path)
    for thing in rendered.workloads(overlays["cluster"]):
        (container,) = node.pod(thing, thing["metadata"]["name"])["spec"]["containers"]
        program, *words = container["command"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        done = subprocess.run([rigs.BIN / program, *words, "--print-config"], env={**os.environ, **variables},
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        prefix = f"GRADBUS_{DAEMONS[container['name']].upper()}_"
        for name, value in variables.items():
            if name.startswith(prefix):
                key = name.removeprefix(prefix).lower()
                assert re.search(rf'^{key} = "{re.escape(value)}".*{name}', done.stdout, re.MULTILINE), done.stdout


def test_host_network_changes_agents_only(overlays):
    on = {o["metadata"]["name"] for o in rendered.workloads(overlays["host-network"])
          if o["spec"]["template"]["spec"].get("hostNetwork")}  # fmt: skip
    assert on == {"gradbus-agent"}
