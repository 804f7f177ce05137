"""1-bit Adam and 0/1 Adam, against the papers' formulas."""

from conftest import assert_all_ok, run_ranks


def test_steps_are_those_of_the_formulas(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/onebit_adam.py", 2))


def test_an_interrupted_training_goes_on_bit_for_bit(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/onebit_adam.py", 4))


def test_ranks_that_differ_or_act_alone_get_right_means_or_errors(two_agents, python):
    assert_all_ok(run_ranks(two_agents, python, "training/onebit_adam_misuse.py", 4))
