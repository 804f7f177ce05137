"""Ray Train on a local cluster: workers fail once, start again, and train the digits with both interfaces.

    ray_train.py SOCKET FILE      writes the parameters to FILE
"""

import json
import os
import pathlib
import sys

os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_TRAIN_V2_ENABLED="1", RAY_AUTH_MODE="disabled")
import pytest  # noqa: E402
import ray  # noqa: E402
from gradbus.ray import TorchConfig  # noqa: E402
from ray.train import FailureConfig, RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer  # noqa: E402

EXAMPLES = str(pathlib.Path(__file__).resolve().parents[4] / "examples")
SOCKET, FILE = sys.argv[1:]
WORKERS = 2


def train(config):
    """Of one worker."""
    sys.path[:0] = [config["examples"], config["examples"] + "/digits"]
    import gradbus
    import torch
    import torch.distributed as dist
    import train as digits

    from common import backends

    place = ray.train.get_context()
    total = torch.tensor([place.get_world_rank() + 1.0])
    dist.all_reduce(total)
    assert dist.get_backend() == "gradbus" and total.item() == 3
    gradbus.init()
    assert (gradbus.rank(), gradbus.size()) == (place.get_world_rank(), place.get_world_size())
    assert os.environ["GRADBUS_COMPRESSION"] == "none"
    job = gradbus.broadcast_object(os.environ["GRADBUS_JOB"])
    assert job == os.environ["GRADBUS_JOB"] and job.startswith("digits-")
    first = pathlib.Path(config["file"] + ".first")
    if not first.exists():
        gradbus.barrier()
        if gradbus.rank() == 0:
            first.write_text(job)
        gradbus.barrier()
        raise RuntimeError("this attempt fails on purpose")
    arguments = digits.parse_arguments(["--epochs", "2", "--save-params", config["file"]])
    result = digits.run(backends.connect(arguments), arguments)
    assert first.read_text() != job
    if gradbus.rank() == 0:
        pathlib.Path(config["file"] + ".json").write_text(json.dumps(result))


for wrong in ({"GRADBUS_RANK": "1"}, {"PATH": "/"}):
    with pytest.raises(ValueError, match="environment has .* | next: "):
        TorchConfig(environment=wrong)

ray.init(num_cpus=WORKERS, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
config = TorchConfig(job="digits", environment={"GRADBUS_SOCKET": SOCKET, "GRADBUS_COMPRESSION": "none"})
trainer = TorchTrainer(
    train,
    train_loop_config={"examples": EXAMPLES, "file": FILE},
    torch_config=config,
    scaling_config=ScalingConfig(num_workers=WORKERS),
    run_config=RunConfig(storage_path=str(pathlib.Path(FILE).parent), failure_config=FailureConfig(max_failures=1)),
)
trainer.fit()
result = json.loads(pathlib.Path(FILE + ".json").read_text())
assert result["world_size"] == WORKERS and result["ranks_identical"], result
ray.shutdown()
sys.stdout.write("ok\n")
