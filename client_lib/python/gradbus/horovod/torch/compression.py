"""``Compression``: classes that change a tensor before an operation and change it back afterwards."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Base of compressors. A script may have its own; operations take them, DistributedOptimizer does not."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The result in the caller's form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor itself."""
        return tensor


class FP16Compressor(Compressor):
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
