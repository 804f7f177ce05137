"""JAX, Keras and MXNet in modes in which shards hold the parameters and step. No script names the mode."""

import subprocess

import conftest
import fork_server
import framework_runs
import pytest
import rig as rigs

pytestmark = pytest.mark.timeout(300)
PROGRAM = "frameworks/shard_steps.py"
MXNET = rigs.REPOSITORY / ".venv-mxnet/bin/python3"
PLAIN = "ps:quorum,q=2"  # a step of both nodes
SGD = f"{PLAIN},optimizer=sgd,lr=0.125,momentum=0.5"
ADAM = "ps:async,optimizer=adam,lr=0.125,beta2=0.99"
LAMB = "ps:async,optimizer=lamb,lr=0.125"
DEFAULTS = "ps:async,optimizer=sgd,lr=0.01"  # they count as named


@pytest.fixture(scope="module")
def nodes():
    with rigs.cluster(2, shards=2) as running:
        yield running


def run(cluster, size, *words, mode, framework="", **variables):
    """Ranks run `shard_steps.py` with these words, by the Python of a framework."""
    variables |= {"GRADBUS_MODE": mode, "TF_CPP_MIN_LOG_LEVEL": "3"}
    python = framework_runs.python()
    if framework == "torch":
        python, path = framework_runs.with_torch()
        variables |= {"PYTHONPATH": path}
    if framework == "mxnet":
        python = str(MXNET)
        if not MXNET.exists():
            pytest.skip(f"{MXNET} is missing: run scripts/setup.sh --frameworks")
    if framework in ("tensorflow", "jax", "torch"):
        variables |= {"KERAS_BACKEND": framework}
    conftest.assert_all_ok(conftest.run_ranks(cluster, python, PROGRAM, size, *words, **variables))


@pytest.mark.parametrize("mode, size", [(SGD, 2), (SGD, 4), (ADAM, 1), (LAMB, 1), (DEFAULTS, 1)])
def test_jax(nodes, mode, size):
    run(nodes, size, "compare", "jax", mode, mode=mode)


def test_sums_on_jax(nodes):
    run(nodes, 1, "summed", "ps:async", mode="ps:async,optimizer=sgd,lr=0.125")
    with rigs.cluster(1, shards=1) as node:
        run(node, 3, "summed", "ps:async", mode="ps:async,optimizer=sgd,lr=0.125")


# Expect: the learning rate is that of Keras, and plain SGD need not be named.
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("mode, size", [(PLAIN, 2), ("ps:async,optimizer=adam,lr=7", 1)])
def test_keras(nodes, backend, mode, size):
    run(nodes, size, "compare", "keras", mode, mode=mode, framework=backend)


@pytest.mark.parametrize("backend, mode, size", [("tensorflow", PLAIN, 2), ("jax", "ps:async,optimizer=adam", 1)])
def test_fit_of_keras(nodes, backend, mode, size):
    run(nodes, size, "compare", "keras_fit", mode, mode=mode, framework=backend)


@pytest.mark.parametrize("mode, size", [(PLAIN, 2), ("ps:async,optimizer=adam,lr=7", 1)])
def test_mxnet(nodes, mode, size):
    run(nodes, size, "compare", "mxnet", mode, mode=mode, framework="mxnet")


@pytest.mark.parametrize("mode", ["ps:async,optimizer=sgd,lr=0.1", "ps:ssp,max_staleness=1,optimizer=sgd,lr=0.1"])
def test_ranks_meet_at_a_flush(nodes, mode):
    run(nodes, 3, "together", mode, mode=mode)


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_schedules_of_keras_reach_the_shards(nodes, backend):
    run(nodes, 1, "schedule", mode="ps:async", framework=backend)


def test_one_model_has_shards_and_mode_sync(nodes):
    rules = f"0|0|{2**64 - 1}|0|{2**32 - 1}|{PLAIN},optimizer=adam,lr=0.125"
    run(nodes, 2, "mixed", mode=rules)


@pytest.mark.parametrize("codec", ["topk:ratio=0.1", "onebit"])
def test_compression(nodes, codec):
    run(nodes, 2, "compressed", mode="ps:async,optimizer=sgd,lr=0.05", GRADBUS_COMPRESSION=codec)


# Expect: a sparse gradient goes to the shards, or stays on its rank, as dense ones do.
@pytest.mark.parametrize("mode", ["ps:async", "localsgd:H=100"])
def test_sparse_gradients_of_keras(nodes, mode):
    run(nodes, 2, "rows", mode=mode, framework="tensorflow", GRADBUS_OP_TIMEOUT="20")


@pytest.mark.parametrize("framework", ["jax", "keras", "mxnet"])
def test_what_is_written_to_a_parameter_is_refused(nodes, framework):
    run(nodes, 1, "written", framework, mode="ps:async,optimizer=sgd,lr=0.125", framework=framework)


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_broadcast_before_fit_reaches_the_shards(nodes, backend):
    run(nodes, 2, "fit_again", mode="ps:async", framework=backend)


def test_a_lost_step_is_not_made_again(nodes):
    run(nodes, 2, "lost", mode=f"{PLAIN},optimizer=sgd,lr=0.1", GRADBUS_OP_TIMEOUT="3")


def test_a_mode_must_say_what_a_framework_does_not(nodes):
    run(nodes, 1, "unnamed", mode="ps:async")


@pytest.mark.parametrize("framework", ["jax", "keras", "mxnet"])
def test_what_shards_would_ignore_is_refused(nodes, framework):
    run(nodes, 1, "ignored", framework, mode="ps:async,optimizer=adam,lr=0.125", framework=framework)


# Expect: what a rank brings to shards that have a snapshot does not count.
def test_a_job_goes_on_from_a_snapshot(tmp_path):
    for first, last, more in (("0", "4", ""), ("4", "8", ",restore=1")):
        command = [str(rigs.BIN / "gradbus"), "run", "-np", "1", "--shards", "2", "--job", "train",
                   "--snapshots", str(tmp_path), "--mode", ADAM + more, "--no-prefix", "--", framework_runs.python(),
                   str(conftest.RANKS / PROGRAM), "steps", first, last]  # fmt: skip
        done = fork_server.run(command, env=conftest.clean_environment(), timeout=120, check=False, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        assert done.returncode == 0, done.stdout
