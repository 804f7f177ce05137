"""SyncBatchNorm: batch normalization with the mean and variance of all ranks' samples."""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ..._differentiable import allgather
from ..._errors import bad_argument
from ..._session import size


class SyncBatchNorm(_BatchNorm):
    """A batch normalization over (N, C, ...) that uses the samples of all ranks in training.

    Arguments are those of torch.nn.BatchNorm2d(). Ranks may have batches of different sizes, also empty ones.
    Tensors may be on the CPU or a GPU; Horovod's needs a GPU.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise bad_argument(
                f"SyncBatchNorm: the input has shape {tuple(input.shape)}", "pass a tensor of shape (N, C, ...)"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalizes; in training it is a collective operation, and never else. Raises as gradbus.allgather()."""
        self._check_input_dim(input)
        if not self.training or size() == 1:
            return super().forward(input)
        mean, variance, count = _statistics_of_all_ranks(input)
        if self.running_mean is not None:
            self._update_running(mean.detach(), variance.detach() * (count / max(count - 1, 1)))
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        shape = (1, -1, *(1 for _ in range(input.dim() - 2)))
        return (input * scale.view(shape) + shift.view(shape)).to(input.dtype)

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        factor = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if factor is None:
                factor = 1.0 / float(self.num_batches_tracked)
        factor = factor or 0.0
        for running, found in ((self.running_mean, mean), (self.running_var, variance)):
            running.copy_(running * (1 - factor) + found * factor)


def _statistics_of_all_ranks(input: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and biased variance of each channel, and the samples of a channel on all ranks.

    Each rank brings its own mean and variance, which are merged: a sum of squares would lose digits.
    """
    values = input.transpose(0, 1).flatten(1)
    values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    count = values.shape[1]
    mean = values.sum(1) / max(count, 1)
    squares = (values - mean[:, None]).square().sum(1)
    ours = torch.cat([mean, squares, mean.new_full((1,), count)])
    ranks = allgather(ours[None])
    means, all_squares, counts = ranks.split([len(mean), len(mean), 1], dim=1)
    counts = counts.detach()
    total = float(counts.sum())
    if total == 0:
        raise bad_argument("SyncBatchNorm: no rank has a sample", "skip empty batches")
    joint = (means * counts).sum(0) / total
    variance = (all_squares + counts * (means - joint).square()).sum(0) / total
    return joint, variance, total
