"""Bad input in each framework: one line that says what and who, no hang, and nothing is left behind."""

import ast
import json
import re

import conftest
import framework_runs
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(400)
PROGRAM = "frameworks/bad_input.py"
PYTHONS = {
    "torch": conftest.PYTHONS["newest"],
    "horovod": conftest.PYTHONS["newest"],
    "jax": framework_runs.PYTHON,
    "tensorflow": framework_runs.PYTHON,
    "keras": framework_runs.PYTHON,
    "mxnet": rigs.REPOSITORY / ".venv-mxnet/bin/python3",
}
COMPILE = ("jax", "tensorflow")
INTERRUPT_S = 5.5  # an operation that nobody interrupts ends after 6 s
ERROR = re.compile(r"GB-[A-Z]\d{3} [A-Z_]+: .+ \| next: .+")
VALUES = re.compile(r"\[1\.,? 1\.\]")

# case: what the user reads
ERRORS = {
    "init alone": ["TimeoutError: GB-J404", "1 of 2 ranks", "missing: 1"],
    "init of another size": ["GB-O900", "size=5 changes nothing"],
    "shape": ["GB-O902", '"shape', "rank 0", "f32[2]", "rank 1", "f32[3]"],
    "dtype": ["GB-O902", '"dtype', "rank 0", "f32[2]", "rank 1", "i32[2]"],
    "broadcast of others": ["GB-O903", "first", "rank 1"],
    "metrics of others": ["GB-O903", "metrics:mmm", "rank 1"],
    "absent": ["GB-P110", 'absent', "rank 1"],
    "fork": ["ClosedError: GB-O907", "status 0"],
}
RIGHT = ("afterwards", "after fork", "at the end")
EAGER = [*ERRORS, "init twice", *RIGHT, "interrupt", "elsewhere"]
# kind of optimizer, tape or trainer: its framework
KINDS = {
    "optimizer": "torch", "shard": "torch", "onebit": "torch", "hook": "torch", "hvd optimizer": "horovod",
    "optax": "jax", "optax jit": "jax", "tape": "tensorflow", "tape function": "tensorflow", "hvd tape": "tensorflow",
    "keras": "keras", "hvd keras": "keras", "trainer": "mxnet", "hvd trainer": "mxnet",
}  # fmt: skip
# case of a model: what the user reads. PyTorch's optimizers say it in other words.
STEPS = {
    "shape": ["[2, 3]", "[2, 4]"], "transposed": ["[2, 3]", "[3, 2]"], "dtype": ["float32", "float16"],
    "layers": ["none on rank 0"], "absent": ["GB-P110", "rank 1"],
}  # fmt: skip
RECOVERIES = {
    "tape": "pass DistributedGradientTape(name=...) a new name", "hvd tape": "call hvd.shutdown() and hvd.init()",
    "tape function": "pass DistributedGradientTape(name=...) a new name",
}  # fmt: skip
SEVERAL = ("shard", "onebit", "hook")  # operations in a step: a rank that gave up one makes a new optimizer
COMPILED = ["shape", "dtype", "absent", "afterwards", "interrupt"]
CASES = [(framework, case) for framework in PYTHONS for case in EAGER]
CASES += [(framework, f"compiled {case}") for framework in COMPILE for case in COMPILED]


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """{framework: (exit statuses, {case: what rank 0 heard}, output)}. All jobs run at the same time."""
    folder = tmp_path_factory.mktemp("bad")
    with rigs.cluster(2) as rig:
        before = [agent.open_files() for agent in rig.agents]
        jobs = {
            framework: conftest.start_ranks(rig, str(python), PROGRAM, 2, framework, str(folder))
            for framework, python in PYTHONS.items()
            if python.exists()
        }
        ended = {framework: [rank.finish(300) for rank in ranks] for framework, ranks in jobs.items()}
        rigs.wait_until(lambda: all(agent.segments() == 0 for agent in rig.agents), what="segments to go")
        rigs.wait_until(
            lambda: all(agent.open_files() <= files for agent, files in zip(rig.agents, before)),
            what=f"at most {before} descriptors",
        )
    return {framework: said(results) for framework, results in ended.items()}


