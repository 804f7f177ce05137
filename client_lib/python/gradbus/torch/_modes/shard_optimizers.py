"""The optimizers of parameter-server shards (modes ps:async, ps:ssp, ps:quorum).

The shards step: gradients go out, parameters come back. So the torch optimizer only says how: its
class and options become options of the mode, its groups' learning rates go with every gradient.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from ..._errors import InvalidError, bad_argument
from ..._layout import LAMB
from ..._modes.kinds import is_on_shards, said_in, says_optimizer
from .._buckets.shard_parameters import plain_option

if TYPE_CHECKING:
    from ... import _core


def text_of(mode: _core.Mode, plain: type, group: dict[str, Any]) -> str:
    """The mode as a tensor is registered with it.

    A mode that says nothing of an optimizer gets this class, with the group's options. Torch has no LAMB: a mode
    that names it gets what it does not say itself from the group. Raises InvalidError for an optimizer that shards
    do not have.
    """
    if not is_on_shards(mode):
        return mode.text
    name, _, rest = mode.text.partition(",")
    if LAMB in rest.split(","):
        said = said_in(mode.text)
        options = [option for option in _of_group(group) if option.partition("=")[0] not in said]
    elif says_optimizer(mode.text):
        return mode.text
    else:
        options = _options(name, plain, group)
    return ",".join([name, *filter(None, [rest]), *options])


def _of_group(group: dict[str, Any]) -> list[str]:
    values = {}
    if "weight_decay" in group:
        values["weight_decay"] = group["weight_decay"]
    if "betas" in group:
        values["beta1"], values["beta2"] = group["betas"]
    return [f"{option}={value}" for option, value in values.items()]


def told_options(mode: _core.Mode, plain: type, group: dict[str, Any]) -> dict[str, Any]:
    """Options of the group that shards step with from its registration on, or know that it has not set."""
    if not is_on_shards(mode):
        return {}
    if LAMB in mode.text.split(","):
        said = said_in(mode.text)
        names = {"weight_decay"} - said | ({"betas"} if not {"beta1", "beta2"} <= said else set())
    elif says_optimizer(mode.text):
        return {}
    else:
        kind = _kind_of(plain)
        names = set(_options_of(kind)) if kind is not None else set()
    return {name: plain_option(group[name]) for name in sorted(names) if name in group}


def without_restore(text: str) -> str:
    """The mode, but its parameters are what ranks bring in the first round."""
    return ",".join(word for word in text.split(",") if word.strip() != "restore=1")


def _options(mode: str, plain: type, group: dict[str, Any]) -> list[str]:
    kind = _kind_of(plain)
    if kind is None:
        raise _refused(mode, f"shards have no {plain.__name__}")
    if _unhooked(plain) is not _unhooked(kind):
        raise _refused(mode, f"{plain.__name__} has a step() of its own, and shards would step as {kind.__name__}")
    for option, default in _options_of(kind).items():
        if option not in _SENT and group.get(option, default) != default:
            raise _refused(mode, f"shards step without {option}={group[option]} of this {plain.__name__}")
    decoupled = group.get("decoupled_weight_decay", kind is torch.optim.AdamW)  # in newer torch
    name = "adamw" if decoupled else {torch.optim.AdamW: "adam"}.get(kind, kind.__name__.lower())
    options = {"optimizer": name, "weight_decay": group["weight_decay"]}
    for option in ("momentum", "dampening", "eps"):
        if option in group:
            options[option] = group[option]
    if "nesterov" in group:
        options["nesterov"] = int(group["nesterov"])
    if "betas" in group:
        options["beta1"], options["beta2"] = group["betas"]
    return [f"{option}={value}" for option, value in options.items()]


def _refused(mode: str, why: str) -> InvalidError:
    return bad_argument(
        f"DistributedOptimizer: {why} (mode {mode})",
        "use torch's SGD, Adam, AdamW or Adagrad without amsgrad, maximize, lr_decay and initial_accumulator_value, "
        f"or name the shards' in the mode: {mode},optimizer=adam",
    )


# AdamW first: in newer torch it is an Adam.
_KINDS = (torch.optim.AdamW, torch.optim.Adam, torch.optim.Adagrad, torch.optim.SGD)
_SENT = {"momentum", "dampening", "nesterov", "weight_decay", "betas", "eps", "decoupled_weight_decay"}
# With each gradient; and how a rank would step, not where to.
_FREE = {"lr", "foreach", "fused", "capturable"}


def _kind_of(plain: type) -> Any:
    """The class of torch whose steps shards can make, or None."""
    return next((kind for kind in _KINDS if issubclass(plain, kind)), None)


def _unhooked(plain: Any) -> Any:
    """Its step(). Torch wraps that of a class, or of the first one below it that is used."""
    return inspect.unwrap(plain.step)


@functools.cache
def _options_of(kind: type) -> dict[str, Any]:
    """Options that decide where its step leads, of this version of torch, and their defaults."""
    parameters = list(inspect.signature(kind).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters if parameter.name not in _FREE}
