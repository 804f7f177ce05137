"""What the compressors of all frameworks share. A compressor changes a tensor before an operation, and back."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Base of compressors. A script may have its own; operations take them, DistributedOptimizer does not."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what decompress() needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The result in the caller's form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


class HalfCompressor(Compressor):
    """Base of each framework's FP16Compressor, which agents can do as well."""
