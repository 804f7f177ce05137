"""DistributedOptimizer with Horovod's arguments. The work is done by that of ``gradbus.torch``."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..._errors import bad_argument
from ..._ops import Adasum, Average, ReduceOp, checked_factor
from ..._process_sets import ProcessSet, global_process_set
from ..._session import is_initialized
from ...torch import DistributedOptimizer as make_distributed
from ...torch._arguments import check_positive
from ...torch._rebuild import change_passes
from ...torch._sharded.optimizer import ShardedOptimizerBase
from .._arguments import checked_compressor, codec_of, is_own_compressor, mean_or_sum, number_of_groups
from .._compression import NoneCompressor
from .._join import exchanges_with_zeros
from ._adasum import make_adasum
from ._own_compressor import make_compressed
from ._rounds import OptimizerRounds

_VERB = "DistributedOptimizer"
Groups = Sequence[Sequence[torch.Tensor]]


def DistributedOptimizer(  # used like a class, hence its name
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Any]] | None = None,
    compression: Any = NoneCompressor,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Groups | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    **options: Any,
) -> torch.optim.Optimizer:
    """Makes the optimizer step on the mean or sum of all ranks' gradients, and returns it.

    Args:
        optimizer: any torch.optim.Optimizer.
        named_parameters: ``model.named_parameters()``, for readable errors.
        compression: hvd.Compression.none or fp16, or a text of Gradbus. It applies between nodes only. With an own
            compressor, gradients are exchanged in step() or synchronize(), not during backward().
        backward_passes_per_step: backward() calls whose gradients add up locally, before their exchange.
        op: hvd.Average, hvd.Sum, or hvd.Adasum, which combines the changes of the ranks' own steps.
        gradient_predivide_factor: Horovod divides by it before the sum, so that half precision does not overflow.
            The factor changes nothing here: without compression a mean overflows only where it does itself. With
            ``fp16`` between nodes it overflows where the sum of the ranks is above 65504; ``"bf16"`` has no such limit.
        num_groups, groups: a number of groups sets the bytes that are exchanged together. Lists of tensors change
            nothing, with a warning, because Gradbus forms its own buckets. Results do not depend on groups.
        sparse_as_dense: sparse gradients are made dense in either case, with a warning. Pass
            ``sparse_parameters=[...]`` to exchange rows.
        process_set: the ranks that share this model. On other ranks the optimizer steps alone.
        options: more arguments of gradbus.torch.DistributedOptimizer(), such as ``mode=``.

    Models that differ are a warning in the first step, because Horovod trains them. ``replicas="equal"`` makes it an
    error.
    After the last backward() before a step, ``.grad`` is the result. So synchronize() has nothing to wait for.
    Raises InvalidError for wrong arguments, and what the one of gradbus.torch raises.
    """
    if op is Adasum:
        return _with_adasum(
            optimizer, compression, backward_passes_per_step, gradient_predivide_factor, process_set, options
        )
    chosen = mean_or_sum(_VERB, op, gradient_predivide_factor)
    if is_own_compressor(compression):
        return _with_own_compressor(
            optimizer, compression, backward_passes_per_step, chosen, process_set, (num_groups, groups), options
        )
    codec = codec_of(_VERB, compression)
    if is_initialized() and not process_set.included():
        return _alone(optimizer)
    options.setdefault("replicas", "any")
    bucket_bytes = _bucket_bytes(optimizer, number_of_groups(_VERB, num_groups, groups, torch.Tensor))
    if bucket_bytes is not None:
        options.setdefault("bucket_bytes", bucket_bytes)
    distributed: Any = make_distributed(
        optimizer, named_parameters, backward_passes_per_step, op=chosen, process_set=process_set,
        compression=codec, **options,
    )  # fmt: skip
    if not isinstance(distributed, ShardedOptimizerBase):
        exchanges_with_zeros(OptimizerRounds(distributed), process_set)
        state = distributed._gradbus
        state.settings = dataclasses.replace(state.settings, warns_after_synchronize=True)
        distributed._parameter_names = {parameter: name for (name, parameter), _ in distributed._gradbus.parameters}
    distributed.set_backward_passes_per_step = _change_passes_of(distributed)
    return distributed  # type: ignore[no-any-return]


def _with_adasum(
    optimizer: torch.optim.Optimizer, compression: Any, passes: int, predivide: float, process_set: ProcessSet,
    options: dict[str, Any],
) -> torch.optim.Optimizer:  # fmt: skip
    if checked_factor(predivide, "gradient_predivide_factor", _VERB) != 1 or options:
        named = ", ".join(options) or "gradient_predivide_factor"
        raise bad_argument(f"{_VERB}: {named}= does not go with op=hvd.Adasum", "leave it out")
    if is_initialized() and not process_set.included():
        return _alone(optimizer)
    return make_adasum(optimizer, checked_compressor(_VERB, compression), passes, process_set)


def _with_own_compressor(
    optimizer: torch.optim.Optimizer, compressor: Any, passes: int, op: ReduceOp, process_set: ProcessSet,
    groups: tuple[int, Any], options: dict[str, Any],
) -> torch.optim.Optimizer:  # fmt: skip
    number_of_groups(_VERB, *groups, torch.Tensor)
    if options:
        raise bad_argument(f"{_VERB}: {', '.join(options)}= does not go with an own compressor", "leave it out")
    if is_initialized() and not process_set.included():
        return _alone(optimizer)
    return make_compressed(optimizer, compressor, passes, op, process_set)


def _bucket_bytes(optimizer: torch.optim.Optimizer, groups: int) -> int | None:
    """Bytes of each of so many groups; None: Gradbus decides."""
    if groups == 0:
        return None
    total: int = sum(
        p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"] if p.requires_grad
    )
    return max(1, math.ceil(total / groups))


def _alone(optimizer: Any) -> torch.optim.Optimizer:
    """On a rank that is not in the process set: steps are local, and Horovod's methods do nothing."""
    optimizer.synchronize = _nothing
    optimizer.skip_synchronize = contextlib.nullcontext
    optimizer.set_backward_passes_per_step = _nothing
    return optimizer  # type: ignore[no-any-return]


def _nothing(*_: Any) -> None:
    """On a rank that exchanges no gradients."""


def _change_passes_of(optimizer: torch.optim.Optimizer) -> Callable[[int], None]:
    """A method of this optimizer, which it can hold without holding itself."""
    reference = weakref.ref(optimizer)

    def set_backward_passes_per_step(passes: int) -> None:
        """From now on so many backward() calls come before a step. All ranks call it between two steps."""
        check_positive("backward_passes_per_step", passes)
        its: Any = reference()
        if isinstance(its, ShardedOptimizerBase):
            raise bad_argument("set_backward_passes_per_step: shard=True has a fixed number", "leave shard= out")
        change_passes(its, passes)

    return set_backward_passes_per_step
