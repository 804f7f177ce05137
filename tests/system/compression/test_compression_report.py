"""The page of scripts/compressed.sh, from made-up results."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "scripts"))
from compressed import plot, report
from compressed.cases import DENSE, Case, all_cases


def results(times):
    """{codec: {gbit: ms}}"""
    cases = {
        Case("links", codec, gbit).key: {"ms": ms}
        for codec, by_link in times.items()
        for gbit, ms in by_link.items()
    }
    machine = {"processor": "p", "cores": 2, "caches": "L2 1M", "kernel": "6"}
    return {"date": "2026-01-01", "machine": machine, "cases": cases}


def test_break_even_is_where_the_lines_cross():
    # Dense 1000 / B; compressed 100 whatever the link: they meet at 10 Gbit/s, in the middle of 4 and 25.
    found = results({DENSE: {4: 250, 25: 40}, "a": {4: 100, 25: 100}, "b": {4: 9, 25: 9}, "c": {4: 999, 25: 999}})
    assert report.break_even(found, "a") == "10.0 Gbit/s"
    assert report.break_even(found, "b") == "above 25 Gbit/s"
    assert report.break_even(found, "c") == "below 4 Gbit/s"


def test_the_page_has_every_codec_and_ratio(tmp_path):
    found = results({DENSE: {1: 800, 10: 90}, "fp16": {1: 400, 10: 81}})
    found["cases"][Case("models", "fp16", 1.0, "vgg16", merged=False).key] = {"ms": 300}
    found["cases"][Case("models", "fp16", 1.0, "vgg16", merged=True).key] = {"ms": 200}
    page = report.page(found)
    assert "| `fp16` | 400 (0.50) | 81 (0.90) | above 10 Gbit/s |" in page
    assert "| `fp16` | 300 | 200 | 1.50 |" in page
    plot.draw(found, tmp_path / "links.svg")
    assert "fp16" in (tmp_path / "links.svg").read_text()


@pytest.mark.parametrize("quick", [True, False])
def test_cases_are_named_apart(quick):
    cases = all_cases(quick)
    assert len({case.key for case in cases}) == len(cases)
    assert all("--link" in case.arguments for case in cases)
