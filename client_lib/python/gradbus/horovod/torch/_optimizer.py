"""DistributedOptimizer with Horovod's arguments. The work is done by that of ``gradbus.torch``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import torch

from ..._errors import bad_argument
from ..._ops import Adasum, Average, checked_factor
from ..._process_sets import ProcessSet, global_process_set
from ..._session import is_initialized
from ...torch import DistributedOptimizer as make_distributed
from .._arguments import checked_compressor, codec_of, mean_or_sum, number_of_groups
from .._compression import NoneCompressor
from .._join import exchanges_with_zeros
from ._adasum import make_adasum
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
        compression: hvd.Compression.none or fp16, or a text of Gradbus. It applies between nodes only.
        backward_passes_per_step: backward() calls whose gradients add up locally, before their exchange.
        op: hvd.Average, hvd.Sum, or hvd.Adasum, which combines the changes of the ranks' own steps.
        gradient_predivide_factor: Horovod divides by it before the sum, so that half precision does not overflow.
            A mean of Gradbus overflows only where the mean itself does, so the factor changes nothing.
        num_groups, groups: a number of groups sets the bytes that are exchanged together. Lists of tensors change
            nothing, with a warning, because Gradbus forms its own buckets. Results do not depend on groups.
        sparse_as_dense: sparse gradients are made dense in either case, with a warning. Pass
            ``sparse_parameters=[...]`` to exchange rows.
        process_set: the ranks that share this model. On other ranks the optimizer steps alone.
        options: more arguments of gradbus.torch.DistributedOptimizer(), such as ``mode=``.

    Models that differ are a warning in the first step, because Horovod trains them. ``replicas="equal"`` makes it an
    error.
    After the last backward() before a step, ``.grad`` is the result. So synchronize() has nothing to wait for.
    Raises InvalidError for own compressors and other arguments, and what the one of gradbus.torch raises.
    """
    if op is Adasum:
        return _with_adasum(
            optimizer, compression, backward_passes_per_step, gradient_predivide_factor, process_set, options
        )
    chosen = mean_or_sum(_VERB, op, gradient_predivide_factor)
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
    exchanges_with_zeros(OptimizerRounds(distributed), process_set)
    distributed._parameter_names = {parameter: name for (name, parameter), _ in distributed._gradbus.parameters}
    distributed.set_backward_passes_per_step = _refuse_new_number_of_passes
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


def _refuse_new_number_of_passes(passes: int) -> NoReturn:
    raise bad_argument(
        f"set_backward_passes_per_step: {passes} passes cannot replace the number of an optimizer that is in use",
        "pass backward_passes_per_step= to hvd.DistributedOptimizer()",
    )
