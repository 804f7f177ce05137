"""The primitive of JAX behind every operation, and its rules: now, compiled, derivatives, ``jax.vmap``.

Its parameter is the text of an operation (`_calls.py`). Operations are linear, so the tangent is the same operation on
tangents. The transpose is an operation as well, so the rules compose to any order. A derived operation has the name of
the first one with a suffix.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._errors import bad_argument
from .._ops import Adasum, Average, ReduceOp, Sum
from .._process_sets import session_of
from .._reduction_arguments import rows_of_rank
from . import _calls, _programs, _xla

_UNDEFINED = "tangent"  # the verb of a tangent that is an error as soon as something uses it

operation_p = Primitive("gradbus_operation")
operation_p.multiple_results = True


def call(text: str, arrays: Sequence[Any]) -> list[Any]:
    """Performs an operation now, or when the program that is being traced runs. JAX then raises its errors."""
    return operation_p.bind(*arrays, text=text)  # type: ignore[no-any-return]


def _call_derived(operation: dict[str, Any], arrays: Sequence[Any]) -> list[Any]:
    return call(json.dumps(operation, sort_keys=True), arrays)


def _results(operation: dict[str, Any], arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    shapes = [tuple(array.shape) for array in arrays]
    if operation["verb"] in ("allgather", "reducescatter"):
        session = session_of(_calls.process_set_of(operation), operation["verb"])
        rows, *rest = shapes[0]
        is_gather = operation["verb"] == "allgather"
        shapes = [(rows * session.size if is_gather else rows_of_rank(rows, session), *rest)]
    if operation["verb"] in ("after_step", "step_on_shards"):
        shapes = shapes[: len(operation["names"])]
    return [jax.ShapeDtypeStruct(shape, array.dtype) for shape, array in zip(shapes, arrays)]


@operation_p.def_impl  # type: ignore[untyped-decorator]
def _now(*arrays: Any, text: str) -> list[Any]:
    operation = _calls.parsed(text)
    _refuse(operation)
    return _calls.call_now(operation, arrays, _results(operation, arrays))


@functools.cache
def _effects() -> Any:
    """Those of a call with side effects: XLA performs it although nothing uses its results."""
    empty = jax.ShapeDtypeStruct((), np.float32)
    return jax.make_jaxpr(jax.ffi.ffi_call(_calls.TARGET, empty, has_side_effect=True))().effects


@operation_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _shapes(*arrays: Any, text: str) -> Any:
    operation = _calls.parsed(text)
    results = [jax.core.ShapedArray(result.shape, result.dtype) for result in _results(operation, arrays)]
    return results, set() if operation["verb"] == _UNDEFINED else _effects()


@functools.cache
def _register() -> None:
    perform = lambda text, inputs, outputs: _calls.perform(_calls.parsed(text), inputs, outputs)  # noqa: E731
    _xla.register(jax, _calls.TARGET, perform, _programs.check_place)
    # jax.checkpoint performs operations again in the backward pass. All ranks do, so JAX may. It has no public name for
    # this; without it, jax.checkpoint raises an error of its own.
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import effects, ffi

        effects.remat_allowed_effects.add_type(ffi.FfiEffect)


def _compiled(context: Any, *arrays: Any, text: str) -> Any:
    _refuse(_calls.parsed(text))
    _check_compilable(context)
    _register()
    # Results in the memory of the arguments: XLA copies one that is used later. It saves new pages in every step.
    pairs = list(zip(context.avals_in, context.avals_out))
    is_same = all((given.shape, given.dtype) == (result.shape, result.dtype) for given, result in pairs)
    aliases = {index: index for index in range(len(pairs))} if is_same else None
    rule = jax.ffi.ffi_lowering(_calls.TARGET, has_side_effect=True, operand_output_aliases=aliases)
    return rule(context, *arrays, operation=_programs.text_at_place(context, text))


def _check_compilable(context: Any) -> None:
    axes = context.module_context.axis_context
    devices = axes.mesh.size if hasattr(axes, "mesh") else getattr(axes, "num_devices", 1)
    if devices > 1:
        raise bad_argument(
            f"Gradbus has no operations in programs for {devices} devices of one rank",
            "put the arrays on one device of each rank, or call the operation outside jax.jit",
        )
    for given in context.avals_in:
        if given.dtype not in _xla.DTYPES.values():
            raise bad_argument(
                f"Gradbus has no operations on {given.dtype} under jax.jit",
                "convert the array to int8 or float32, or call the operation outside jax.jit",
            )


def _not_compiled(context: Any, *arrays: Any, text: str) -> Any:
    raise bad_argument(
        f"jax.jit compiles for {'/'.join(context.module_context.platforms)}, where Gradbus has no operations",
        "set JAX_PLATFORMS=cpu, or call the operation outside jax.jit: arrays are copied through host memory then",
    )


def _refuse(operation: dict[str, Any]) -> None:
    if operation["verb"] == _UNDEFINED:
        raise bad_argument(operation["error"], "use gradbus.Sum or gradbus.Average")


def _tangent(operation: dict[str, Any], name: str) -> dict[str, Any]:
    op = operation.get("op", Sum)
    if op not in (Sum, Average):
        error = f"{operation['verb']}: {ReduceOp(op).name.title()} has no gradient"
        return {"verb": _UNDEFINED, "name": name, "error": error}
    if operation["verb"] == "exchange":
        common = {key: operation[key] for key in ("op", "compression", "ranks", "numbered")}
        return {"verb": "allreduce", "name": name, "prescale": 1.0, "postscale": 1.0, **common}
    return {**operation, "name": name}


def _jvp(primals: Any, tangents: Any, *, text: str) -> Any:
    """Integers have no tangents. Ranks whose functions differ still have the same operation: zeros are sent."""
    operation = _calls.parsed(text)
    results = operation_p.bind(*primals, text=text)
    real = [index for index, array in enumerate(primals) if jnp.issubdtype(array.dtype, jnp.inexact)]
    changes = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if all(isinstance(tangents[index], ad.Zero) for index in real):
        return results, changes
    given = [ad.instantiate_zeros(tangents[index]) for index in real]
    name = operation["name"] + "/tangent"
    for index, change in zip(real, _call_derived(_tangent(operation, name), given)):
        changes[index] = change
    return results, changes


def _of_transpose(operation: dict[str, Any], rows: int) -> tuple[dict[str, Any], float]:
    """The operation that turns cotangents of results into those of arrays, and a factor."""
    verb, root = operation["verb"], operation.get("root")
    one = {"prescale": 1.0, "postscale": 1.0, "op": int(Sum)}
    if verb == "broadcast":  # a sum on the root, zeros elsewhere: all ranks compile the same
        return {**operation, "verb": "allreduce", "compression": None, **one}, 1.0
    if verb == "allreduce" and root is not None:
        return {**operation, "verb": "broadcast"}, 1.0
    if verb == "allgather":
        return {**operation, "verb": "reducescatter", **one}, 1.0
    if verb == "reducescatter":
        size = session_of(_calls.process_set_of(operation), verb).size
        if rows % size:
            raise bad_argument(
                f"reducescatter: no gradient for {rows} rows on {size} ranks", f"pad axis 0 to a multiple of {size}"
            )
        scale = operation["prescale"] * operation["postscale"] / (size if operation["op"] == Average else 1)
        return {**operation, "verb": "allgather"}, scale
    return operation, 1.0  # an all-reduce or all-to-all


def _transpose(cotangents: Any, *arrays: Any, text: str) -> Any:
    operation = _calls.parsed(text)
    _refuse(operation)
    first = arrays[0].aval if ad.is_undefined_primal(arrays[0]) else arrays[0]
    back, scale = _of_transpose(operation, first.shape[0] if first.shape else 1)
    given = [ad.instantiate_zeros(cotangent) for cotangent in cotangents]
    given = given if scale == 1.0 else [cotangent * scale for cotangent in given]
    found = _call_derived({**back, "name": operation["name"] + "/backward"}, given)
    return [one if ad.is_undefined_primal(array) else None for one, array in zip(found, arrays)]


def _batched(arrays: Any, axes: Any, *, text: str) -> Any:
    """One operation for the whole batch. Adasum, whose elements depend on each other, is one for each member."""
    operation = _calls.parsed(text)
    run: Callable[..., Any] = functools.partial(operation_p.bind, text=text)
    if operation.get("op") == Adasum:
        batched = [None if axis is None else jnp.moveaxis(array, axis, 0) for array, axis in zip(arrays, axes)]
        size = next(array.shape[0] for array in batched if array is not None)
        whole = [jnp.broadcast_to(a, (size, *a.shape)) if b is None else b for a, b in zip(arrays, batched)]
        return jax.lax.map(lambda given: run(*given), whole), [0] * len(arrays)
    # Axis 0 of these is that of the ranks' rows.
    place = 1 if operation["verb"] in ("allgather", "reducescatter", "alltoall") else 0
    moved = [array if axis is None else jnp.moveaxis(array, axis, place) for array, axis in zip(arrays, axes)]
    return run(*moved), [None if axis is None else place for axis in axes]


ad.primitive_jvps[operation_p] = _jvp
ad.primitive_transposes[operation_p] = _transpose
batching.primitive_batchers[operation_p] = _batched
mlir.register_lowering(operation_p, _not_compiled, cacheable=False)
mlir.register_lowering(operation_p, _compiled, platform="cpu", cacheable=False)
