"""What a parameter says about its exchange: size, type, device, and the compression it gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from ... import _core
from ..._errors import InvalidError, bad_argument
from ..._layout import COMPRESSED_ELEMENTS_MIN, DTYPES, HALVES, PAIRS_OF, ROUNDING_CODECS, ParameterInfo
from ..._ops import is_choice
from .._gpu.staging import checked_device

NamedParameter = tuple[str, torch.nn.Parameter]


# The codec for a parameter of this name, whose text leaves the choice to the training; "none": dense.
Choose = Callable[[str, str], str]


def asked_compression(
    asked: str | None, session: _core.Session, info: ParameterInfo, parameter: torch.Tensor
) -> str:
    """What was asked for, or else what the job's policy says, where it is worth it. It may be a choice."""
    # Biases, norms and small matrices stay dense, as in DGC: bytes are not what they cost.
    if not info.count:
        return "none"
    if asked is None:
        return session.compression_for(info.name, info.count, max(1, parameter.dim()))
    return asked if parameter.dim() > 1 and info.count >= COMPRESSED_ELEMENTS_MIN else "none"


def _dense(_: str, __: str) -> str:
    return "none"


def with_compression(
    asked: str | None,
    session: _core.Session,
    info: ParameterInfo,
    parameter: torch.Tensor,
    converts: bool = False,
    choose: Choose = _dense,
) -> ParameterInfo:
    """With the compression that was asked for, or else the job's policy, where it is worth it.

    ``converts``: gradients of half precision in host memory are compressed as float32. Codecs that only round to
    half precision would change nothing there. ``choose``: for texts that leave the choice to the training.
    """
    if converts and info.dtype in HALVES:
        wide = with_compression(asked, session, in_float32(info), parameter, choose=choose)
        return info if wide.compression.partition(":")[0] in ROUNDING_CODECS else wide
    if info.dtype != "float32" or not info.count:
        return info
    chosen = asked_compression(asked, session, info, parameter)
    if is_choice(chosen):
        chosen = choose(info.name, chosen)
    columns = info.count // parameter.shape[0] if parameter.dim() > 1 else 0
    return dataclasses.replace(info, compression=chosen, columns=columns)


def in_float32(info: ParameterInfo) -> ParameterInfo:
    """The gradient is converted to float32 for the exchange, and back. In host memory only."""
    if info.dtype not in HALVES or info.device != "cpu":
        return info
    return dataclasses.replace(info, dtype="float32", gradient_dtype=info.dtype)


def info_of(name: str, parameter: torch.nn.Parameter) -> ParameterInfo:
    """Raises InvalidError for a dtype or a device that cannot be exchanged."""
    if any(kind.__name__ == "DTensor" for kind in (type(parameter), type(parameter.data))):
        raise bad_argument(
            f"parameter '{name}' is a DTensor, whose gradients FSDP or tensor parallelism reduces",
            "use the plain optimizer with it, on the process group of backend \"gradbus\" "
            "(docs/how-to/use-torch-distributed.md), or give DistributedOptimizer the model without fully_shard()",
        )
    dtype = str(parameter.dtype).replace("torch.", "")
    if dtype not in DTYPES and dtype not in PAIRS_OF:
        raise bad_argument(
            f"parameter '{name}' has dtype {dtype}", f"use one of {', '.join([*DTYPES, *PAIRS_OF])}"
        )
    return ParameterInfo(
        name, PAIRS_OF.get(dtype, dtype), real_count(parameter),
        device=checked_device(name, parameter), is_complex=parameter.is_complex(),
    )  # fmt: skip


def real_count(parameter: torch.Tensor) -> int:
    """How many real numbers the parameter has."""
    return parameter.numel() * (2 if parameter.is_complex() else 1)


def shaped_as(parameter: torch.Tensor, reals: torch.Tensor) -> torch.Tensor:
    """A vector of real numbers as a tensor of the parameter's shape, complex if it is: a view."""
    if parameter.is_complex():
        return torch.view_as_complex(reals.view(*parameter.shape, 2))
    return reals.view(parameter.shape)


def in_memory_order(parameter: torch.Tensor, reals: torch.Tensor) -> torch.Tensor:
    """As shaped_as(), of numbers that lie in the order of the parameter's memory (channels_last)."""
    stride = parameter.stride()
    # Of gaps and overlaps a new tensor has none.
    if parameter.is_contiguous() or parameter.is_complex() or torch.empty_like(parameter).stride() != stride:
        return shaped_as(parameter, reals)
    return reals.as_strided(parameter.shape, stride)


def sparse_on_device_error(name: str, parameter: torch.Tensor) -> InvalidError:
    """For what is exchanged as rows."""
    return bad_argument(
        f"parameter '{name}' is on {parameter.device} and has sparse gradients, whose rows are found in host memory",
        "keep that parameter on the CPU, or make its layer with sparse=False and leave it out of sparse_parameters",
    )
