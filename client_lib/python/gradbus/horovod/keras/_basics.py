"""init() and cuda_built(), which depend on the backend of Keras."""

from __future__ import annotations

import keras

from .._basics import Comm, Sets, init_with


def init(comm: Comm = None, process_sets: Sets = None) -> None:
    """Joins the job and waits until every rank has. Arguments and errors: init_with() of ``../_basics.py``."""
    init_with(None, comm, process_sets)


def cuda_built() -> bool:
    """Whether the backend has CUDA. False for JAX, whose devices are asked for at run time."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.test.is_built_with_cuda())
    if keras.backend.backend() == "torch":
        import torch

        return torch.version.cuda is not None
    return False