def said(results):
    output = results[0][1]
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"case"')]
    return [status for status, _ in results], {line["case"]: line for line in lines}, output


def of(heard, framework):
    if framework not in heard:
        pytest.skip(f"{PYTHONS[framework]} is missing: run scripts/setup.sh --frameworks")
    return heard[framework]


@pytest.mark.parametrize(("framework", "case"), CASES)
def test_what_the_user_reads(heard, framework, case):
    _, cases, output = of(heard, framework)
    if case == "elsewhere":
        check_device(cases)
        return
    assert case in cases, output
    says, kind = cases[case]["says"], case.removeprefix("compiled ")
    if kind in ERRORS:
        first = says.splitlines()[0]
        assert ERROR.search(first) and [part for part in ERRORS[kind] if part not in first] == [], says
    elif kind in RIGHT:
        assert VALUES.search(says), says
    elif kind == "interrupt":
        assert "KeyboardInterrupt" in says and cases[case]["seconds"] < INTERRUPT_S, cases[case]
    else:
        assert says == "nothing", says


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_differ_and_steps_that_wait(heard, kind):
    """Optimizers, tapes and trainers: each error is in one line, on rank 0 as on rank 1, and training goes on.

    A rank that gave up a step of others is told so: its parameters differ. What the error asks for works.
    """
    _, cases, output = of(heard, KINDS[kind])
    of_torch = KINDS[kind] in ("torch", "horovod") and kind != "onebit"
    for case in [case for case in STEPS if f"{kind}: {case}" in cases]:
        says = cases[f"{kind}: {case}"]["says"]
        lines = [line for line in says.splitlines() if ERROR.search(line)]
        parts = ["rank 1"] if of_torch else STEPS[case]
        assert lines and [part for part in parts if part not in lines[0]] == [], (case, says)
        assert kind in ("tape function", "hook") or len(says.splitlines()) == 1, says  # TensorFlow and torch add lines
    assert "-1.5" in cases[f"{kind}: right"]["says"], output
    if kind in SEVERAL:
        for case in ("absent",) if kind == "hook" else ("absent", "interrupt"):
            assert "-1.5" in cases[f"{kind}: after {case}"]["says"], output
        check_interrupt(cases.get(f"{kind}: interrupt"))
        return
    assert cases[f"{kind}: absent"] and "GB-" not in cases[f"{kind}: afterwards"]["says"], output
    for case in ("absent", "interrupt"):
        says = cases[f"{kind}: after {case}"]["says"]
        if of_torch:
            mine, theirs = ast.literal_eval(says)
            assert mine == theirs, (case, says)
            continue
        line = next((line for line in says.splitlines() if ERROR.search(line)), "")
        assert "GB-O905" in line and "rank 0 gave up" in line and "broadcast the parameters" in line, says
        assert RECOVERIES.get(kind, "make a new optimizer") in line, says
    check_interrupt(cases[f"{kind}: interrupt"])


def check_interrupt(case):
    assert case is None or ("KeyboardInterrupt" in case["says"] and case["seconds"] < INTERRUPT_S), case


def check_device(cases):
    """A device without values is refused. A second one in host memory works."""
    if "meta" in cases:
        assert ERROR.search(cases["meta"]["says"]) and "is on meta" in cases["meta"]["says"]
    else:
        assert VALUES.search(cases["second"]["says"]), cases["second"]


# Expect: no rank called shutdown(), and all end with 0. The fixture has seen that agents keep nothing.
@pytest.mark.parametrize("framework", PYTHONS)
def test_ranks_end_without_shutdown(heard, framework):
    statuses, _, output = of(heard, framework)
    assert statuses == [0, 0], output
