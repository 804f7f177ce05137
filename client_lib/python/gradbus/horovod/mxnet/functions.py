"""Objects on all ranks, with the names that they have in ``horovod.mxnet.functions``."""

from ...mxnet import allgather_object, broadcast_object

__all__ = ["allgather_object", "broadcast_object"]
