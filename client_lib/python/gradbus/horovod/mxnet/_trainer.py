"""DistributedTrainer for Gluon and DistributedOptimizer for Module, with Horovod's arguments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import mxnet as mx

from ... import mxnet as _gradbus
from ..._ops import Average
from ..._process_sets import ProcessSet, global_process_set
from ...mxnet._trainer import LocalParameters
from .._arguments import codec_of, is_own_compressor, mean_or_sum
from .compression import NoneCompressor


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc,unused-ignore]
    """An optimizer whose updates use the mean of all ranks' gradients, for Module and for own loops.

    All ranks make the same updates in the same order. Attributes are those of the given optimizer, so a new
    ``rescale_grad`` or learning rate works. Predivision and groups change nothing. On ranks outside of the
    process set it updates alone.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        mean_or_sum("DistributedOptimizer", Average, gradient_predivide_factor)
        self.__dict__.update(_optimizer=optimizer, _process_set=process_set)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_optimizer" not in self.__dict__:  # as while it is copied
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._optimizer, name, value)

    def create_state(self, index: Any, weight: Any) -> Any:
        """That of the given optimizer."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """That of the given optimizer."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """One update of one parameter, or of lists of them. ``grad`` holds the mean afterwards."""
        self._exchange(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As update(), with a copy of half-precision weights in float32 if the optimizer has one."""
        self._exchange(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def _exchange(self, index: Any, grad: Any) -> None:
        if not self._process_set.included() or self._process_set.size() == 1:
            return
        indices, gradients = (index, grad) if isinstance(index, (list, tuple)) else ([index], [grad])
        name = f"update/{indices[0]}:{indices[-1]}"
        _gradbus.grouped_allreduce_(list(gradients), name, Average, process_set=self._process_set)

    def set_learning_rate(self, lr: float) -> None:
        """That of the given optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """That of the given optimizer."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """That of the given optimizer."""
        self._optimizer.set_wd_mult(args_wd_mult)


class DistributedTrainer(_gradbus.DistributedTrainer):
    """A trainer of Gluon whose ``step()`` uses the mean of all ranks' gradients. Groups and prefixes change nothing.

    On ranks outside of the process set it steps alone. An own compressor runs on the ranks, in step().
    A DistributedOptimizer counts as the one that it was made of.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        compression: Any = NoneCompressor,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
        op: int = Average,
    ) -> None:
        chosen = mean_or_sum("DistributedTrainer", op, gradient_predivide_factor)
        self._compressor = compression if is_own_compressor(compression) else None
        codec = codec_of("DistributedTrainer", NoneCompressor if self._compressor else compression)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn("DistributedTrainer exchanges gradients itself; pass a plain optimizer", stacklevel=2)
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params, chosen, codec, process_set)

    def _local_parameters(self) -> LocalParameters:
        is_member = self._settings.process_set.included()
        return super()._local_parameters() if is_member and self._compressor is None else ([], {})

    def _allreduce_grads(self) -> None:
        if not self._settings.process_set.included():
            return
        if self._compressor is None:
            super()._allreduce_grads()
            return
        gradients = [gradient for _, gradient in self._gradients()]
        pairs = [self._compressor.compress(gradient) for gradient in gradients]
        results = _gradbus.grouped_allreduce(
            [sent for sent, _ in pairs], self._prefix, self._settings.op, process_set=self._settings.process_set
        )
        for gradient, result, (_, context) in zip(gradients, results, pairs):
            gradient[:] = self._compressor.decompress(result, context)
