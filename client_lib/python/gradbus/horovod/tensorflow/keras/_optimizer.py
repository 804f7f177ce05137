"""DistributedOptimizer with the arguments of ``horovod.tensorflow.keras``, which has more of them."""

from __future__ import annotations

from typing import Any

from ...._ops import Average
from ...._process_sets import ProcessSet, global_process_set
from ..._arguments import codec_of
from ...keras._optimizer import distributed
from ..compression import NoneCompressor


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer of Keras step on the mean or sum of all ranks' gradients, and returns it.

    Args:
        backward_passes_per_step: passes whose gradients are added up before a step. Keras 3 adds them up, and
            the gradients of each pass are exchanged. With Keras 2 their sum is exchanged once.
        average_aggregated_gradients: their mean instead of their sum.
        process_set: the ranks that share this model. On other ranks the optimizer steps alone.
        scale_local_gradients: those of variables given to register_local_var() are divided by the number of ranks.

    Further arguments and errors: gradbus.horovod.keras.DistributedOptimizer().
    """
    return distributed(
        optimizer, codec_of("DistributedOptimizer", compression), sparse_as_dense, op,
        gradient_predivide_factor, num_groups, groups, process_set, backward_passes_per_step,
        average_aggregated_gradients, None, scale_local_gradients,
    )  # fmt: skip
