"""Compressed exchanges on real daemons: near the exact sum, nothing lost, the same bits everywhere."""

import json

import fork_server
import pytest
import rig as rigs
from conftest import PYTHONS, assert_all_ok, clean_environment, run_ranks

pytestmark = pytest.mark.timeout(300)
TRAIN = str(rigs.REPOSITORY / "examples/digits/train.py")


@pytest.mark.parametrize(("size", "agents"), [(2, 2), (4, 2), (3, 3)])
def test_every_way_to_travel(size, agents):
    with rigs.cluster(agents) as rig:
        results = run_ranks(rig, str(PYTHONS["newest"]), "compression/compression.py", size)
        assert_all_ok(results)
        sums = [json.loads(output.strip().splitlines()[-2]) for _, output in results]
        assert len(sums[0]) > 50
        for rank, other in enumerate(sums):
            differ = [case for case, checksum in sums[0].items() if other[case] != checksum]
            assert not differ, f"rank {rank} has other bits than rank 0: {differ[:5]}"


def test_scales_and_names():
    with rigs.cluster(2) as rig:
        assert_all_ok(run_ranks(rig, str(PYTHONS["newest"]), "compression/scales_and_names.py", 4))


def train(*options):
    """What examples/digits says at its end, on four agents, unchanged but for the options; the same bits each time."""
    command = [rigs.BIN / "gradbus", "run", "-np", "4", "--agents", "4", "--no-prefix", *options]
    done = fork_server.run(
        [*map(str, command), "--", str(PYTHONS["newest"]), TRAIN, "--hidden", "512"],
        env=clean_environment(GRADBUS_SERVER_DETERMINISTIC="1"), timeout=200, check=False, text=True,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def dense():
    return train()


@pytest.mark.parametrize(
    "codec", ["topk:ratio=0.01", "qsgd", "onebit", "efsignsgd", "powersgd", "fp16", "int4"]
)
def test_an_unchanged_script_learns(dense, codec):
    """20 epochs, the dense run's settings: a tenth of all gradients lost would show, noise does not."""
    result = train("--compression", codec)
    assert result["ranks_identical"]
    assert result["accuracy"] >= 0.9, (result, dense)
    assert result["param_hash"] != dense["param_hash"], "nothing was compressed"


def test_a_policy_file_says_which(tmp_path, dense):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nname = "0.*"\nmin_dims = 2\ncompression = "topk:ratio=0.01"\n')
    result = train("--policy", str(policy))
    assert result["accuracy"] >= 0.9
    assert result["param_hash"] != dense["param_hash"]
    policy.write_text('[[rule]]\nname = "no such tensor"\ncompression = "topk"\n')
    assert train("--policy", str(policy))["param_hash"] == dense["param_hash"]


def test_mistakes_stop_the_job_before_it_starts(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ncompression = "topk:ratoi=0.1"\n')
    done = fork_server.run(
        [str(rigs.BIN / "gradbus"), "run", "-np", "1", "--policy", str(policy), "--", "true"],
        env=clean_environment(), timeout=60, check=False, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{policy}:1" in done.stderr and 'did you mean "ratio"?' in done.stderr
