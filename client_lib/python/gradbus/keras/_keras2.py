"""Optimizers of Keras 2 (tf_keras) that exchange gradients: the new ones, the legacy ones, and loss scaling.

Gradients are exchanged where an optimizer computes them: in minimize(), which fit() calls, as in Horovod. Gradients
that a program computes itself are exchanged in apply_gradients(). It works eagerly and in tf.function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from .._errors import bad_argument
from ..tensorflow._exchange import are_exchanged, exchange_gradients, mark_exchanged, names_of
from ._exchange import OptimizerExchange, is_inside, prepare, specialize

_SCALERS = tf_keras.mixed_precision.LossScaleOptimizer

Pairs = list[tuple[Any, Any]]  # gradient, variable


def is_optimizer(optimizer: Any) -> bool:
    """One of tf_keras.optimizers or of tf_keras.optimizers.legacy."""
    return isinstance(optimizer, (tf_keras.optimizers.Optimizer, tf_keras.optimizers.legacy.Optimizer))


@dataclasses.dataclass
class Keras2Exchange(OptimizerExchange):
    """How one optimizer of Keras 2 combines its gradients with those of other ranks."""

    passes: int = 1  # backward passes for a step
    average: bool = False  # their mean instead of their sum

    def checked(self, gradients: list[Any], local: list[Any]) -> list[Any]:
        """The last gradient is NaN where loss scaling would skip the step because of a local gradient."""
        present = [number for number, gradient in enumerate(gradients) if gradient is not None]
        own = [tf.convert_to_tensor(gradient) for gradient in local if gradient is not None]
        if present and own and (isinstance(self.optimizer, _SCALERS) or is_scaled(self.optimizer)):
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in own])
            chosen = tf.convert_to_tensor(gradients[present[-1]])
            gradients[present[-1]] = chosen + tf.where(finite, tf.zeros((), chosen.dtype), float("nan"))
        return gradients

    def exchanged(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Those of all ranks."""
        names = names_of(variables)
        return exchange_gradients(gradients, names, self.prefix, self.settings, self.sparse_as_dense)


def is_scaled(optimizer: Any) -> bool:
    """Whether a plain LossScaleOptimizer is calling this optimizer."""
    kinds = (_SCALERS, *_SCALERS.__subclasses__())
    return any(is_inside(kind, optimizer) for kind in kinds)


class Passes:
    """The gradients of several passes added up on this rank, which are exchanged once. For one optimizer."""

    def __init__(self) -> None:
        with tf.init_scope():
            self.counter = tf.Variable(0, trainable=False, name="passes")
        self._sums: dict[Any, Any] = {}

    def add(self, pairs: Pairs, step: Keras2Exchange) -> Pairs:
        """The combined gradients in a pass that ends a step, and the sums so far in others."""
        variables = [variable for gradient, variable in pairs if gradient is not None]
        sums = [self._sum_of(variable) for variable in variables]
        for total, gradient in zip(sums, (gradient for gradient, _ in pairs if gradient is not None)):
            total.assign_add(tf.cast(tf.convert_to_tensor(gradient), total.dtype))
        self.counter.assign_add(1)

        def exchanged() -> list[Any]:
            parts = step.passes if step.average else 1
            made = step.combined([total.read_value() / parts for total in sums], variables)
            for total in sums:
                total.assign(tf.zeros_like(total))
            self.counter.assign(0)
            return made

        is_last = tf.equal(self.counter, step.passes)
        made = tf.cond(is_last, exchanged, lambda: [total.read_value() for total in sums]) if sums else []
        found = iter(made)
        return [(None if gradient is None else next(found), variable) for gradient, variable in pairs]

    def _sum_of(self, variable: Any) -> Any:
        key = variable.ref()
        if key not in self._sums:
            with tf.init_scope():
                self._sums[key] = tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)
        return self._sums[key]

    def step(self, optimizer: Any, variables: Sequence[Any], apply: Callable[[], Any]) -> Any:
        """Applies gradients in a pass that ends a step. ``iterations`` counts passes, as in Horovod."""
        with tf.init_scope():
            prepare(optimizer, variables)

        def applied() -> Any:
            apply()
            return optimizer.iterations.read_value()

        return tf.cond(tf.equal(self.counter, 0), applied, lambda: optimizer.iterations.assign_add(1).read_value())


def distribute(step: Keras2Exchange) -> None:
    """Gives an optimizer the members that exchange. Its class keeps its name, and saved models have the plain one."""
    kind = type(step.optimizer)
    members: dict[str, Any] = {
        "_gradbus_distributed": True,
        "_gradbus_step": step,
        "_allreduce": _allreduce,
        "apply_gradients": _apply_of(kind, step),
        "register_local_var": _register_local_var,
    }
    for name in ("compute_gradients", "_compute_gradients"):  # Horovod has both for both
        members[name] = _compute_of(kind)
    if hasattr(kind, "get_gradients"):
        members["get_gradients"] = _get_gradients_of(kind)
    if not hasattr(kind, "_aggregate_gradients"):
        members["_aggregate_gradients"] = lambda self, pairs: self.aggregate_gradients(pairs)
    specialize(step.optimizer, members)


