"""Ranks that call a collective with tensors of different shapes are told so, with both shapes."""

import pytest
from conftest import PYTHONS, assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(240)

# verb, the ranks' shapes, what the message says of each
DIFFERENT = [
    ("allreduce", ("2x4", "4x2"), ("[2,4]", "[4,2]")),
    ("allreduce", ("4", "2x2"), ("[4]", "[2,2]")),
    ("allreduce", ("2x4", "2x5"), ("[2,4]", "[2,5]")),
    ("allreduce", ("1024x512", "512x1024"), ("[1024,512]", "[512,1024]")),  # large enough to be streamed
    ("broadcast", ("2x4", "4x2"), ("[2,4]", "[4,2]")),
    ("reduce", ("2x4", "8"), ("[2,4]", "[8]")),
    ("reducescatter", ("2x4", "4x2"), ("[2,4]", "[4,2]")),
    ("allgather", ("2x2", "2x4"), ("[*,2]", "[*,4]")),
    ("allgather", ("3x2x3", "3x3x2"), ("[*,2,3]", "[*,3,2]")),
    ("gather", ("2x2", "2x4"), ("[*,2]", "[*,4]")),
    ("alltoall", ("2x2", "2x4"), ("[*,2]", "[*,4]")),
    ("scatter", ("4x2", "2x1x2"), ("[2,2]", "[2,1,2]")),
]
ALIKE = [
    ("allreduce", ("-", "1"), "[]", "[1]"),
    ("allgather", ("2x3", "5x3"), "[7, 3]", "[7, 3]"),
    ("gather", ("1x3", "0x3"), "[1, 3]", "None"),
    ("alltoall", ("2x3", "4x3"), "[3, 3]", "[3, 3]"),
    ("reducescatter", ("4x3", "4x3"), "[2, 3]", "[2, 3]"),
]


@pytest.mark.parametrize("name", ["x", "-"])
@pytest.mark.parametrize(("verb", "shapes", "said"), DIFFERENT)
def test_other_shapes_are_refused_on_both_ranks(two_agents, verb, shapes, said, name):
    results = run_ranks(two_agents, str(PYTHONS["newest"]), "collectives/shapes.py", 2, verb, *shapes, name)
    assert_all_ok(results)
    for _, output in results:
        assert "refused GB-O90" in output, results
        # The name of an unnamed operation has its shape, where that is more than a number of elements.
        assert all(text in output or (name == "-" and text.strip("[]").isdigit()) for text in said), results


@pytest.mark.parametrize(("verb", "shapes", "first", "second"), ALIKE)
def test_shapes_that_fit(two_agents, verb, shapes, first, second):
    results = run_ranks(two_agents, str(PYTHONS["newest"]), "collectives/shapes.py", 2, verb, *shapes, "x")
    assert_all_ok(results)
    assert [output.splitlines()[0] for _, output in results] == [f"result {first}", f"result {second}"], results
