"""The interface of ``horovod.tensorflow.keras`` 0.28 on Gradbus: that of ``gradbus.horovod.keras``.

tf.keras is Keras 3 since TensorFlow 2.16. Only the optimizer and some callbacks have other arguments.
"""

from ...common.util import is_version_greater_equal_than
from ...keras import _names
from ...keras._names import *  # noqa: F403
from . import callbacks, elastic
from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "callbacks", "elastic", "is_version_greater_equal_than"]
__all__ += _names.__all__
