"""DistributedOptimizer, under the name that it has in ``horovod.torch.optimizer``."""

from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
