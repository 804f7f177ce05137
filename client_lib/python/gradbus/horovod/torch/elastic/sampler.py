"""ElasticSampler: the samples of an epoch that no rank has processed yet, dealt out to the ranks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch

from ...._session import rank, size


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg,unused-ignore]
    """Deals the samples of a dataset out to the ranks, and continues in the middle of an epoch after a loss.

    Make it a value of TorchState, call record_batch() after each batch and set_epoch() at the end of each epoch.

    Args:
        dataset: anything with a length, the same on all ranks.
        shuffle: whether each epoch has its own order.
        seed: of that order, the same on all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, with all samples."""
        self.load_state_dict({"epoch": epoch, "processed_num": 0})

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Every rank has processed a batch of ``batch_size`` samples."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the number of samples that are processed."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from there."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Deals out the samples that are left. Raises ClosedError before init()."""
        self.num_replicas, self.rank = size(), rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        # The first ones come again at the end, so that all ranks have as many.
        repeated = itertools.cycle(self.remaining_indices)
        return itertools.islice(repeated, self.rank, self.total_size, self.num_replicas)

    def __len__(self) -> int:
        return self.num_samples
