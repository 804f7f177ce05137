"""``gradbus.torch.hook()``: the exchange of DistributedDataParallel's gradients, with compression."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import bad_argument
from ..._ops import checked_compression
from ..._process_sets import ProcessSet
from .._compression_report import report_no_effect
from .._state.residual_state import PARTS, CompressionState, check_state, read_state, write_state
from .exchange import HookedBucket
from .ignored_options import warn_of_mode
from .model import Model, model_of


class CommHook:
    """What hook() returns. Callable as torch wants it; one per model. Main thread and that of backward."""

    # torch reads these of a hook, and refuses annotations that are text.
    __name__ = "gradbus"
    __signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("state", "bucket")]
    )

    def __init__(self, compression: str | None, process_set: ProcessSet | None) -> None:
        self.__qualname__ = f"gradbus.torch.hook({compression!r})"
        self._compression = compression
        self._process_set = process_set
        self._model: Model | None = None
        self._buckets: dict[tuple[int, ...], HookedBucket] = {}  # by the ids of their parameters
        self._registered = 0  # so far
        self._waiting: CompressionState = _nothing()  # of parameters whose bucket has not come yet
        self._has_state = False  # of all ranks: buckets that come write theirs

    def __call__(self, state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Starts the exchange of a bucket; ``state`` is not used."""
        parameters = bucket.parameters()
        key = tuple(map(id, parameters))
        with torch.no_grad():
            hooked = self._buckets.get(key) or self._register(key, parameters, bucket.buffer())
            return hooked.start(bucket.buffer())

    @torch.no_grad()
    def state_dict(self) -> CompressionState:
        """This rank's share of the residual state, for a checkpoint: as optimizer.compression_state().

        All ranks call it between two steps and save a file each.
        """
        state = read_state(piece for piece in self._pieces() if piece.compressed)
        for part, shares in self._waiting.items():
            state.setdefault(part, {}).update({name: share.clone() for name, share in shares.items()})
        return state

    @torch.no_grad()
    def load_state_dict(self, state: CompressionState) -> None:
        """Restores a share on all ranks, before the first backward() or between two steps.

        For another number of ranks see ``reshard_compression_state``. Raises InvalidError (a part, name or shape
        that the model does not have; before the first backward(), there).
        """
        check_state({part: {} for part in state}, {}, "load_state_dict", "this model")
        if self._model is not None:
            self._check(state, self._model)
        given = {**_nothing(), **{part: dict(shares) for part, shares in state.items()}}
        write_state(self._pieces(), given)
        here = {name for hooked in self._buckets.values() for name, _ in hooked.named}
        self._waiting = _without(given, here)
        self._has_state = True

    def detach(self, process_goes_on: bool) -> None:
        """The session ends. The next backward() registers with the session that there is then."""
        del process_goes_on
        self._buckets.clear()
        self._model = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            for hooked in self._buckets.values():
                hooked.close()

    def _pieces(self) -> list[Any]:
        return [piece for hooked in self._buckets.values() for piece in hooked.pieces]

    def _register(
        self, key: tuple[int, ...], parameters: Sequence[torch.nn.Parameter], buffer: torch.Tensor
    ) -> HookedBucket:
        _refuse_sparse(buffer)
        if self._model is None:
            self._model = model_of(parameters, self, self._process_set)
            self._check(self._waiting, self._model)
            report_no_effect(self._compression, self._model.session, self._model.named)
            warn_of_mode(self._model.session, self._model.named)
        model = self._model
        named = [(model.name_of(parameter), parameter) for parameter in parameters]
        self._retire_those_with(set(key))
        prefix = f"hook{model.number or ''}.{self._registered}"
        self._registered += 1
        hooked = HookedBucket(named, self._compression, model.session, prefix)
        self._buckets[key] = hooked
        if self._has_state:
            write_state(hooked.pieces, self._waiting)
            self._waiting = _without(self._waiting, {name for name, _ in named})
        return hooked

    def _retire_those_with(self, ids: set[int]) -> None:
        """DDP has put these parameters into another bucket; what was remembered of them is kept.

        Old buckets are not in flight: every parameter is in one bucket of this backward pass.
        """
        for key in [key for key in self._buckets if not ids.isdisjoint(key)]:
            hooked = self._buckets.pop(key)
            kept = read_state(piece for piece in hooked.pieces if piece.compressed)
            for part, shares in kept.items():
                self._waiting.setdefault(part, {}).update(shares)
            self._has_state = True
            hooked.close()

    def _check(self, state: CompressionState, model: Model) -> None:
        check_state(state, {name: p.shape for name, p in model.named}, "load_state_dict", "this model")


def _refuse_sparse(buffer: torch.Tensor) -> None:
    """Raises InvalidError."""
    if buffer.layout != torch.strided:
        raise bad_argument(
            f"hook: a gradient of shape {tuple(buffer.shape)} is sparse", "make that layer with sparse=False"
        )


def _nothing() -> CompressionState:
    return {part: {} for part in PARTS}


def _without(state: CompressionState, names: set[str]) -> CompressionState:
    return {
        part: {name: share for name, share in shares.items() if name not in names}
        for part, shares in state.items()
    }


def hook(compression: str | None = None, process_set: ProcessSet | None = None) -> CommHook:
    """A communication hook of DistributedDataParallel that averages gradients over Gradbus.

        model = DistributedDataParallel(model)               # on any backend of torch.distributed
        model.register_comm_hook(None, gradbus.hook("topk:ratio=0.01"))

    The exchange runs while backward goes on. Error feedback stays in the daemons. Call gradbus.init() first, unless
    the model's process group has the backend "gradbus". Make a hook for each model, in one order on all ranks.

    Args:
        compression: of gradients between nodes, as in DistributedOptimizer. None: the job's policy decides.
        process_set: the ranks of DDP's process group, if these are not all ranks. A group of the backend "gradbus"
            needs none.

    backward() raises InvalidError (arguments, sparse gradients), MismatchError, PeerLostError, TimeoutError.
    """
    return CommHook(checked_compression(compression, "hook"), process_set)
