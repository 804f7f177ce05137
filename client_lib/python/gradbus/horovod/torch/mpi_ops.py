"""The operations, under the name that they have in ``horovod.torch.mpi_ops``."""

from . import *  # noqa: F403
