"""The functions on variables and objects, with the names that they have in ``horovod.tensorflow.functions``."""

from ._variables import allgather_object, broadcast_object, broadcast_object_fn, broadcast_variables

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]
