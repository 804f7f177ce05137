"""``Compression``: classes that change a tensor before an operation and change it back afterwards."""

from __future__ import annotations

from typing import Any

import torch

from .._compression import Compressor, HalfCompressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(HalfCompressor):
    """Sends and sums floating-point numbers as float16. Other dtypes stay as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor as float16, and its dtype."""
        return (tensor.half() if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The result in the dtype ``ctx``."""
        return tensor.to(ctx)


class Compression:
    """Values of ``compression=``: ``none`` and ``fp16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
