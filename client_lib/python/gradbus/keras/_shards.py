"""The parameters of an optimizer of Keras 3 that parameter-server shards hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from .._errors import InvalidError, bad_argument
from .._gradients import Settings
from .._modes.array_shards import name_optimizer_error, step_on_shards
from .._modes.kinds import said_in, says_optimizer

# Shards would step without these.
_IGNORED = ("clipnorm", "clipvalue", "global_clipnorm", "use_ema", "gradient_accumulation_steps", "loss_scale_factor")


def check(optimizer: Any, variables: Sequence[Any], modes: Iterable[str]) -> None:
    """Raises InvalidError for what shards would step without, and where a mode does not say how they step.

    The learning rate goes with each gradient. ``modes``: the texts of those of the variables.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise _ignored_error("LossScaleOptimizer", "use mode sync, or bfloat16")
    for option in _IGNORED:
        if getattr(optimizer, option, None):
            raise _ignored_error(f"{option}={getattr(optimizer, option)}", "leave it out, or use mode sync")
    for variable in variables:
        if variable.constraint is not None or getattr(variable, "overwrite_with_gradient", False):
            raise _ignored_error(f"the constraint of '{variable.path}'", "leave it out, or use mode sync")
    for text in set(modes):
        _check_mode(optimizer, text)


def _check_mode(optimizer: Any, text: str) -> None:
    if optimizer.weight_decay and "weight_decay" not in said_in(text):
        option = f"weight_decay={optimizer.weight_decay}"
        raise _ignored_error(option, f"say it in the mode ({text},{option}), or leave it out")
    if not says_optimizer(text) and not _is_plain(optimizer):
        raise name_optimizer_error(f"shards do not step as this {type(optimizer).__name__} of Keras", text)


def _is_plain(optimizer: Any) -> bool:
    """Its step is that of the shards' sgd. With momentum, Keras has the learning rate inside."""
    kind = keras.optimizers.SGD
    return isinstance(optimizer, kind) and type(optimizer).update_step is kind.update_step and not optimizer.momentum


def _ignored_error(what: str, next_step: str) -> InvalidError:
    return bad_argument(f"shards hold the parameters, and step without {what}", next_step)


def stepped(
    optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any], names: list[str], prefix: str,
    settings: Settings,
) -> list[Any]:  # fmt: skip
    """The variables after the shards' step, by Keras's backend. A gradient may be None: zeros."""
    zeros = keras.ops.zeros_like
    given = [zeros(one) if gradient is None else gradient for one, gradient in zip(variables, gradients)]
    values = [keras.ops.convert_to_tensor(variable) for variable in variables]
    rate = keras.ops.cast(keras.ops.convert_to_tensor(optimizer.learning_rate), "float32")
    if keras.backend.backend() == "tensorflow":
        from ..tensorflow._exchange import exchange_with_shards

        return exchange_with_shards(given, values, rate, names, prefix, settings)
    if keras.backend.backend() == "jax":
        from ..jax._optimizer import stepped_on_shards

        return stepped_on_shards(names, given, values, rate, prefix, settings)
    return _stepped_on_torch(given, values, float(rate), names, prefix, settings)


def _stepped_on_torch(
    gradients: list[Any], values: list[Any], rate: float, names: list[str], prefix: str, settings: Settings
) -> list[Any]:
    import torch

    given, before = ([tensor.detach().cpu().numpy() for tensor in tensors] for tensors in (gradients, values))
    made = [np.empty_like(array) for array in before]
    step_on_shards(list(zip(names, given)), before, rate, prefix, settings, made)
    return [torch.from_numpy(array).to(value.device) for array, value in zip(made, values)]
