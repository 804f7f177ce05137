"""Trains the digits classifier with Ray Train, whose workers gradbus.ray.TorchConfig makes the ranks of a job.

    GRADBUS_SOCKET=/run/gradbus/agent.sock python examples/ray/digits.py --workers 4     # with an agent that runs

The job's compression applies, because the model has the hook of Gradbus.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
EXAMPLES = str(pathlib.Path(__file__).resolve().parents[1])
sys.path.insert(0, EXAMPLES)

import ray  # noqa: E402
from gradbus.ray import TorchConfig  # noqa: E402
from ray.train import RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer  # noqa: E402

from common import plain_digits  # noqa: E402


def train(config: dict) -> None:
    """One worker."""
    sys.path.insert(0, config["examples"])
    import gradbus.torch as gradbus
    import torch
    from ray.train.torch import prepare_model

    from common import plain_digits, torch_digits

    arguments = config["arguments"]
    gradbus.init()
    bare = torch_digits.build_model(arguments, gradbus.rank())
    model = prepare_model(bare)
    if gradbus.size() > 1:  # a worker alone has no DistributedDataParallel
        model.register_comm_hook(None, gradbus.hook())
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    for images, labels in plain_digits.batches(arguments, gradbus.rank(), gradbus.size()):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels)).backward()
        optimizer.step()
    result = plain_digits.report(arguments, gradbus, torch_digits.parameters_of(bare))
    if gradbus.rank() == 0:
        (pathlib.Path(config["folder"]) / "result.json").write_text(json.dumps(result))


def main() -> None:
    """The driver."""
    parser = plain_digits.make_parser("Ray Train")
    parser.add_argument("--workers", type=int, default=2, help="ranks of the job")
    arguments = parser.parse_args()
    ray.init(num_cpus=arguments.workers, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    here = ("GRADBUS_SOCKET", "GRADBUS_COMPRESSION")
    environment = {name: os.environ[name] for name in here if name in os.environ}
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config={"examples": EXAMPLES, "arguments": arguments, "folder": folder},
            torch_config=TorchConfig(job="digits", environment=environment),
            scaling_config=ScalingConfig(num_workers=arguments.workers),
            run_config=RunConfig(storage_path=folder),
        )
        trainer.fit()
        result = (pathlib.Path(folder) / "result.json").read_text()
    ray.shutdown()
    print(result)


if __name__ == "__main__":
    main()
