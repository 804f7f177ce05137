"""ElasticState: models and distributed optimizers in commits of ``gradbus.elastic``."""

from __future__ import annotations

from typing import Any

import torch

from .._errors import bad_argument
from ..elastic import Saved, State
from ._broadcast import broadcast_optimizer_state, broadcast_parameters
from ._onebit_adam import MomentumAdam
from ._optimizer import DistributedOptimizerBase, needs_reattaching, reattach
from ._sharded.optimizer import ShardedOptimizerBase

# Entry of the commit that is no value of the user's, whose names do not begin so.
_RANDOM = "_random"
_OWN_STATE = (ShardedOptimizerBase, MomentumAdam)  # all ranks make their state_dict() together


class ElasticState(State):
    """``ElasticState(model=model, optimizer=optimizer, epoch=0)``: what a training can go back to.

    Values are as those of ``gradbus.elastic.State``. A model (any ``torch.nn.Module``) is kept with its
    buffers; an optimizer that ``DistributedOptimizer`` made with its state and options, what its
    compression and its outer optimizers remember, and the modes that it has by then. Torch's random
    numbers go back, too. Learning-rate schedulers, and what else has a ``state_dict()``, are values
    like the others.

    ``commit()`` is a fence (the optimizers' ``flush()``) and comes after ``step()``. When it was gone
    back to one, gradients are zero. Optimizers on a process set need the set in ``init(process_sets=...)``.
    """

    def restore(self) -> None:
        """As that of gradbus.elastic.State, also between backward() and step()."""
        for optimizer in self._optimizers(attached=True):
            optimizer.zero_grad()  # which ends its exchange
        super().restore()

    def _optimizers(self, attached: bool) -> list[Any]:
        """Those that belong to this session, or not."""
        values = (getattr(self, name) for name in self._names)
        distributed = [value for value in values if isinstance(value, DistributedOptimizerBase)]
        return [optimizer for optimizer in distributed if attached != needs_reattaching(optimizer)]

    def _settle(self) -> None:
        for optimizer in self._optimizers(attached=True):
            optimizer.flush()

    def _reset(self) -> None:
        for optimizer in self._optimizers(attached=False):
            state = optimizer._gradbus
            reattach(optimizer, state.steps, state.changes, fresh_shards=False)

    def _save(self) -> Saved:
        saved = super()._save()
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, DistributedOptimizerBase):
                saved[name] = (saved[name], _remembered(value))
        saved[_RANDOM] = torch.get_rng_state()
        return saved

    def _load(self, saved: Saved, number: int) -> None:
        super()._load(saved, number)
        for name in self._names:
            value = getattr(self, name)
            if isinstance(value, DistributedOptimizerBase):
                _remind(value, saved[name][1], number)
        torch.set_rng_state(saved[_RANDOM])

    def _put(self, name: str, value: Any) -> None:
        held = getattr(self, name)
        super()._put(name, value[0] if isinstance(held, DistributedOptimizerBase) else value)

    def _share(self) -> None:
        """Models and optimizers as they are, what is left pickled."""
        names, self._names = self._names, ()
        try:
            for name in names:
                value = getattr(self, name)
                if isinstance(value, torch.nn.Module):
                    broadcast_parameters(value)
                elif isinstance(value, torch.optim.Optimizer) and not isinstance(value, _OWN_STATE):
                    broadcast_optimizer_state(value)  # a plain one on ranks outside of its process set
                else:
                    self._names += (name,)
            super()._share()
        finally:
            self._names = names


def _remembered(optimizer: Any) -> dict[str, Any]:
    state = optimizer._gradbus
    return {
        "steps": state.steps,
        "changes": list(state.changes),
        "outer": optimizer.outer_state(),
        "compression": optimizer.compression_state(),
        "shards": optimizer.shard_state(),
    }


def _remind(optimizer: Any, remembered: dict[str, Any], number: int) -> None:
    if needs_reattaching(optimizer):
        # Of the start there are no parameters to go back to, if shards bring others from snapshots.
        reattach(optimizer, remembered["steps"], remembered["changes"], fresh_shards=number > 0)
    elif not optimizer._gradbus.exchange.holds_nothing:
        raise bad_argument(
            "ElasticState.restore: shards hold these parameters, and go on from what they have",
            "call it in modes other than ps:async, ps:ssp and ps:quorum",
        )
    optimizer._gradbus.exchange.deferred.aborted.clear()
    optimizer.zero_grad()
    optimizer.load_outer_state(remembered["outer"])
    optimizer.load_compression_state(remembered["compression"])
    if number > 0:
        optimizer.load_shard_state(remembered["shards"])
