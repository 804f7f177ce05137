"""Horovod's Python interface on Gradbus. ``gradbus.horovod.torch`` stands for ``horovod.torch``.

This module imports no framework. ``__version__`` is that of the Horovod whose interface it is.
"""

from ._launch import run

__all__ = ["run"]
__version__ = "0.28.1"
