"""``Compression`` of Keras: on NumPy arrays, because values are exchanged as such."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._compression import Compressor, HalfCompressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(HalfCompressor):
    """Sends and sums floating-point numbers as float16. Other dtypes stay as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The array as float16, and its dtype."""
        return (tensor.astype(np.float16) if tensor.dtype.kind == "f" else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the dtype ``ctx``."""
        return tensor.astype(ctx)


class Compression:
    """Values of ``compression=``: ``none`` and ``fp16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
