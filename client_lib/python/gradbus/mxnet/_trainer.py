"""The trainer of Gluon that steps on the gradients of all ranks, and the broadcast of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np

from .._errors import bad_argument
from .._gradients import Gradient, broadcast_arrays, exchange, new_prefix, settings_of, unique_names
from .._layout import DEFAULT_BUCKET_BYTES
from .._modes.array_shards import flush_shards, parameters_on_shards, step_on_shards
from .._modes.arrays import after_step, before_step, flush, local_numbers
from .._ops import Average
from .._process_sets import ProcessSet, global_process_set
from ._shards import ParametersOnShards

LocalParameters = tuple[list[tuple[str, Any]], dict[int, tuple[str, str]]]


def _only_one(arrays: list[Any], name: str) -> Any:
    if len(arrays) != 1:
        raise bad_argument(
            f"parameter '{name}' is on {len(arrays)} devices", "start one rank for each device, and use one context"
        )
    return arrays[0]


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc,unused-ignore]
    """Like mx.gluon.Trainer; ``step()`` uses the mean or sum of all ranks' gradients.

    Args:
        params, optimizer, optimizer_params: those of mx.gluon.Trainer.
        op: gradbus.Average or gradbus.Sum. ``step(batch_size)`` takes the batch of this rank.
        compression: a codec between nodes, such as "topk:ratio=0.01"; None: the policy of the job.
        process_set: the ranks that share this model.
        gradient_predivide_factor: Horovod's; it changes nothing.
        bucket_bytes: how much travels together.

    All ranks make their trainers in the same order. Raises InvalidError here and for sparse gradients, and
    MismatchError, PeerLostError or TimeoutError when gradients are exchanged.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Mapping[str, Any] | None = None,
        op: int = Average,
        compression: str | None = None,
        process_set: ProcessSet = global_process_set,
        gradient_predivide_factor: float = 1.0,
        bucket_bytes: int = DEFAULT_BUCKET_BYTES,
    ) -> None:
        settings = settings_of(
            "DistributedTrainer", op, compression, process_set, gradient_predivide_factor, bucket_bytes)
        self._settings = dataclasses.replace(settings, has_parameters=True)
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._prefix = new_prefix("mxnet")

    def _allreduce_grads(self) -> None:
        """Gluon calls it in step() and allreduce_grads()."""
        named = self._gradients()
        if not named:
            return
        arrays = [gradient.asnumpy() for _, gradient in named]
        names = unique_names([name for name, _ in named])
        exchange(list(zip(names, arrays)), self._prefix, self._settings, arrays)
        for (_, gradient), array in zip(named, arrays):
            gradient[:] = array

    def _update(self, ignore_stale_grad: bool = False) -> None:
        """Gluon calls it in step() and update(). Modes that keep gradients local exchange the parameters around it."""
        local, on_shards = self._local_parameters()
        step = ParametersOnShards(self, on_shards, ignore_stale_grad) if on_shards else None
        self._exchange_parameters(local, before_step)
        super()._update(ignore_stale_grad)
        if step is not None:
            made = [np.empty_like(array) for array in step.before]
            step_on_shards(step.gradients, step.before, step.rate, self._prefix, self._settings, made)
            for data, array in zip(step.targets, made):
                data[:] = array
        self._exchange_parameters(local, after_step)

    def flush(self) -> None:
        """In modes that exchange parameters or have them on shards: makes those of all ranks equal.

        All ranks call it.
        """
        local, on_shards = self._local_parameters()
        self._exchange_parameters(local, flush)
        named = [(name, self._params[number].list_data()[0]) for number, (name, _) in on_shards.items()]
        self._exchange_parameters(named, flush_shards)

    def _local_parameters(self) -> LocalParameters:
        """Those that ranks exchange, and by number: the names and modes of those that shards hold."""
        trained = [number for number, parameter in enumerate(self._params) if parameter.grad_req != "null"]
        parameters = [self._params[number] for number in trained]
        named = [(parameter.name, _only_one(parameter.list_data(), parameter.name)) for parameter in parameters]
        names = unique_names([name for name, _ in named])
        described = [Gradient(name, array.shape, np.dtype(array.dtype).name) for name, (_, array) in zip(names, named)]
        chosen = local_numbers(described, self._prefix, self._settings)
        found = parameters_on_shards(described, self._prefix, self._settings)
        on_shards = {trained[number]: (names[number], mode) for number, mode in found.items()}
        return [(names[number], named[number][1]) for number in chosen], on_shards

    def _exchange_parameters(self, named: list[tuple[str, Any]], what: Any) -> None:
        if not named:
            return
        arrays = [data.asnumpy() for _, data in named]
        what([(name, array) for (name, _), array in zip(named, arrays)], self._prefix, self._settings, arrays)
        for (_, data), array in zip(named, arrays):
            data[:] = array

    def _gradients(self) -> list[tuple[str, Any]]:
        """Of the parameters that are trained. Refuses sparse ones, and parameters on several devices."""
        trained = [parameter for parameter in self._params if parameter.grad_req != "null"]
        named = [(parameter.name, _only_one(parameter.list_grad(), parameter.name)) for parameter in trained]
        for name, gradient in named:
            if gradient.stype != "default":
                raise bad_argument(
                    f"parameter '{name}' has a {gradient.stype} gradient", "make the layer with sparse_grad=False"
                )
        return named


def broadcast_parameters(
    params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set, name: str = "parameters"
) -> None:
    """Sets all ranks' parameters to the root's.

    Args:
        params: what ``net.collect_params()`` returns, or a mapping of names to arrays. All must have their shapes: call
            the net once before, or give its layers ``in_units`` or ``in_channels``.

    Raises InvalidError and MismatchError.
    """
    if not hasattr(params, "items"):
        raise bad_argument(f"broadcast_parameters: a {type(params).__name__}", "pass net.collect_params()")
    targets = [(key, _target(key, value)) for key, value in sorted(params.items())]
    arrays = [(key, target.asnumpy()) for key, target in targets]
    for (_, target), array in zip(targets, broadcast_arrays(name, arrays, root_rank, process_set)):
        target[:] = array


def _target(name: str, value: Any) -> Any:
    """The array of a parameter."""
    if not isinstance(value, mx.gluon.Parameter):
        return value
    try:
        return _only_one(value.list_data(), name)
    except mx.gluon.parameter.DeferredInitializationError:
        raise bad_argument(
            f"broadcast_parameters: parameter '{name}' has no shape yet", "call the net once before, with any batch"
        ) from None
