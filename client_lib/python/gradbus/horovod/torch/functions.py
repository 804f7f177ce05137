"""The functions on models and objects, with the names that they have in ``horovod.torch.functions``."""

from ..._objects import allgather_object, broadcast_object
from ._parameters import broadcast_optimizer_state, broadcast_parameters

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]
