"""RDMA for real: one virtual machine with two soft-RoCE devices on the ends of a cable (tests/vm).

The steps of tests/vm/rdma_checks.py all run in that one machine; here each is one test, and what it
found is printed when it fails. Skipped, with the name of what is missing, where the machine cannot be
started.
"""

import json
import pathlib
import sys

import conftest
import pytest
import rig as rigs

VM = rigs.REPOSITORY / "tests/vm"
sys.path.insert(0, str(VM))
import machine  # noqa: E402

# Some four minutes on an idle machine, most of it emulation; three times that has been seen on a busy one.
SECONDS_MAX = 1300
pytestmark = pytest.mark.timeout(SECONDS_MAX + machine.STARTS * machine.START_SECONDS + 60)


def why_not():
    """Why these tests cannot run here; empty where they can."""
    missing = machine.why_not()
    if missing:
        return missing
    programs = ["gradbus", "gradbus-agent", "gradbus-server", "transport_contract_test", "digits_train"]
    missing = [name for name in programs if not (rigs.BIN / name).exists()]
    return f"not built: {missing[0]}" if missing else ""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """What each step found, after one run of the machine."""
    if why_not():
        pytest.skip(f"no virtual machine: {why_not()}")
    out = tmp_path_factory.mktemp("vm")
    shown = tmp_path_factory.mktemp("a folder of the host") / "note"
    shown.write_text("from the host")
    command = ["env", f"GRADBUS_BIN={rigs.BIN.resolve()}", f"GRADBUS_VM_NOTE={shown}",
               "python3", str(VM / "rdma_checks.py"), "/run/out"]
    outcome = machine.run(command, pathlib.Path(out), SECONDS_MAX, folders=[rigs.BIN, shown.parent])
    report = out / "steps.json"
    found = json.loads(report.read_text()) if report.exists() else {}
    return {"found": found, "said": f"{outcome.output[-3000:]}\nconsole:\n{outcome.console[-3000:]}"}


@pytest.mark.parametrize("step", [
    "folders", "doctor", "locked_memory", "control_groups", "bench", "digits", "torch_digits", "cable", "copies",
    "killed_agent", "loss",
    "flap", "paths", "contract",
])  # fmt: skip
def test_over_soft_roce(steps, step):
    if step == "torch_digits" and not conftest.PYTHONS["debian"].exists():
        pytest.skip(f"{conftest.PYTHONS['debian']} is missing: run scripts/setup.sh")
    assert step in steps["found"], steps["said"]
    result = steps["found"][step]
    print(step, result["seconds"], "s:", result["text"])
    assert result["ok"], result["text"]
