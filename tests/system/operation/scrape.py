"""Reads the metrics and health pages of daemons, as Prometheus and probes do."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

METRICS = ("--metrics-listen", "127.0.0.1:0")
SAMPLE = re.compile(r'^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def get(address: str, path: str, timeout: float = 10) -> tuple[int, str]:
    """(status, body) of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


class Page(dict):
    """The samples of one scrape: {(name, ((label, value), ...)): number}."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            sample = SAMPLE.match(line)
            assert sample, line
            key = sample["name"], tuple(sorted(LABEL.findall(sample["labels"] or "")))
            assert key not in found, f"two samples: {line}"
            found[key] = float(sample["value"])
        super().__init__(found)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels; an error when there are none."""
        wanted = set(labels.items())
        found = [number for (of, has), number in self.items() if of == name and wanted <= set(has)]
        assert found, f"no {name}{labels} in:\n{self.text}"
        return sum(found)

    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self}


def scrape(daemon) -> Page:
    """The metrics of a daemon that was started with METRICS."""
    status, text = get(daemon.ready["metrics"], "/metrics")
    assert status == 200, text
    return Page(text)
