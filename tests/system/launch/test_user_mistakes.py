"""Mistakes that users make, one a row: a real command or program, its exit status, and what its message must say.

Every message is one line in the product's form (`GB-X123 NAME: what | next: what to do`) or, in Python, the
last line of an exception. A row that hangs, says nothing, or blames somebody else is a defect.
"""

import re
import subprocess

import conftest
import pytest
import rig as rigs

DEADLINE_S = 60.0
GRADBUS, AGENT, SERVER = "gradbus", "gradbus-agent", "gradbus-server"

# mistake: (command, exit status, error, words of the message)
COMMANDS = {
    "a command with a typo": ([GRADBUS, "stauts"], 2, "F101", ["did you mean: gradbus status"]),
    "an option with a typo": ([GRADBUS, "--verison"], 2, "F101", ['"--verison"', "did you mean: --version"]),
    "an option of run with a typo": ([GRADBUS, "run", "--agnets", "2", "--", "true"], 2, "F101", ["--agents"]),
    "a program that is not there": ([GRADBUS, "run", "-np", "1", "--", "/nowhere/train"], 127, "H201",
                                    ["/nowhere/train does not exist"]),
    "no rank at all": ([GRADBUS, "run", "-np", "0", "--", "true"], 2, "J401", ["-np"]),
    "more agents than ranks": ([GRADBUS, "run", "-np", "2", "--agents", "4", "--", "true"], 2, "H200",
                               ["4 agents for 2 ranks"]),
    "a policy file that is not there": ([GRADBUS, "run", "-np", "1", "--policy", "nofile.toml", "--", "true"], 2,
                                        "F102", ["nofile.toml", "--policy"]),
    "a configuration that is not there": ([AGENT, "--config", "nofile.toml"], 1, "F102", ["nofile.toml", "--config"]),
    "a compression with a typo": ([GRADBUS, "run", "-np", "1", "--compression", "topkk", "--", "true"], 2, "O910",
                                  ["topkk"]),
    "a mode with a typo": ([GRADBUS, "run", "-np", "1", "--mode", "delayd:k=1", "--", "true"], 2, "O911", ["delayd"]),
    "a coordinator that is a URL": ([GRADBUS, "status", "--coordinator", "http://node-1:7400"], 2, "F100",
                                    ["http://node-1:7400", "HOST:PORT"]),
    "a coordinator's port with letters": ([AGENT, "--coordinator", "node-1:74OO"], 1, "F100",
                                          ["--coordinator", "node-1:74OO"]),
    "a coordinator that is not there": ([GRADBUS, "status", "--coordinator", "127.0.0.1:1"], 2, "C501",
                                        ["127.0.0.1:1"]),
    "a coordinator without a port": ([GRADBUS, "status", "--coordinator", "localhost"], 2, "C501",
                                     ["localhost:7400"]),
    "a node whose name is no text": ([AGENT, "--name", "node\udcff"], 1, "F100", ["--name", "127"]),
    "an address of another machine": ([AGENT, "--bind", "203.0.113.7:0"], 1, "D603",
                                      ["203.0.113.7", "an address of this machine"]),
    "an error that does not exist": ([GRADBUS, "explain", "P999"], 1, "F100", ["P999"]),
    "a rank out of range": (["scripted_rank", "barrier"], 3, "J401", ["rank 4", "0..3"]),
    "a rank that is a word": (["scripted_rank", "barrier"], 3, "J401", ["GRADBUS_RANK", '"zero"']),
    "a rank without a size": (["scripted_rank", "barrier"], 3, "J401",
                              ['GRADBUS_RANK is "1"', "GRADBUS_SIZE is not set"]),
    "a size without a rank": (["scripted_rank", "barrier"], 3, "J401",
                              ['GRADBUS_SIZE is "2"', "GRADBUS_RANK is not set"]),
    "no agent": (["scripted_rank", "barrier"], 3, "A300", ["nowhere.sock"]),
    "a launcher that is not known": (["scripted_rank", "barrier"], 0, "J407", ["FLUX_TASK_RANK=1", "GRADBUS_RANK"]),
}  # fmt: skip
VARIABLES = {
    "a rank out of range": {"GRADBUS_RANK": "4", "GRADBUS_SIZE": "4"},
    "a rank that is a word": {"GRADBUS_RANK": "zero", "GRADBUS_SIZE": "4"},
    "a rank without a size": {"GRADBUS_RANK": "1", "GRADBUS_WORLD_SIZE": "2"},
    "a size without a rank": {"GRADBUS_SIZE": "2"},
    "no agent": {"GRADBUS_RANK": "0", "GRADBUS_SIZE": "2", "GRADBUS_SOCKET": "/tmp/nowhere.sock"},
    "a launcher that is not known": {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"},
}

# function of ranks/launch/mistakes.py: (exit status of rank 0, kind of exception, words of its last line)
PROGRAMS = {
    "clip_before_synchronize": (1, "BusyError", ["GB-O905", "changed during its exchange", "synchronize()"]),
    "scale_before_synchronize": (1, "BusyError", ["GB-O905", "changed during its exchange", "synchronize()"]),
    "other_weights": (1, "MismatchError", ["GB-O906", "rank 1 differs from rank 0", "broadcast_parameters"]),
    "ddp_inside": (1, "InvalidError", ["GB-O900", "DistributedDataParallel", "0.weight"]),
    "fsdp_inside": (1, "InvalidError", ["GB-O900", "FullyShardedDataParallel"]),
    "sharded_parameters": (1, "InvalidError", ["GB-O900", "'0.weight' is a DTensor", "use-torch-distributed.md"]),
    "lazy_module": (1, "InvalidError", ["GB-O900", "'0.weight' of a lazy module", "call the model"]),
    "in_other_order": (1, "MismatchError", ["GB-O906", "number 2 of the parameters", "'1.weight'", "same order"]),
    "in_other_order_with_broadcast": (1, "MismatchError", ["GB-O903", "parameters/float32"]),
    "frozen_on_one_rank": (1, "PeerLostError", ["GB-P105", "rank 1", "that rank's output"]),
    "other_rate": (1, "MismatchError", ["GB-O906", "option 'lr' of parameter group 0, 0.1 on this rank"]),
    "other_rate_later": (1, "MismatchError", ["GB-O906", "option 'lr'", "after 2 steps", "gradbus.allreduce"]),
    "other_optimizer": (1, "MismatchError", ["GB-O906", "the optimizer", "make the same optimizer on all ranks"]),
    "state_on_one_rank": (1, "MismatchError", ["GB-O906", "the optimizer's state of parameter '0.weight'",
                                               "broadcast_optimizer_state"]),
    "other_width": (1, "MismatchError", ["GB-O902", "rank 0", "rank 1"]),
    "other_shape": (1, "MismatchError", ["GB-O902", "f32[3]", "f32[4]"]),
    "other_inner_shape": (1, "MismatchError", ["GB-O902", 'tensor "rows":', "f32[*,2]", "f32[*,4]"]),
    "other_dtype": (1, "MismatchError", ["GB-O902", "f32[3]", "f64[3]"]),
    "other_root": (1, "MismatchError", ["GB-O902", "root 0", "root 1"]),
    "other_name": (1, "MismatchError", ["GB-O903", "loss.0", "loss.1"]),
    "other_layers": (1, "MismatchError", ["GB-O903", "rank 0", "rank 1", "layer0.bias", "layer1.bias"]),
    "fewer_batches": (1, "PeerLostError", ["GB-P105", "rank 1"]),
    "only_rank_0": (1, "PeerLostError", ["GB-P105", "rank 1", "same number of steps"]),
    "two_backwards": (1, "BusyError", ["GB-O905", "backward_passes_per_step"]),
    "a_rank_raises": (1, "PeerLostError", ["GB-P105", "rank 1", "that rank's output"]),
    "a_rank_is_killed": (1, "PeerLostError", ["GB-P101", "rank 1"]),
    "module_without_torch": (1, "AttributeError", ["attribute 'DistributedOptimizer'", "import gradbus.torch as"]),
    "parameters_for_names": (1, "InvalidError", ["GB-O900", "has parameters without names",
                                                 "pass model.named_parameters()"]),
    "model_for_optimizer": (1, "InvalidError", ["GB-O900", "Sequential is no torch optimizer",
                                                "pass a torch.optim.Optimizer"]),
    "words_for_tensors": (1, "InvalidError", ["GB-O900", "allreduce: the tensor is a str", "pass a numpy array"]),
    "compression_with_typo": (1, "InvalidError", ["GB-O910", "topkk"]),
    "mode_with_typo": (1, "InvalidError", ["GB-O911", "delayd"]),
    "root_out_of_range": (1, "InvalidError", ["GB-O900", "root"]),
}


# What the other rank says, where it says more.
SECOND = {"frozen_on_one_rank": ["GB-O906", "parameter '0.", "is frozen on this rank", "requires_grad_()"]}
# Torch 1.13 cannot shard models without a GPU. Its zero_grad() leaves zeros, with which frozen parameters move alike.
NEEDS_NEWEST = {"fsdp_inside", "sharded_parameters", "frozen_on_one_rank"}


@pytest.mark.parametrize("mistake", COMMANDS)
def test_a_command(mistake, tmp_path):
    words, status, error, parts = COMMANDS[mistake]
    env = conftest.clean_environment(
        TMPDIR=str(tmp_path), GRADBUS_TOKEN_FILE=str(rigs.TOKEN_FILE), **VARIABLES.get(mistake, {}))
    socket = ["--socket", str(tmp_path / "a.sock")] if words[0] == AGENT else []
    done = subprocess.run([rigs.BIN / words[0], *words[1:], *socket], env=env, text=True, capture_output=True,
                          timeout=DEADLINE_S, check=False, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    lines = [line for line in said.splitlines() if f"GB-{error} " in line]
    assert len(lines) == 1 and re.search(rf"GB-{error} [A-Z_]+: .+ \| next: .+", lines[0]), said
    assert [part for part in parts if part not in lines[0]] == [], lines[0]


@pytest.mark.parametrize("mistake", PROGRAMS)
def test_a_program(two_agents, python, mistake):
    if mistake in NEEDS_NEWEST and python != str(conftest.PYTHONS["newest"]):
        pytest.skip("this torch cannot make the mistake")
    status, kind, parts = PROGRAMS[mistake]
    (first, output), (_, second) = conftest.run_ranks(two_agents, python, "launch/mistakes.py", 2, mistake)
    assert first == status, output
    last = output.strip().splitlines()[-1]
    assert kind in last and [part for part in parts if part not in last] == [], output
    last = second.strip().splitlines()[-1] if mistake in SECOND else ""
    assert [part for part in SECOND.get(mistake, []) if part not in last] == [], second
