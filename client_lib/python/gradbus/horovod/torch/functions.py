"""The functions on models and objects, under the name that they have in ``horovod.torch.functions``."""

from . import *  # noqa: F403
