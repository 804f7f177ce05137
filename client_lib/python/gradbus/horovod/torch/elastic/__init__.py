"""Elastic training with Horovod's names: ``hvd.elastic.run``, ``TorchState`` and ``ElasticSampler``.

The job survives the loss of an agent or a link, with the same processes. The number of ranks never changes.
"""

from ...common.elastic import ObjectState, State, run, run_fn
from ..mpi_ops import init, shutdown
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "init", "run", "run_fn", "shutdown"]
