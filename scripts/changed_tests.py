"""Which tests a change concerns; scripts/test.sh --changed runs them.

    scripts/changed_tests.py programs BUILD     runs of ctest whose program is newer than their last passing report
    scripts/changed_tests.py system [REV]       files of tests/system for what differs from REV (HEAD)

A program is linked again when a file that it includes has changed, so its age says exactly what to run. System tests
start the daemons, which any change can concern: those of the changed folder are a choice, and CI runs all.
"""

from __future__ import annotations

import fnmatch
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as tree

TESTS = pathlib.Path("tests/system")
# By the longest folder that fits: names of test files, without test_ and .py.
CHOSEN = {
    "cli/": ["cli_*", "bench*", "health", "launchers"],
    "cli/bench/": ["bench*"],
    "client_lib/": ["c_abi", "collectives", "operations", "unregister", "waits"],
    "client_lib/python/": ["after_backward", "modes", "python_*", "user_mistakes"],
    "client_lib/python/gradbus/horovod/": ["horovod_api", "horovod_names", "horovod_tensorflow"],
    "client_lib/python/gradbus/horovod/mxnet/": ["horovod_names", "mxnet"],
    "common/": ["bad_input", "operations"],
    "compression/": ["codec_formulas", "compression*", "residual_state"],
    "data_plane/": ["collectives", "hostile_*", "modes", "operations", "shards"],
    "deploy/": ["daemon_signals", "units"],
    "docs/": ["documentation", "repository"],
    "examples/": ["python_charlm", "python_digits"],
    "proto/": ["bad_input", "hostile_*", "operations"],
    "scripts/": ["*_report", "repository"],
    "server/": ["coordinator_restart", "health", "operations", "placement"],
    "server/parameter_server/": ["ps_sync", "async_ps", "replicas", "resharding", "shards", "snapshots"],
    "shared_memory/": ["collectives", "hostile_*", "operations", "waits"],
    "transport/": ["link", "paths"],
    "worker_agent/": ["collectives", "hostile_*", "modes", "operations", "shards"],
    "worker_agent/compressed/": ["compression*", "residual_state"],
    "worker_agent/gpu/": ["device_*", "nccl_jobs"],
}


def output_of(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def has_passed(report: pathlib.Path, program: pathlib.Path) -> bool:
    """The newest run of the program passed."""
    if not report.exists() or report.stat().st_mtime < program.stat().st_mtime:
        return False
    return all(suites.get("failures") == "0" for suites in tree.parse(report).iter("testsuites"))


def programs(build: pathlib.Path) -> list[str]:
    """Runs of ctest that have to run again."""
    listed = json.loads(output_of("ctest", "--test-dir", str(build), "--show-only=json-v1"))["tests"]
    reports = build / "test_reports"
    return [test["name"] for test in listed
            if not has_passed(reports / f"{test['name']}.xml", pathlib.Path(test["command"][0]))]


def changed_files(revision: str) -> list[str]:
    """Differing from the revision, those that git does not know yet included."""
    known = output_of("git", "diff", "--name-only", revision)
    return [*known.split(), *output_of("git", "ls-files", "--others", "--exclude-standard").split()]


def system_tests_of(path: str, every: list[pathlib.Path]) -> list[pathlib.Path]:
    """Files of tests/system for one changed file."""
    if path.startswith(f"{TESTS}/"):
        name = pathlib.Path(path).name  # of a test, or of a program that tests start
        return [test for test in every if str(test) == path or name in test.read_text(encoding="utf-8")]
    folder = max((folder for folder in CHOSEN if path.startswith(folder)), key=len, default="")
    patterns = [f"test_{name}.py" for name in CHOSEN.get(folder, [])]
    return [test for test in every if any(fnmatch.fnmatch(test.name, pattern) for pattern in patterns)]


def main() -> int:
    """Prints one name a line."""
    what, *where = sys.argv[1:]
    if what == "programs":
        names = programs(pathlib.Path(where[0]))
    else:
        every = sorted(TESTS.rglob("test_*.py"))
        files = changed_files(where[0] if where else "HEAD")
        names = sorted({str(test) for path in files for test in system_tests_of(path, every)})
    print("\n".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
