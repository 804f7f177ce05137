"""What a type checker says about programs that use the package: mypy on a good and on a bad one."""

import pytest
import rig as rigs
from conftest import PYTHONS, clean_environment

pytestmark = pytest.mark.timeout(300)

GOOD = """
import gradbus.torch as gradbus
import torch


def flush(optimizer: gradbus.DistributedOptimizerBase) -> int:
    return optimizer.flush()


model = torch.nn.Linear(2, 2)
optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
optimizer.zero_grad(set_to_none=True)
optimizer.synchronize()
with optimizer.skip_synchronize():
    optimizer.step()
optimizer.add_param_group({"params": []})
rates: list[float] = [group["lr"] for group in optimizer.param_groups]
ages: dict[str, int] = optimizer.staleness()
steps: int = flush(optimizer)
scaler = torch.amp.GradScaler()
scaler.unscale_(optimizer)
loss: torch.Tensor = gradbus.allreduce(torch.ones(2), "loss", op=gradbus.Sum)
metric: float = gradbus.allreduce(0.5)
handle = gradbus.allreduce_async(torch.ones(2))
later: torch.Tensor = gradbus.synchronize(handle)
losses: list[torch.Tensor] = gradbus.grouped_allreduce([loss, later])
copied: torch.Tensor = gradbus.broadcast(loss, root_rank=0)
shard: torch.Tensor = gradbus.reducescatter(torch.ones(4))
"""

# Each line has one mistake.
BAD = """
import gradbus as plain_module, gradbus.torch as gradbus
import torch
model = torch.nn.Linear(2, 2)
plain = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = gradbus.DistributedOptimizer(plain)
optimizer.flsuh()
steps: str = optimizer.flush()
optimizer.zero_grad(set_to_none="yes")
gradbus.DistributedOptimizer(plain, model.parameters())
gradbus.DistributedOptimizer(plain, backward_passes_per_step="2")
gradbus.DistributedOptimizer(plain, wiat="step")
gradbus.DistributedOptimizer(model)
gradbus.allreduce(torch.ones(2), False)
gradbus.allreduce(torch.ones(2), name=3)
gradbus.allreduce(torch.ones(2), opp=gradbus.Sum)
gradbus.allreduce(torch.ones(2)).no_method()
gradbus.synchronize(torch.ones(2))
gradbus.synchronize(gradbus.allreduce_async(torch.ones(2))).no_method()
gradbus.init([0, 1])
plain_module.alreduce(torch.ones(2))
"""
FIRST_MISTAKE = 7


def test_mypy_finds_every_mistake_and_no_other(run_program, tmp_path):
    python = PYTHONS["newest"]
    if not python.exists():
        pytest.skip(f"{python} is missing: run scripts/setup.sh")
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(GOOD)
    bad.write_text(BAD)
    cache = rigs.REPOSITORY / "build/mypy"
    command = [python, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", cache, good, bad]
    _, output = run_program([str(word) for word in command], env=clean_environment())
    found = sorted({int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line})
    wanted = list(range(FIRST_MISTAKE, BAD.count("\n") + 1))
    assert "good.py" not in output and found == wanted, output
    assert '"DistributedOptimizerBase" has no attribute "flsuh"' in output, output
