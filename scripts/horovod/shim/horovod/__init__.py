"""Stands for Horovod: its tests import this package, and get Gradbus."""

import importlib
import importlib.abc
import importlib.util
import sys

from gradbus.horovod import run

__all__ = ["run"]
_FRAMEWORKS = ("torch", "tensorflow", "keras", "mxnet")


def _executing_eagerly():
    """What the tests import from horovod.tensorflow.util."""
    from tensorflow.python.eager import context

    return context.executing_eagerly()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """horovod.torch and the like, and all below them, are the modules of gradbus.horovod themselves."""

    def find_spec(self, name, path=None, target=None):
        """None: another finder's."""
        parts = name.split(".")
        if len(parts) < 2 or parts[0] != "horovod" or parts[1] not in _FRAMEWORKS:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        """It is imported under its own name."""
        if spec.name == "horovod.tensorflow.util":
            return None
        name = spec.name if spec.name.startswith("horovod.torch") else spec.name.removesuffix(".mpi_ops")
        module = importlib.import_module("gradbus." + name)  # all names are there, too
        if spec.name == "horovod.tensorflow":
            module._executing_eagerly = _executing_eagerly
        return module

    def exec_module(self, module):
        """That was done."""
        if module.__name__ == "horovod.tensorflow.util":
            module._executing_eagerly = _executing_eagerly


sys.meta_path.insert(0, _Finder())
