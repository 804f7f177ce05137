"""``Compression`` of MXNet: classes that change an array before an operation and change it back afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._compression import Compressor, HalfCompressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(HalfCompressor):
    """Of trainers: gradients travel between nodes as float16. Of arrays: floating-point numbers become float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array as float16, and its dtype."""
        return (tensor.astype("float16") if np.dtype(tensor.dtype).kind == "f" else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the dtype ``ctx``."""
        return tensor.astype(ctx)


class Compression:
    """Values of ``compression=``: ``none`` and ``fp16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
