"""Modes in which ranks step on their own, on real daemons: localsgd, diloco, averaging."""


import fork_server
import pytest
import rig as rigs
from conftest import assert_all_ok, clean_environment, run_ranks

pytestmark = pytest.mark.timeout(250)

EXACT = [
    "localsgd:H=4",
    "diloco:H=4",
    "diloco:H=1,outer_lr=0.5,outer_momentum=0",
    "diloco:H=6,outer_lr=0.5,outer_momentum=0.8,fragments=3",
    "diloco:H=5,fragments=3",  # turns at 1, 3 and 5
    "diloco:H=4,overlap=2",
    "diloco:H=9,outer_lr=1,outer_momentum=0.5,fragments=3,overlap=2",
]
ANY_SIZE = "0|18446744073709551615|0|4294967295"


@pytest.mark.parametrize(("agents", "size"), [(1, 1), (1, 2), (2, 4)])
def test_each_step_of_each_rank_is_as_simulated(python, agents, size):
    with rigs.cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", size, "exact", *EXACT))


@pytest.mark.parametrize(("agents", "size", "every"), [(1, 1, 2), (1, 2, 1), (2, 4, 3)])
def test_averaging_is_as_simulated(python, agents, size, every):
    with rigs.cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", size, "averaging", str(every)))


# The slow rank needs 3.2 s for its steps, the others 1 s and what the machine does besides.
def test_averaging_by_time_holds_nobody_up_and_loses_nothing(python):
    with rigs.cluster(2) as rig:
        results = run_ranks(rig, python, "modes/local_modes.py", 4, "uneven")
    assert_all_ok(results)
    seconds = [float(output.split("seconds ")[1].split()[0]) for _, output in results]
    assert seconds[0] > 3.0
    assert max(seconds[1:]) < 0.75 * seconds[0], seconds


def test_each_parameter_may_have_its_own_mode(python):
    modes = {"late": "delayed:k=1", "own": "diloco:H=3,outer_lr=1,outer_momentum=0",
             "loose": "averaging:every=2", "paired": "gossip:every=2"}  # fmt: skip
    rules = ";".join(f"{name}|{ANY_SIZE}|{mode}" for name, mode in modes.items())
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 4, "mixed", GRADBUS_MODE=rules))


def test_pseudo_gradients_may_be_compressed(python):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 4, "compressed", "topk:ratio=0.1"))


def test_what_training_scripts_do(python):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 4, "habits"))


def test_a_rank_that_does_not_come(python):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 2, "late"))


# One case for each place in which a rank may be while another one calls flush(): there as well, at a turn
# before that, at one of another fragment, and with an exchange in the background.
@pytest.mark.parametrize(("mode", "counts"), [
    ("localsgd:H=4", (8, 9)), ("localsgd:H=4", (7, 8)), ("localsgd:H=4", (9, 0)),
    ("diloco:H=6,fragments=3", (3, 15)), ("diloco:H=9,fragments=3,overlap=2", (6, 3)),
])  # fmt: skip
def test_unequal_numbers_of_steps_are_named(python, mode, counts):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 2, "unequal", mode, *map(str, counts)))


def test_mistakes_are_named(python):
    with rigs.cluster(1) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/local_modes.py", 1, "mistakes"))


def launch(*options):
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "2", "--no-prefix", *options,
               "--", "sh", "-c", "echo $GRADBUS_MODE"]  # fmt: skip
    return fork_server.run(command, env=clean_environment(), timeout=60, check=False, text=True,
                          capture_output=True)  # fmt: skip


def test_the_launcher_knows_them(tmp_path):
    for mode in ("localsgd:H=8", "diloco:H=20,fragments=2", "averaging:every_ms=500",
                 "gossip:topology=ring"):  # fmt: skip
        policy = tmp_path / "policy.toml"
        policy.write_text(f'[[rule]]\nmin_dims = 2\nmode = "{mode}"\n')
        for options in (["--mode", mode], ["--policy", str(policy)]):
            done = launch(*options)
            assert done.returncode == 0, done.stderr
            assert done.stdout.count(mode) == 2
    done = launch("--mode", "averaging:every=1,every_ms=1")
    assert done.returncode == 2 and "GB-O911" in done.stderr and "give one of every" in done.stderr
