"""torch.distributed, and what is built on it, on the backend "gradbus"."""

import re
import shutil
import signal
import socket
import subprocess

import pytest
import rig as rigs
from conftest import PYTHONS, RANK_DEADLINE_S, RANKS, assert_all_ok, clean_environment, run_ranks

pytestmark = pytest.mark.timeout(300)
PROGRAMS = "frameworks/distributed"
NEWEST = str(PYTHONS["newest"])  # older versions of torch have no backends in Python
OLDER = PYTHONS["debian"]


@pytest.fixture(scope="module")
def one_agent():
    with rigs.cluster(1) as running:
        yield running


@pytest.fixture(params=["one_agent", "two_agents"])
def agents(request):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("size", [2, 3])
def test_collectives_are_those_of_gloo(agents, tmp_path, size):
    assert_all_ok(run_ranks(agents, NEWEST, f"{PROGRAMS}/dist_collectives.py", size, str(tmp_path / "store")))


def test_groups_of_groups_and_a_second_world(two_agents, tmp_path):
    assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_subgroups.py", 2, str(tmp_path / "store")))


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_trains_as_one_process(agents, tmp_path, size):
    assert_all_ok(run_ranks(agents, NEWEST, f"{PROGRAMS}/dist_training.py", size, str(tmp_path / "store")))


@pytest.mark.parametrize("size", [2, 4])
def test_models_of_all_kinds_train_as_one_process(two_agents, tmp_path, size):
    assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_models.py", size, str(tmp_path / "store")))


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
@pytest.mark.parametrize("case", ["inductor_compiled_autograd"])
def test_models_compiled_by_inductor_train_as_one_process(two_agents, tmp_path, case):
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    words = [str(tmp_path / "store"), case]
    assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_models.py", 2, *words, **variables))


@pytest.mark.parametrize("size", [2, 4])
def test_sharded_training_is_that_of_one_process(agents, tmp_path, size):
    words = [str(tmp_path / "store"), str(tmp_path / "checkpoint")]
    assert_all_ok(run_ranks(agents, NEWEST, f"{PROGRAMS}/dist_sharded.py", size, *words))


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2)])
def test_a_checkpoint_goes_on_with_another_number_of_ranks(two_agents, tmp_path, sizes):
    for size, what in zip(sizes, ("save", "load")):
        words = [str(tmp_path / f"store-{what}"), str(tmp_path), what]
        assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_state.py", size, *words))


# case of ranks/frameworks/distributed/dist_trouble.py: (ranks, whether the last rank dies)
TROUBLE = {
    "dies": (3, True), "leaves": (2, False), "late": (2, False), "differs": (2, False), "wrong": (2, False),
    "again": (2, False), "forks": (2, False), "unfinished": (2, False), "interrupted": (2, False),
    "threads": (2, False), "any_source": (3, False), "late_sender": (2, False), "left_before": (2, False),
    "destroyed": (2, False), "named": (3, False), "listeners": (2, False),
}  # fmt: skip


@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_is_one_line(two_agents, tmp_path, case):
    size, last_dies = TROUBLE[case]
    results = run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_trouble.py", size, str(tmp_path / "store"), case)
    if last_dies:
        assert results.pop()[0] == -signal.SIGKILL
    assert_all_ok(results)
    assert not any("Traceback" in output or "terminate called" in output for _, output in results), results


@pytest.mark.parametrize("option", ["compression bf16", "mode localsgd:H=4"])
def test_options_of_the_job_without_effect_are_said_once(two_agents, tmp_path, option):
    name, value = option.split()
    words, variables = [str(tmp_path / "store"), option], {f"GRADBUS_{name.upper()}": value}
    assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_options.py", 2, *words, **variables))


# cases of ranks/frameworks/distributed/dist_progress.py
PROGRESS = [
    "power_sgd", "futures", "any_source_future", "dropped", "dropped_error", "unwaited", "polled",
    "shared",
]  # fmt: skip


@pytest.mark.parametrize("case", PROGRESS)
def test_works_advance_while_nobody_waits(two_agents, tmp_path, case):
    assert_all_ok(run_ranks(two_agents, NEWEST, f"{PROGRAMS}/dist_progress.py", 2, str(tmp_path / "store"), case))


def torchrun(agents, words, *options, program="dist_torchrun.py", ranks=4):
    """[(exit status, output)] of torchrun on each agent's node, with so many ranks in all."""
    command = [NEWEST, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks // len(agents)), *options]
    command += [str(RANKS / f"{PROGRAMS}/{program}"), *words]
    nodes = [
        subprocess.Popen(command, env=clean_environment(GRADBUS_SOCKET=agent.ready["socket"]), text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for agent in agents
    ]  # fmt: skip
    outputs = [node.communicate(timeout=RANK_DEADLINE_S)[0] for node in nodes]
    return [(node.returncode, output) for node, output in zip(nodes, outputs)]


def meeting_place(nodes):
    """Options of torchrun for all nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    return ["--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-id", "groups", "--rdzv-endpoint", place]


def test_groups_in_threads_under_torchrun_on_two_nodes(two_agents):
    for status, output in torchrun(two_agents.agents, [], *meeting_place(2)):
        assert status == 0 and output.count("ok") == 2, output


@pytest.mark.parametrize("place", ["init", "group"])
def test_ranks_of_torchrun_that_are_started_again_meet(agents, tmp_path, place):
    """A rank fails while the others wait for it. What they have left in torchrun's store misleads nobody."""
    options = [*meeting_place(len(agents.agents)), "--max-restarts", "1"]
    results = torchrun(agents.agents, [str(tmp_path), place], *options, program="dist_restarted.py", ranks=2)
    assert (tmp_path / "failed").exists()
    for status, output in results:
        assert status == 0 and output.count("ok\n") == 2 // len(results), output


def test_a_rank_of_torchrun_that_dies_is_named(one_agent):
    ((status, output),) = torchrun(one_agent.agents, ["dies"], "--standalone")
    assert status == 1, output
    for rank in range(3):
        assert re.search(rf"rank {rank} has: GB-P101 PEER_LOST: .*rank 3 .* \| next: ", output), output


def test_a_script_runs_under_the_launcher_without_an_import(run_program):
    program = str(RANKS / f"{PROGRAMS}/dist_launched.py")
    command = [str(rigs.BIN / "gradbus"), "run", "-np", "2", "--", NEWEST, program]
    status, output = run_program(command, env=clean_environment())
    assert status == 0 and output.count("ok") == 2, output


def test_an_older_torch_is_refused_in_one_line(run_program):
    if not OLDER.exists():
        pytest.skip(f"{OLDER} is missing: run scripts/setup.sh")
    program = "import gradbus\ntry: import gradbus.torch.distributed\nexcept gradbus.UnavailableError as e: print(e)"
    status, output = run_program([str(OLDER), "-c", program], env=clean_environment())
    assert status == 0, output
    assert re.fullmatch(r"GB-O900 BAD_ARGUMENT: .* torch 1\.13.* \| next: install torch 2\.15 or newer.*\n", output)
