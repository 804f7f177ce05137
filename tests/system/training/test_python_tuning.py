"""Trials of plans and the options of autotuning, without ranks: which plan stays, and which values are refused."""

import itertools

import gradbus
import pytest
from gradbus._ops import is_choice
from gradbus.torch._tuning import codec_choice, plan_trials, tuning_options

TURN = plan_trials.WARM_STEPS + plan_trials.STEPS


def try_plans(monkeypatch, seconds, slowest=lambda s: s):
    """With steps of seconds[n] under plan n: (number of the best, numbers of the plans that were applied)."""
    clock = [0.0]
    monkeypatch.setattr(plan_trials.time, "monotonic", lambda: clock[0])
    applied = []
    trials = plan_trials.Trials(range(len(seconds)), lambda _, plan: applied.append(plan), slowest)
    for number in itertools.chain.from_iterable([n] * TURN for n in range(len(seconds))):
        assert not trials.is_done
        clock[0] += seconds[number]
        trials.stepped(None)
    assert trials.is_done
    return trials.best, applied


@pytest.mark.parametrize(
    ("seconds", "best", "applied"),
    [
        ([1.0, 0.9, 0.8], 2, [1, 2]),  # the last one runs already
        ([1.0, 0.8, 0.9], 1, [1, 2, 1]),
        ([1.0, 1.2, 1.1], 0, [1, 2, 0]),  # back to what ran before
        ([1.0, 0.995], 0, [1, 0]),  # not worth a change
    ],
)
def test_the_fastest_plan_stays_and_slower_ones_are_taken_back(monkeypatch, seconds, best, applied):
    assert try_plans(monkeypatch, seconds) == (best, applied)


def test_the_slowest_rank_decides(monkeypatch):
    others = iter([1.0, 1.5])  # of the slowest rank, which is another one
    assert try_plans(monkeypatch, [1.0, 0.5], lambda _: next(others)) == (0, [1, 0])


@pytest.mark.parametrize(
    ("seconds", "best", "applied"),
    [
        ([1.0, 0.9, 1.0], 1, [1, 0, 1]),
        ([1.0, 0.9, 0.91], 0, [1, 0]),  # the machine was slow in the first turn
        ([1.0, 0.9, 1.2], 1, [1, 0, 1]),
        ([1.0, 0.99], 0, [1, 0]),  # nothing to confirm
    ],
)
def test_dense_exchange_has_a_second_turn(monkeypatch, seconds, best, applied):
    clock, seen = [0.0], []
    monkeypatch.setattr(plan_trials.time, "monotonic", lambda: clock[0])
    trials = plan_trials.Trials(range(2), lambda _, plan: seen.append(plan), lambda s: s, 0.03, confirms=True)
    for turn in seconds:
        assert not trials.is_done
        for _ in range(TURN):
            clock[0] += turn
            trials.stepped(None)
    assert trials.is_done and (trials.best, seen) == (best, applied)


@pytest.mark.parametrize(
    ("text", "codecs", "cosine"),
    [
        ("auto", ("fp16", "int8", "onebit"), 0.5),
        ("auto:cosine=0.9,int8", ("int8",), 0.9),
        ("none,topk:ratio=0.01,ef=none,fp16", ("topk:ratio=0.01,ef=none", "fp16"), 0.5),
    ],
)
def test_a_list_of_codecs_is_read_as_the_launcher_reads_it(text, codecs, cosine):
    choice = codec_choice.parse_choice(text)
    assert is_choice(text) and (choice.codecs, choice.cosine_min) == (codecs, cosine)


def test_one_codec_is_no_choice():
    assert not any(map(is_choice, ("", "none", "fp16", "topk:ratio=0.01,ef=none")))
    assert codec_choice.with_gauge("fp16", 100) == "fp16:fidelity=100"
    assert codec_choice.with_gauge("topk:ratio=0.1", 7) == "topk:ratio=0.1,fidelity=7"
    assert codec_choice.with_gauge("int8:fidelity=2", 7) == "int8:fidelity=2"


def test_variables_of_autotuning(monkeypatch):
    assert not tuning_options.wants_tuning()
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "5")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "2")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_LOG", "h.csv")
    monkeypatch.setenv("GRADBUS_AUTOTUNE_LOG", "g.csv")
    assert tuning_options.wants_tuning()
    assert tuning_options.tuning_options() == tuning_options.TuningOptions(10, 5, 20, "g.csv")


@pytest.mark.parametrize(
    ("name", "text"),
    [("STEPS_PER_SAMPLE", "0"), ("STEPS_PER_SAMPLE", "1.5"), ("BAYES_OPT_MAX_SAMPLES", "61"),
     ("WARMUP_SAMPLES", "-1"), ("WARMUP_SAMPLES", "many")],
)  # fmt: skip
def test_a_wrong_value_is_named(monkeypatch, name, text):
    monkeypatch.setenv(f"HOROVOD_AUTOTUNE_{name}", text)
    with pytest.raises(gradbus.InvalidError, match=f"HOROVOD_AUTOTUNE_{name} is '{text}'"):
        tuning_options.tuning_options()
