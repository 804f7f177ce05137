"""Debian's Prometheus, which scrapes all daemons of a rig each second and evaluates the alert rules."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import socket
import subprocess
import urllib.parse

import pytest
import rig as rigs
from scrape import get

RULES = rigs.REPOSITORY / "deploy/prometheus/gradbus.rules.yml"
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is missing: scripts/setup.sh")


class Prometheus:
    """Where it listens, and what it answers."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    def ask(self, query: str) -> list[dict]:
        """The result of a query; empty while it does not answer."""
        with contextlib.suppress(OSError):
            status, text = get(self.address, "/api/v1/query?query=" + urllib.parse.quote(query))
            assert status in (200, 503), text
            return json.loads(text)["data"]["result"] if status == 200 else []
        return []

    def value(self, query: str) -> float | None:
        """The first number of a result."""
        result = self.ask(query)
        return float(result[0]["value"][1]) if result else None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def prometheus(rig, port: int, rules: pathlib.Path = RULES):
    """Runs it for this rig."""
    def targets(daemons):
        return json.dumps([daemon.ready["metrics"] for daemon in daemons])

    config = rig.folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{rules}']\n"
        "scrape_configs:\n"
        f"- {{job_name: gradbus-agent, static_configs: [{{targets: {targets(rig.agents)}}}]}}\n"
        f"- {{job_name: gradbus-coordinator, static_configs: [{{targets: {targets([rig.server])}}}]}}\n")
    with (rig.folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={rig.folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(timeout=30)
