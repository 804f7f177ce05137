"""The optimizers of parameter-server shards (modes ps:async, ps:ssp, ps:quorum).

The shards step: gradients go out, parameters come back. So the torch optimizer only says how: its
class and options become options of the mode, its groups' learning rates go with every gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..._errors import bad_argument
from ..._layout import LAMB

if TYPE_CHECKING:
    from ... import _core

PS_SYNC, PS_QUORUM = 6, 9  # as gradbus_mode_kind: from PS_SYNC + 1 on shards hold parameters

_OF_OPTIMIZER = {
    "optimizer", "momentum", "dampening", "nesterov", "weight_decay", "beta1", "beta2", "eps",
}  # fmt: skip


def holds_parameters(mode: _core.Mode) -> bool:
    """Shards do."""
    return PS_SYNC < mode.kind <= PS_QUORUM


def text_of(mode: _core.Mode, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> str:
    """The mode as a tensor is registered with it.

    A mode that says nothing of an optimizer gets this one's. Torch has no LAMB: a mode that names it
    gets what it does not say itself from the group. Raises InvalidError for an optimizer that shards
    do not have.
    """
    if not holds_parameters(mode):
        return mode.text
    name, _, rest = mode.text.partition(",")
    said = {option.partition("=")[0] for option in rest.split(",")}
    if LAMB in rest.split(","):
        options = [option for option in _of_group(group) if option.partition("=")[0] not in said]
    elif said & _OF_OPTIMIZER:
        return mode.text
    else:
        options = _options(name, optimizer, group)
    return ",".join([name, *filter(None, [rest]), *options])


def _of_group(group: dict[str, Any]) -> list[str]:
    values = {}
    if "weight_decay" in group:
        values["weight_decay"] = group["weight_decay"]
    if "betas" in group:
        values["beta1"], values["beta2"] = group["betas"]
    return [f"{option}={value}" for option, value in values.items()]


def without_restore(text: str) -> str:
    """The mode, but its parameters are what ranks bring in the first round."""
    return ",".join(word for word in text.split(",") if word.strip() != "restore=1")


def _options(mode: str, optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> list[str]:
    kind = next((k for k in _KINDS if isinstance(optimizer, k)), None)
    if kind is None or any(group.get(option) for option in _REFUSED):
        raise bad_argument(
            f"DistributedOptimizer: shards (mode {mode}) cannot do what this "
            f"{type(optimizer).__name__} does",
            "use torch's SGD, Adam, AdamW or Adagrad without amsgrad, maximize, lr_decay and "
            "initial_accumulator_value, or name the shards' in the mode: "
            f"{mode},optimizer=adam",
        )
    options = {"optimizer": _KINDS[kind], "weight_decay": group["weight_decay"]}
    for option in ("momentum", "dampening", "eps"):
        if option in group:
            options[option] = group[option]
    if "nesterov" in group:
        options["nesterov"] = int(group["nesterov"])
    if "betas" in group:
        options["beta1"], options["beta2"] = group["betas"]
    return [f"{option}={value}" for option, value in options.items()]


# AdamW first: in newer torch it is an Adam.
_KINDS = {
    torch.optim.AdamW: "adamw",
    torch.optim.Adam: "adam",
    torch.optim.Adagrad: "adagrad",
    torch.optim.SGD: "sgd",
}
_REFUSED = ("amsgrad", "maximize", "lr_decay", "initial_accumulator_value")
