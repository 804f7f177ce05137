"""Functions of NumPy arrays on tensors of TensorFlow: at once, or as an operation of the graph that is being traced."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph

from .._errors import bad_argument
from .._handles import standing_for_main_thread
from ._errors import as_tensorflow_errors

# Each operation that waits holds a thread. In a session of tf.compat.v1 TensorFlow chooses the order, so with a thread
# per core, ranks may wait for operations of each other that get none. TensorFlow reads this when it makes its threads.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "64")

Function = Callable[..., Sequence[Any]]


def run(function: Function, tensors: Sequence[Any], dtypes: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """What ``function`` makes of the tensors' values; ``shapes``: of the results, None where unknown.

    In a graph it is a stateful operation, so tf.function keeps the order of the program. Errors are those of Gradbus
    and of TensorFlow at once. In sessions of tf.compat.v1 they are TensorFlow's, with the same text.
    """
    if tf.executing_eagerly():
        with as_tensorflow_errors():
            made = function(*(np.asarray(tensor.numpy()) for tensor in tensors))
        return [tf.convert_to_tensor(result) for result in made]
    if GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        raise bad_argument(
            "this function is compiled by XLA (jit_compile), whose programs cannot call Gradbus",
            "pass jit_compile=False to tf.function() or model.compile()",
        )

    def on_arrays(*arrays: Any) -> Sequence[Any]:
        with standing_for_main_thread():
            return function(*map(np.asarray, arrays))

    results = tf.numpy_function(on_arrays, tensors, list(dtypes), stateful=True)
    for result, shape in zip(results, shapes):
        result.set_shape(shape)
    return list(results)


def in_turn(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results. In a graph of tf.compat.v1 each operation waits for the one before.

    Otherwise TensorFlow chooses an order, another one on each rank, and all of its threads may wait.
    """
    results: list[Any] = []
    for call in calls:
        with tf.control_dependencies(results[-1:]):
            results.append(call())
    return results


Counts = dict[str, "itertools.count[int]"]
_calls: Counts = {}  # of graphs of tf.compat.v1
_calls_of: weakref.WeakKeyDictionary[Any, Counts] = weakref.WeakKeyDictionary()  # by graph of a tf.function


def name_for(verb: str, name: str | None) -> str | None:
    """The name; in a graph, where TensorFlow may change the order, one by the number of such operations so far.

    A tf.function numbers its own: one rank may trace it again, for an input of another shape, while others do not.
    """
    if name is not None or tf.executing_eagerly():
        return name
    graph = tf.compat.v1.get_default_graph()
    while isinstance(graph, ControlFlowFuncGraph):  # TensorFlow numbers their names
        graph = graph.outer_graph
    if not isinstance(graph, FuncGraph):
        return f"tensorflow/{verb}/{next(_calls.setdefault(verb, itertools.count()))}"
    counts = _calls_of.setdefault(graph, {})
    return f"tensorflow/{verb}/{graph.name}/{next(counts.setdefault(verb, itertools.count()))}"


def back_name(name: str | None) -> str | None:
    """Of the operation in the backward pass."""
    return None if name is None else f"{name}/backward"
