"""Prints `passed failed skipped` of a JUnit XML file.

    scripts/count_tests.py REPORT            of pytest: each test counts
    scripts/count_tests.py REPORT FOLDER     of ctest: runs of GoogleTest programs count as the cases in FOLDER/RUN.xml
"""

import pathlib
import sys
import xml.etree.ElementTree as tree

KINDS = ("passed", "failed", "skipped")


def outcome(case: tree.Element) -> str:
    """passed, failed or skipped; a case that did not run counts as skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def outcomes_of(report: pathlib.Path) -> list[str]:
    """Of all cases in a report."""
    return [outcome(case) for case in tree.parse(report).iter("testcase")]


def outcomes_of_run(run: tree.Element, folder: pathlib.Path) -> list[str]:
    """Of the cases of one ctest case. A program that crashed has no report, and counts as one failure."""
    report = folder / f"{run.get('name')}.xml"
    if not report.exists():
        return [outcome(run)]
    found = outcomes_of(report)
    if outcome(run) == "failed" and "failed" not in found:
        found.append("failed")  # at its end, as when a sanitizer finds a leak
    return found


def main() -> None:
    """Counts the cases of the file named by the first argument."""
    report, *folder = map(pathlib.Path, sys.argv[1:])
    if folder:
        runs = tree.parse(report).iter("testcase")
        found = [kind for run in runs for kind in outcomes_of_run(run, folder[0])]
    else:
        found = outcomes_of(report)
    print(*(found.count(kind) for kind in KINDS))


if __name__ == "__main__":
    main()
