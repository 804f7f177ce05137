"""What the elastic states of TensorFlow and of Keras have in common: variables in commits, and ``run``. Main thread."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._errors import GradbusError, bad_argument, error_in
from .._gradients import broadcast_arrays
from .._objects import compare_lists
from ..elastic import Saved
from .common import elastic

# Entry of the commit that is no value of the user's, whose names do not begin so.
_VARIABLES = "_variables"


class VariablesState(elastic.State):
    """A state whose commits hold variables, too. When ``run`` begins, all ranks get those of rank 0."""

    def _variables(self) -> list[Any]:
        """The same in the same order on all ranks."""
        raise NotImplementedError

    def _read(self) -> list[Any]:
        """Their values, as new arrays."""
        raise NotImplementedError

    def _write(self, arrays: list[Any]) -> None:
        """Assigns what _read() has returned, also where a failed step has left no values. It may keep the arrays."""
        raise NotImplementedError

    def _save(self) -> Saved:
        return {**super()._save(), _VARIABLES: self._read()}

    def _load(self, saved: Saved, number: int) -> None:
        super()._load(saved, number)
        kept, held = saved[_VARIABLES], self._variables()
        if len(kept) != len(held):
            raise bad_argument(
                f"{type(self).__name__}: there are {len(held)} variables, and {len(kept)} in the last commit",
                "call commit() after a change of the model",
            )
        self._write([array.copy() for array in kept])

    def _share(self) -> None:
        named = [(str(index), array) for index, array in enumerate(self._read())]
        kinds = [f"{array.dtype}{list(array.shape)}" for _, array in named]
        compare_lists(kinds, "variable", "elastic/variables")  # else ranks wait for each other
        self._write(broadcast_arrays("elastic/variables", named, 0))
        super()._share()


def run(func: Callable[..., Any] | None = None, *, timeout: float | None = None, restarts_max: int = 10) -> Any:
    """run() of horovod.common.elastic, which also sees errors of Gradbus that a framework raises as its own."""
    if func is None:
        return functools.partial(run, timeout=timeout, restarts_max=restarts_max)
    wanted = func  # which is no more None

    @functools.wraps(wanted)
    def with_own_errors(*args: Any, **kwargs: Any) -> Any:
        try:
            return wanted(*args, **kwargs)
        except Exception as error:
            if not _hides_another(error):
                raise
            raise error_in(str(error)) from error  # type: ignore[misc]  # in no variable, which would keep the frames

    return elastic.run(with_own_errors, timeout=timeout, restarts_max=restarts_max)


def _hides_another(error: Exception) -> bool:
    """Whether TensorFlow or JAX has made it of an error of Gradbus, inside a graph or a compiled program."""
    makers = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    is_of_framework = bool(makers & {"tensorflow", "jax", "jaxlib"}) and not isinstance(error, GradbusError)
    return is_of_framework and error_in(str(error)) is not None
