"""The parameters of a trainer of Gluon that parameter-server shards hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

from .._errors import InvalidError, bad_argument
from .._modes.array_shards import name_optimizer_error
from .._modes.kinds import said_in, says_optimizer


def check(trainer: Any, numbers: Sequence[int], modes: Sequence[str]) -> None:
    """Raises InvalidError for what shards would step without, and where a mode does not say how they step.

    The learning rate goes with each gradient. ``numbers``: of the trainer's parameters; ``modes``: their texts.
    """
    optimizer = trainer.optimizer
    if getattr(trainer, "_amp_loss_scaler", None) is not None:
        raise _ignored_error("the loss scaler of amp, which skips steps", "use mode sync")
    if optimizer.clip_gradient:
        raise _ignored_error(f"clip_gradient={optimizer.clip_gradient}", "leave it out, or use mode sync")
    for decay, text in zip(optimizer._get_wds(numbers), modes):
        if decay and "weight_decay" not in said_in(text):
            option = f"weight_decay={decay}"
            raise _ignored_error(f"wd={decay}", f"say it in the mode ({text},{option}), or leave it out")
    if len(set(optimizer._get_lrs(numbers))) > 1:
        raise _ignored_error("lr_mult, which differs between parameters", "leave it out, or use mode sync")
    for text in set(modes):
        if not says_optimizer(text) and not _is_plain(optimizer):
            raise name_optimizer_error(f"shards do not step as this {type(optimizer).__name__} of MXNet", text)


def _is_plain(optimizer: Any) -> bool:
    """Its step is that of the shards' sgd. With momentum, MXNet has the learning rate inside."""
    return type(optimizer) is mx.optimizer.SGD and not optimizer.momentum


def _ignored_error(what: str, next_step: str) -> InvalidError:
    return bad_argument(f"shards hold the parameters, and step without {what}", next_step)


class ParametersOnShards:
    """What shards need of one step of a trainer: taken before it, sent after it."""

    def __init__(self, trainer: Any, on_shards: dict[int, tuple[str, str]], ignores_stale: bool) -> None:
        """``on_shards``: by number of the trainer's parameters: the name and the mode."""
        self._trainer = trainer
        self._numbers = list(on_shards)
        check(trainer, self._numbers, [mode for _, mode in on_shards.values()])
        parameters = [trainer._params[number] for number in on_shards]
        # A stale gradient belongs to an earlier step.
        self.gradients = [
            (name, self._scaled(parameter, ignores_stale))
            for (name, _), parameter in zip(on_shards.values(), parameters)
        ]
        self.targets = [parameter.list_data()[0] for parameter in parameters]
        self.before = [data.asnumpy() for data in self.targets]

    def _scaled(self, parameter: Any, ignores_stale: bool) -> Any:
        is_stale = ignores_stale and not parameter.list_data()[0]._fresh_grad
        gradient = parameter.list_grad()[0].asnumpy()
        return gradient * gradient.dtype.type(0 if is_stale else self._trainer.optimizer.rescale_grad)

    @property
    def rate(self) -> float:
        """Of the step that the trainer has made: its count of steps decides."""
        return float(self._trainer.optimizer._get_lrs(self._numbers[:1])[0])
