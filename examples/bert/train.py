"""Pre-training steps of BERT (masked words and next sentence) on random texts, with random weights.

    gradbus run -np 2 --agents 2 --no-prefix -- python examples/bert/train.py --model tiny --time
    gradbus run -np 2 --agents 2 --no-prefix -- python examples/bert/train.py --model base --batch-size 8 --length 64

The models are configurations of Hugging Face's transformers. For speed, not for accuracy: the texts are made up.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from common import training  # noqa: E402

# Layers, width, heads, words of the vocabulary: Devlin et al. 2019; tiny is for two cores.
SIZES = {"tiny": (2, 128, 2, 8192), "base": (12, 768, 12, 30522), "large": (24, 1024, 16, 30522)}
# Adam makes full steps of gradients that are nothing but rounding noise, such as those of key biases.
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
LENGTH_MAX = 512
MASK_SHARE = 0.15
MASK = 103  # the number of the word [MASK]
IGNORED = -100  # a label that counts nothing


def make_model(size: str, dropout: float = 0.1) -> nn.Module:
    """BertForPreTraining."""
    try:
        from transformers import BertConfig, BertForPreTraining
    except ImportError as error:
        sys.exit(f"--model {size}: {error} | next: {sys.executable} -m pip install transformers")
    layers, width, heads, words = SIZES[size]
    return BertForPreTraining(
        BertConfig(
            vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=4 * width, max_position_embeddings=LENGTH_MAX,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )
    )  # fmt: skip


def batch_of(step: int, arguments: argparse.Namespace) -> training.Batch:
    """Words with masks, halves, labels of the masked words, and whether the second half follows the first.

    Each text has as many masked words, so the mean over ranks is the mean over the batch.
    """
    size, length = arguments.batch_size, arguments.length
    random = torch.Generator().manual_seed(arguments.seed * 1_000_003 + step)
    words = torch.randint(MASK + 1, SIZES[arguments.model][3], (size, length), generator=random)
    chosen = torch.rand(size, length, generator=random).argsort(1)[:, : max(1, int(length * MASK_SHARE))]
    labels = torch.full_like(words, IGNORED).scatter(1, chosen, words.gather(1, chosen))
    halves = (torch.arange(length) >= length // 2).long().expand(size, length)
    follows = torch.randint(2, (size,), generator=random)
    return words.scatter(1, chosen, MASK), halves, labels, follows


def loss_of(model: nn.Module, of: training.Batch) -> torch.Tensor:
    """The sum of both tasks."""
    words, halves, labels, follows = of
    return model(input_ids=words, token_type_ids=halves, labels=labels, next_sentence_label=follows).loss


def main(words: list[str] | None = None) -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SIZES, default="base", help="the size")
    parser.add_argument("--length", type=int, default=64, help="words of a text")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="sgd: to compare runs, as --dropout 0")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate")
    parser.add_argument("--dropout", type=float, default=0.1, help="0 to compare runs with different numbers of ranks")
    training.add_options(parser, steps=10, batch_size=16)
    arguments = training.parse(parser, words)
    if not 2 <= arguments.length <= LENGTH_MAX:
        parser.error(f"--length must be 2 to {LENGTH_MAX}")
    workload = training.Workload(
        f"bert-{arguments.model}",
        lambda: make_model(arguments.model, arguments.dropout),
        lambda model: OPTIMIZERS[arguments.optimizer](model.parameters(), lr=arguments.lr, weight_decay=0.01),
        lambda step: batch_of(step, arguments),
        loss_of,
    )
    training.run(workload, arguments)


if __name__ == "__main__":
    main()
