"""What the digits examples of JAX, TensorFlow and Keras share. It needs NumPy only.

examples/digits/README.md defines the model and the batches.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "digits"))
import dataset  # noqa: E402


def parse_arguments(framework: str, words: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    return make_parser(framework).parse_args(words)


def make_parser(framework: str) -> argparse.ArgumentParser:
    """Of the options."""
    parser = argparse.ArgumentParser(description=f"Trains the digits classifier with {framework} on Gradbus.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images")
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate")
    parser.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    parser.add_argument("--seed", type=int, default=1, help="of the parameters and the batches")
    parser.add_argument("--save-params", metavar="FILE", help="rank 0 writes the parameters (npz)")
    return parser


def initial_parameters(arguments: argparse.Namespace, rank: int) -> dict[str, np.ndarray]:
    """w1, b1, w2, b2 with weights of shape (in, out). Ranks other than 0 begin with zeros: a broadcast repairs that."""
    layers = dataset.initial_layers([dataset.PIXELS, arguments.hidden, dataset.CLASSES], arguments.seed)
    named = {}
    for number, (weight, bias) in enumerate(layers, 1):
        named[f"w{number}"], named[f"b{number}"] = np.ascontiguousarray(weight.T), bias
    return named if rank == 0 else {name: np.zeros_like(array) for name, array in named.items()}


def batches(arguments: argparse.Namespace, rank: int, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """This rank's part of each global batch of all epochs: images and labels."""
    if arguments.batch_size % size != 0:
        sys.exit(f"--batch-size {arguments.batch_size} is not divisible by {size} ranks")
    images, labels, _, _ = dataset.load()
    part = arguments.batch_size // size
    for epoch in range(arguments.epochs):
        order = dataset.epoch_order(len(images), arguments.seed, epoch)
        for start in range(0, len(images) - arguments.batch_size + 1, arguments.batch_size):
            mine = order[start + rank * part : start + (rank + 1) * part]
            yield images[mine], labels[mine]


def accuracy(parameters: Mapping[str, Any]) -> float:
    """Share of the test images that are classified right."""
    _, _, images, labels = dataset.load()
    p = {name: np.asarray(array) for name, array in parameters.items()}
    logits = np.tanh(images @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
    return float((logits.argmax(1) == labels).mean())


def report(arguments: argparse.Namespace, gradbus: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Compares the parameters of all ranks bit by bit. Rank 0 prints the result as one JSON object, and returns it."""
    arrays = {name: np.asarray(array) for name, array in parameters.items()}
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    hashes = gradbus.allgather_object(digest, name="digest")
    if len(set(hashes)) != 1:
        sys.exit(f"ranks differ: {hashes}")
    if gradbus.rank() != 0:
        return {}
    if arguments.save_params:
        np.savez(arguments.save_params, **arrays)
    result = {"accuracy": accuracy(arrays), "ranks_identical": True, "world_size": gradbus.size(), "param_hash": digest}
    print(json.dumps(result), flush=True)
    return result
