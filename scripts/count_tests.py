"""Prints `passed failed skipped` of a JUnit XML file (ctest's or pytest's)."""

import sys
import xml.etree.ElementTree as tree


def outcome(case: tree.Element) -> str:
    """passed, failed or skipped; a case that did not run counts as skipped."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def main() -> None:
    """Counts the cases of the file named by the first argument."""
    outcomes = [outcome(case) for case in tree.parse(sys.argv[1]).iter("testcase")]
    print(*(outcomes.count(kind) for kind in ("passed", "failed", "skipped")))


if __name__ == "__main__":
    main()
