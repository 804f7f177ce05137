"""Gradbus for PyTorch (1.13 and newer; tensors on the CPU or, staged, on a GPU).

    import torch, gradbus.torch as gradbus
    gradbus.init()
    optimizer = gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    gradbus.broadcast_parameters(model)

Everything of ``gradbus`` is here too; its operations take and return torch tensors.
"""

from .. import *  # noqa: F403
from .. import __all__ as _base
from .. import __version__ as __version__
from ._broadcast import broadcast_optimizer_state, broadcast_parameters
from ._comm_hook.hook import CommHook, hook
from ._elastic import ElasticState
from ._onebit_adam import OneBitAdam, ZeroOneAdam
from ._optimizer import DistributedOptimizer, DistributedOptimizerBase
from ._state.residual_state import reshard_compression_state
from ._state.training_state import TrainingState, state
from ._timeline import trace_layers

__all__ = [  # noqa: PLE0604
    *_base,
    "CommHook",
    "DistributedOptimizer",
    "DistributedOptimizerBase",
    "ElasticState",
    "OneBitAdam",
    "TrainingState",
    "ZeroOneAdam",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "hook",
    "reshard_compression_state",
    "state",
    "trace_layers",
]
