"""SyncBatchNorm, under the name that it has in ``horovod.torch.sync_batch_norm``."""

from ._sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
