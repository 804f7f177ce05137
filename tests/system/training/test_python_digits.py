"""examples/digits: four ranks on two agents train what one process trains on the same batches."""

import argparse
import json
import re
import subprocess

import conftest
import fork_server
import numpy as np
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(240)
TRAIN = str(rigs.REPOSITORY / "examples/digits/train.py")


def last_json(output):
    return json.loads(output.strip().splitlines()[-1])


def train(python, *options, env=None):
    command = [python, TRAIN, *options]
    done = fork_server.run(command, env=env or conftest.clean_environment(), timeout=200, check=False,
                          text=True, capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout), done.stderr


def relative_difference(left, right):
    """Largest difference of a parameter, relative to the largest value in its array."""
    a, b = np.load(left), np.load(right)
    assert a.files == b.files == ["0.weight", "0.bias", "2.weight", "2.bias"]
    return max(np.abs(a[name] - b[name]).max() / np.abs(b[name]).max() for name in a.files)


@pytest.fixture(scope="module")
def alone(python, tmp_path_factory):
    """(result, progress, parameters) of the single process."""
    path = tmp_path_factory.mktemp("alone") / "one.npz"
    return (*train(python, "--save-params", str(path)), path)


def test_single_process_learns(alone):
    result, progress, _ = alone
    assert result["accuracy"] >= 0.96 and result["loss"] < 0.1, result
    assert result["world_size"] == 1 and result["epochs"] == 20 and result["steps"] == 580
    assert len(result["param_hash"]) == 64 and result["samples_per_s"] > 0
    lines = progress.strip().splitlines()
    assert len(lines) == 20 and "epoch 20/20" in lines[-1] and "test accuracy" in lines[-1]


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_equal_the_single_process(two_agents, python, alone, tmp_path, size):
    path = tmp_path / "ranks.npz"
    ranks = two_agents.start_job(
        size, program=[python, TRAIN, "--save-params", str(path)], job=f"digits-{size}"
    )
    results = [rank.finish(200) for rank in ranks]
    assert [status for status, _ in results] == [0] * size, results
    result = last_json(results[0][1])
    assert result["accuracy"] >= 0.96 and result["ranks_identical"] and result["world_size"] == size
    assert all(output == "" for _, output in results[1:]), "only rank 0 talks"
    assert relative_difference(path, alone[2]) <= 1e-5


def test_same_command_gives_the_same_bits(python, alone):
    assert train(python)[0]["param_hash"] == alone[0]["param_hash"]
    assert train(python, "--seed", "2")[0]["param_hash"] != alone[0]["param_hash"]


def test_bad_options_are_refused(python):
    for options, words in ((["--epochs", "0"], "at least 1"), (["--lr", "fast"], "--lr")):
        done = subprocess.run([python, TRAIN, *options], text=True, capture_output=True, check=False,
                              env=conftest.clean_environment(), timeout=200)  # fmt: skip
        assert done.returncode == 2 and words in done.stderr


# Expect: both programs say why there is no GPU and what to do, before they join a job: none is there to join.
@pytest.mark.parametrize("example", ["digits", "charlm"])
def test_no_gpu_is_one_line(python, example):
    program = str(rigs.REPOSITORY / "examples" / example / "train.py")
    environment = conftest.clean_environment(
        CUDA_VISIBLE_DEVICES="", GRADBUS_SIZE="2", GRADBUS_RANK="0", GRADBUS_SOCKET="/nowhere.sock")
    done = subprocess.run([python, program, "--device", "cuda"], text=True, capture_output=True, check=False,
                          env=environment, timeout=200)  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.search(r"error: --device cuda: torch \S+ (is built without CUDA|\(CUDA \S+\) finds no GPU) \| next: .*, "
                     r"or leave --device cpu\n$", done.stderr), done.stderr


@pytest.mark.parametrize("built, words", [(None, "is built without CUDA"), ("13.0", "(CUDA 13.0) finds no GPU")])
def test_what_torch_lacks_is_told_apart(monkeypatch, capsys, built, words):
    monkeypatch.syspath_prepend(str(rigs.REPOSITORY / "examples"))
    devices = pytest.importorskip("common.devices")
    monkeypatch.setattr(devices.torch.version, "cuda", built)
    monkeypatch.setattr(devices.torch.cuda, "is_available", lambda: False)
    parser = argparse.ArgumentParser()
    devices.check(parser, "cpu")
    with pytest.raises(SystemExit):
        devices.check(parser, "cuda")
    assert words in capsys.readouterr().err


# Expect: none of the group's threads outlives close(). One that let go of a tensor while Python ended
# would abort the rank ("terminate called without an active exception").
def test_ddp_leaves_no_thread_behind(python):
    program = (
        "import os, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); import train; "
        "del sys.argv[0]; train.main(); "
        "print([open(f'/proc/self/task/{task}/comm').read().strip() for task in os.listdir('/proc/self/task')])"
    )
    command = [python, "-c", program, TRAIN, "--backend", "ddp", "--epochs", "1"]
    done = subprocess.run(command, env=conftest.clean_environment(), timeout=100, check=False,
                          text=True, capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "python" in done.stdout and "gloo" not in done.stdout, done.stdout


# Expect: the last rank's own steps take twice the time of the others', and each says its rate.
def test_a_pace_makes_ranks_unequal(python):
    result, _ = train(python, "--epochs", "1", "--pace", "5", "--slow", "2", "--stalls", "0.2:3")
    assert len(result["steps_per_s_of_ranks"]) == 1
    # One rank is the last: at least 10 ms a step, and of 29 steps some 30 ms.
    assert result["steps_per_s"] == result["steps_per_s_of_ranks"][0] < 100
