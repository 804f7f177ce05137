"""broadcast_parameters() with Horovod's arguments, also of parameters that have no shape yet."""

from __future__ import annotations

import types
from typing import Any

import mxnet as mx

from ... import mxnet as _gradbus
from ..._errors import bad_argument
from ..._process_sets import ProcessSet, global_process_set


def broadcast_parameters(
    params: Any, root_rank: int = 0, prefix: str | None = None, process_set: ProcessSet = global_process_set
) -> None:
    """Sets all ranks' parameters to the root's: those of ``net.collect_params()``, or a dict of arrays.

    Parameters without a shape are sent when a forward pass first gives them values. All ranks must make this pass.
    """
    if not hasattr(params, "items"):
        raise bad_argument(f"broadcast_parameters: a {type(params).__name__}", "pass net.collect_params()")
    name = f"{prefix or ''}parameters"
    waiting = {key for key, value in params.items() if _has_no_shape(value)}
    ready = {key: value for key, value in params.items() if key not in waiting}
    if ready or not waiting:
        _gradbus.broadcast_parameters(ready, root_rank, process_set, name)
    for key in waiting:
        _send_when_initialized(params[key], root_rank, process_set, f"{name}/{key}")


def _has_no_shape(value: Any) -> bool:
    if not isinstance(value, mx.gluon.Parameter):
        return False
    try:
        value.list_data()
    except mx.gluon.parameter.DeferredInitializationError:
        return True
    return False


def _send_when_initialized(parameter: Any, root_rank: int, process_set: ProcessSet, name: str) -> None:
    """Once: later initializations are this rank's own, for example when it loads a file."""
    initialize = type(parameter)._init_impl

    def initialize_and_send(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        del self._init_impl
        _gradbus.broadcast_parameters({name: self}, root_rank, process_set, name)

    parameter._init_impl = types.MethodType(initialize_and_send, parameter)
