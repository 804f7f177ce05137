"""Numbers that the Python package repeats from gradbus.h."""

import json
import re
import subprocess

import pytest
import rig as rigs
from conftest import PYTHONS, clean_environment

HEADER = (rigs.REPOSITORY / "client_lib/include/gradbus/gradbus.h").read_text()
C_NUMBERS = {name: int(number) for name, number in re.findall(r"\bGRADBUS_([A-Z0-9_]*[A-Z0-9]) = (\d+)", HEADER)}
# Enumeration of Python: names that differ in C.
OTHER_NAMES = {
    "Code": {},
    "Collective": {},
    "ReduceOp": {"BIT_AND": "BAND", "BIT_OR": "BOR"},
    "ModeKind": {},
}
PROGRAM = """
import json
from gradbus._errors import Code
from gradbus._layout import DTYPES
from gradbus._modes.kinds import ModeKind
from gradbus._ops import ReduceOp
from gradbus._parts import Collective

numbers = {kind.__name__: {one.name: one.value for one in kind} for kind in (Code, Collective, ReduceOp, ModeKind)}
print(json.dumps([numbers, {short.upper(): number for short, number, _ in DTYPES.values()}]))
"""


@pytest.fixture(scope="module")
def of_python():
    done = subprocess.run([str(PYTHONS["newest"]), "-c", PROGRAM], text=True, capture_output=True, timeout=120,
                          check=True, env=clean_environment())  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", OTHER_NAMES)
def test_enumerations(of_python, kind):
    found = of_python[0][kind]
    names = OTHER_NAMES[kind]
    assert found == {name: C_NUMBERS[names.get(name, name)] for name in found}


def test_dtypes(of_python):
    assert of_python[1] == {name: C_NUMBERS[name] for name in ("F32", "F64", "F16", "BF16")}
