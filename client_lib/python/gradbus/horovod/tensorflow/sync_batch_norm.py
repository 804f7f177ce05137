"""SyncBatchNormalization, under the name that it has in ``horovod.tensorflow.sync_batch_norm``."""

from ._batch_norm import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
