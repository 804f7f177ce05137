"""Exchange modes on real daemons."""

import subprocess

import fork_server
import pytest
import rig as rigs
from conftest import assert_all_ok, clean_environment, run_ranks

pytestmark = pytest.mark.timeout(200)


@pytest.mark.parametrize(
    ("agents", "size", "mode", "compression"),
    [(1, 2, "delayed", "none"), (2, 2, "delayed:k=1", "none"), (3, 3, "delayed:k=3", "none"),
     (2, 4, "delayed:k=8", "none"), (2, 2, "delayed:k=2", "fp16")],
)  # fmt: skip
def test_delayed_is_delayed_sgd_bit_for_bit(python, agents, size, mode, compression):
    with rigs.cluster(agents) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/delayed.py", size, "exact", mode, compression))


def test_what_delay_slots_keep_and_what_they_sent_is_everything(python):
    with rigs.cluster(2) as rig:
        spec = "topk:ratio=0.05"
        assert_all_ok(run_ranks(rig, python, "modes/delayed.py", 4, "memory", "delayed:k=2", spec))


@pytest.mark.parametrize("mode", ["sync", "delayed:k=1", "delayed:k=4"])
def test_every_gradient_counts_once(python, mode):
    with rigs.cluster(3) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/delayed.py", 3, "counting", mode))


def test_all_optimizers_of_a_process_flush_together(python):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/delayed.py", 2, "together"))


def test_a_flush_that_ran_out_of_time_loses_nothing(python, tmp_path):
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, python, "modes/delayed.py", 2, "interrupted", str(tmp_path / "timed-out")))


# Two ranks stall in turn: synchronous steps add both ranks' stalls up, delayed ones overlap them.
def test_a_delay_hides_stalls(python):
    seconds = {}
    with rigs.cluster(2) as rig:
        for mode in ("sync", "delayed:k=4"):
            results = run_ranks(rig, python, "modes/delayed.py", 2, "slow", mode, "16")
            assert_all_ok(results)
            seconds[mode] = max(float(output.split("seconds ")[1].split()[0]) for _, output in results)
    assert seconds["sync"] > 2.0  # 8 stalls of 0.25 s, one after the other
    assert seconds["delayed:k=4"] < 0.8 * seconds["sync"], seconds


def test_the_launcher_tells_unchanged_scripts(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nmin_dims = 2\nmode = "delayed:k=1"\n')
    for options in (["--mode", "delayed:k=1"], ["--policy", str(policy)]):
        command = [str(rigs.BIN / "gradbus"), "run", "-np", "2", "--agents", "2", "--no-prefix", *options,
                   "--", "sh", "-c", "echo $GRADBUS_MODE"]  # fmt: skip
        done = fork_server.run(command, env=clean_environment(), timeout=60, check=False, text=True,
                              capture_output=True)  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("delayed:k=1") == 2
    for mode, says in (("delaid", "did you mean"), ("delayed:k=-1", "whole number from 1 to 64")):
        done = subprocess.run([str(rigs.BIN / "gradbus"), "run", "-np", "1", "--mode", mode, "--", "true"],
                              env=clean_environment(), timeout=60, check=False, text=True,
                              capture_output=True)  # fmt: skip
        assert done.returncode == 2 and "GB-O911" in done.stderr and says in done.stderr
