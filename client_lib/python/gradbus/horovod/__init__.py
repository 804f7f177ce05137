"""Horovod's Python interface on Gradbus. ``gradbus.horovod.torch`` stands for ``horovod.torch``.

This module imports no framework.
"""

from ._launch import run

__all__ = ["run"]
