"""What `kubectl kustomize` renders, and the Pods that a scheduler and its kubelets would make of it.

podman 4.3 starts Pods, but no DaemonSet, StatefulSet, Job or Secret volume, and this kind of machine has no pod
network. So a template becomes one Pod on a node: its volumes of the node, of claims and of secrets become folders of
that node, the fields of the downward API become their values, and the network is the machine's, where each
pod has a loopback address. Probes and ports are taken out: the test asks the same ports. Init containers become Pods
that run before. Everything else is as rendered. The page deploy-on-kubernetes.md lists all changes.
"""

from __future__ import annotations

import base64
import copy
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess

import rig as rigs
import yaml

DEPLOY = rigs.REPOSITORY / "deploy/kubernetes"
KUBECTL_MIN = (1, 25)  # Debian 12's 1.20 has a Kustomize without components
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


@functools.cache
def why_no_kustomize() -> str:
    """Why kubectl cannot render here; empty where it can."""
    if shutil.which("kubectl") is None:
        return "kubectl is missing: run scripts/setup.sh"
    said = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True, check=True,
                          timeout=60).stdout  # fmt: skip
    version = json.loads(said)["clientVersion"]["gitVersion"]
    major, minor = re.match(r"v(\d+)\.(\d+)", version).groups()
    return "" if (int(major), int(minor)) >= KUBECTL_MIN else f"kubectl {version} is older than 1.25"


def render(overlay: str, folder: pathlib.Path) -> list[dict]:
    """The objects of an overlay, with a new token."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / f"render-{overlay}"
    shutil.copytree(DEPLOY, tree, ignore=shutil.ignore_patterns("token"))
    rigs.make_token_file(tree / "overlays/cluster/token")
    done = subprocess.run(["kubectl", "kustomize", tree / "overlays" / overlay], capture_output=True, text=True,
                          check=False, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def one(objects: list[dict], kind: str, name: str | None = None) -> dict:
    """The only object of this kind and name."""
    (found,) = [o for o in objects if o["kind"] == kind and name in (None, o["metadata"]["name"])]
    return found


def workloads(objects: list[dict]) -> list[dict]:
    """Objects with a template of pods."""
    return [o for o in objects if "template" in o.get("spec", {})]


@dataclasses.dataclass
class Node:
    """A node of the cluster: an address of this machine, and a folder for what the node's disk has."""

    name: str
    address: str
    folder: pathlib.Path
    aliases: dict[str, str] = dataclasses.field(default_factory=dict)  # what the cluster's DNS answers

    def pod(self, owner: dict, name: str, annotations: dict | None = None, labels: dict | None = None) -> dict:
        """The Pod that `owner`'s template makes on this node."""
        template = copy.deepcopy(owner["spec"]["template"])
        meta = template.setdefault("metadata", {})
        meta["name"] = name
        meta["annotations"] = {**meta.get("annotations", {}), **(annotations or {})}
        meta["labels"] = {**meta.get("labels", {}), **(labels or {})}
        spec = template["spec"]
        spec["hostNetwork"] = True
        group = spec.get("securityContext", {}).get("fsGroup", 0)
        spec["volumes"] = [self._volume(volume, name, group) for volume in spec.get("volumes", [])]
        for claim in owner["spec"].get("volumeClaimTemplates", []):
            spec["volumes"].append(self._claim(f"{claim['metadata']['name']}-{name}", claim, group))
        spec["volumes"].append({"name": "hosts", "hostPath": {"path": str(self._hosts()), "type": "File"}})
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            container["imagePullPolicy"] = "Never"
            container.pop("ports", None)  # the network is the machine's: nothing is to be mapped
            for probe in PROBES:
                container.pop(probe, None)
            container.setdefault("volumeMounts", []).append({"name": "hosts", "mountPath": "/etc/hosts"})
            container["env"] = self._environment(container.get("env", []), meta)
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def pods(self, owner: dict, name: str, **metadata: dict) -> list[dict]:
        """The Pod, after one Pod for each of its init containers: podman 4.3 waits 20 s for an init container."""
        main = self.pod(owner, name, **metadata)
        before = []
        for container in main["spec"].pop("initContainers", []):
            pod = copy.deepcopy(main)
            pod["metadata"]["name"] = f"{name}-{container['name']}"
            pod["spec"] |= {"containers": [container], "restartPolicy": "Never"}
            before.append(pod)
        return [*before, main]

    def keep_secret(self, secret: dict, group: int) -> None:
        """A Secret as the kubelet mounts it: files of root that the pod's group can read."""
        path = self.folder / "secrets" / secret["metadata"]["name"]
        path.mkdir(parents=True)
        for name, text in secret["data"].items():
            (path / name).write_bytes(base64.b64decode(text))
            os.chown(path / name, 0, group)
            (path / name).chmod(0o440)

    def _hosts(self) -> pathlib.Path:
        path = self.folder / "hosts"
        path.write_text("127.0.0.1 localhost\n" + "".join(f"{ip} {host}\n" for host, ip in self.aliases.items()))
        return path

    def _volume(self, volume: dict, pod: str, group: int) -> dict:
        if "secret" in volume:
            path = self.folder / "secrets" / volume["secret"]["secretName"]
        elif "emptyDir" in volume:
            path = self.folder / "empty" / pod / volume["name"]
            path.mkdir(parents=True)
            os.chown(path, 0, group)
            path.chmod(0o2770 if group else 0o777)
        else:  # of the node itself, or a claim that leads there
            path = self.folder / "run"
            path.mkdir(parents=True, exist_ok=True)
        return {"name": volume["name"], "hostPath": {"path": str(path), "type": "Directory"}}

    def _claim(self, name: str, claim: dict, group: int) -> dict:
        """The disk of a StatefulSet's pod: it outlives the pod."""
        path = self.folder / "disks" / name
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 0, group)
        path.chmod(0o2770)
        return {"name": claim["metadata"]["name"], "hostPath": {"path": str(path), "type": "Directory"}}

    def _environment(self, entries: list[dict], meta: dict) -> list[dict]:
        values: dict[str, str] = {}
        for entry in entries:
            value = entry.get("value", "")
            if "valueFrom" in entry:
                value = self._field(entry["valueFrom"]["fieldRef"]["fieldPath"], meta)
            values[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], value)
        return [{"name": name, "value": value} for name, value in values.items()]

    def _field(self, path: str, meta: dict) -> str:
        known = {"status.podIP": self.address, "spec.nodeName": self.name, "metadata.name": meta["name"]}
        if path in known:
            return known[path]
        part, key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path).groups()
        return meta[part][key]