def accumulate(optimizer: Any, passes: int, average: bool) -> None:
    """Horovod's backward_passes_per_step and average_aggregated_gradients of a distributed optimizer."""
    if not tf.executing_eagerly():
        raise bad_argument(
            "DistributedOptimizer: backward_passes_per_step in a graph of tf.compat.v1, without its own variables",
            "call tf.compat.v1.enable_eager_execution(), or add gradients up in the graph",
        )
    step = optimizer._gradbus_step
    step.passes, step.average = passes, average
    optimizer.__dict__["_agg_helper"] = Passes()  # Horovod's name


def _passes_of(optimizer: Any) -> Passes:
    made: Passes = optimizer.__dict__.get("_agg_helper") or optimizer.__dict__.setdefault("_agg_helper", Passes())
    return made  # from_config() makes an optimizer without any


def hidden_variables(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """Those that variables() leaves out: the scale of the loss, learning rates, and gradients of passes before a step.

    ``variables``: of the model.
    """
    found = [*getattr(getattr(optimizer, "_loss_scale", None), "_weights", {}).values()]
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    legacy = getattr(inner, "_hyper", {})
    hypers = [getattr(inner, "_learning_rate", None), *(legacy[name] for name in sorted(legacy))]
    found += [one for one in hypers if isinstance(one, tf.Variable)]
    step = getattr(optimizer, "_gradbus_step", None)
    if step is not None and step.passes > 1:
        passes = _passes_of(optimizer)
        found += [passes.counter, *map(passes._sum_of, variables)]
    return found


def _allreduce(self: Any, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:  # noqa: A002
    """The gradients of all ranks. apply_gradients() will not exchange them again."""
    step = self._gradbus_step
    pairs = list(zip(grads, vars))
    if step.passes > 1:
        made = [gradient for gradient, _ in _passes_of(self).add(pairs, step)]
    else:
        made = step.combined(grads, vars)
    self.__dict__["_gradbus_computed"] = True
    return mark_exchanged(made)


def _register_local_var(self: Any, var: Any) -> None:
    """Makes a variable one of this rank, as those of local_layers."""
    self._gradbus_step.local_variables.add(id(var))


def _compute_of(kind: Any) -> Any:
    is_legacy = hasattr(kind, "_compute_gradients")

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(self: Any, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
        """(gradient of all ranks, variable) of each variable."""
        if isinstance(grad_loss, tf.GradientTape):  # the third argument of new optimizers
            grad_loss, tape = None, grad_loss
        if is_legacy:
            pairs = kind._compute_gradients(self, loss, var_list, grad_loss, tape)
        else:
            pairs = kind.compute_gradients(self, loss, var_list, tape)
        variables = [variable for _, variable in pairs]
        return list(zip(self._allreduce([gradient for gradient, _ in pairs], variables), variables))

    return compute_gradients


def _get_gradients_of(kind: Any) -> Any:
    def get_gradients(self: Any, loss: Any, params: Any) -> list[Any]:
        """In a graph of tf.compat.v1: the gradients of all ranks."""
        made: list[Any] = self._allreduce(kind.get_gradients(self, loss, params), tf.nest.flatten(params))
        return made

    return get_gradients


def _apply_of(kind: Any, step: Keras2Exchange) -> Any:
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(self: Any, grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
        """Steps. Gradients that this optimizer or a tape of Gradbus has not exchanged are exchanged before."""
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        if not _are_exchanged(self, pairs, options):
            pairs = list(zip(self._allreduce([gradient for gradient, _ in pairs], variables), variables))
        self.__dict__["_gradbus_computed"] = False

        def apply() -> Any:
            return kind.apply_gradients(self, pairs, *arguments, **options)

        return apply() if step.passes == 1 or not pairs else _passes_of(self).step(self, variables, apply)

    return apply_gradients


def _are_exchanged(optimizer: Any, pairs: Pairs, options: dict[str, Any]) -> bool:
    """By compute_gradients(), whose results a program may have changed, or elsewhere, as marks and options say."""
    if optimizer.__dict__.get("_gradbus_computed") or are_exchanged([one for one, _ in pairs]):
        return True
    if is_scaled(optimizer):
        raise bad_argument(
            "apply_gradients() of a LossScaleOptimizer around a distributed optimizer, which skips steps on one rank",
            "pass the LossScaleOptimizer to DistributedOptimizer(), or call minimize() instead",
        )
    return options.get("skip_gradients_aggregation", False) or not options.get("experimental_aggregate_gradients", True)
