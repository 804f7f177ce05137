"""Gradbus in Ray Train: the workers of a TorchTrainer become the ranks of a job.

    from gradbus.ray import TorchConfig
    trainer = TorchTrainer(train, torch_config=TorchConfig(), scaling_config=ScalingConfig(num_workers=4))

Each node of the Ray cluster needs an agent. In ``train``, both ``gradbus.init()`` and the process group of
``torch.distributed`` (its backend is "gradbus") work. See docs/how-to/use-ray.md.
"""

from ._torch_config import TorchConfig

__all__ = ["TorchConfig"]
