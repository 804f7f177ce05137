"""The names of Horovod's autograd functions. ``apply()`` is the operation with its gradient and their arguments."""

from __future__ import annotations

from typing import Any

from . import _data_movement, _reductions


def _op(op: Any, average: bool | None) -> dict[str, Any]:
    """Horovod's functions get both; ``op`` counts."""
    return {"average": average} if op is None else {"op": op}


class HorovodAllreduce:
    """allreduce()."""

    @staticmethod
    def apply(
        tensor: Any, average: Any, name: Any, op: Any, prescale_factor: float, postscale_factor: float, process_set: Any
    ) -> Any:
        """The result."""
        return _reductions.allreduce(
            tensor, name=name, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
            process_set=process_set, **_op(op, average),
        )  # fmt: skip


class HorovodGroupedAllreduce:
    """grouped_allreduce()."""

    @staticmethod
    def apply(
        average: Any, name: Any, op: Any, prescale_factor: float, postscale_factor: float, process_set: Any,
        *tensors: Any,
    ) -> Any:  # fmt: skip
        """The results."""
        return tuple(_reductions.grouped_allreduce(
            tensors, name=name, prescale_factor=prescale_factor, postscale_factor=postscale_factor,
            process_set=process_set, **_op(op, average),
        ))  # fmt: skip


class HorovodAllgather:
    """allgather()."""

    apply = staticmethod(_data_movement.allgather)


class HorovodGroupedAllgather:
    """grouped_allgather()."""

    @staticmethod
    def apply(name: Any, process_set: Any, *tensors: Any) -> Any:
        """The results."""
        return tuple(_data_movement.grouped_allgather(tensors, name, process_set))


class HorovodBroadcast:
    """broadcast()."""

    apply = staticmethod(_data_movement.broadcast)


class HorovodAlltoall:
    """alltoall()."""

    apply = staticmethod(_data_movement.alltoall)


class HorovodReducescatter:
    """reducescatter()."""

    @staticmethod
    def apply(
        tensor: Any, name: Any, op: Any, process_set: Any, prescale_factor: float, postscale_factor: float
    ) -> Any:
        """The result."""
        return _reductions.reducescatter(
            tensor, name, op=op, process_set=process_set, prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        )  # fmt: skip


class HorovodGroupedReducescatter:
    """grouped_reducescatter()."""

    @staticmethod
    def apply(
        name: Any, op: Any, process_set: Any, prescale_factor: float, postscale_factor: float, *tensors: Any
    ) -> Any:
        """The results."""
        return tuple(_reductions.grouped_reducescatter(
            tensors, name, op=op, process_set=process_set, prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
        ))  # fmt: skip
