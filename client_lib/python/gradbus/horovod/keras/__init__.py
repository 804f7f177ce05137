"""The interface of ``horovod.keras`` 0.28 on Gradbus, for Keras 3 on any of its backends.

    import gradbus.horovod.keras as hvd

Names, arguments and results are those of Horovod. What Gradbus cannot do raises InvalidError, which says what to do
instead (docs/how-to/from-horovod.md).
"""

from . import _names, callbacks, elastic
from ._names import *  # noqa: F403
from ._optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "callbacks", "elastic"]
__all__ += _names.__all__
