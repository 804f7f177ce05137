"""Stands for Horovod: its tests import this package, and get Gradbus."""

import importlib
import importlib.abc
import importlib.util
import sys

from gradbus.horovod import run

__all__ = ["run"]
_PARTS = ("common", "data", "keras", "mxnet", "tensorflow", "torch")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """horovod.torch and the like, and all below them, are the modules of gradbus.horovod themselves."""

    def find_spec(self, name, path=None, target=None):
        """None: another finder's."""
        parts = name.split(".")
        if len(parts) < 2 or parts[0] != "horovod" or parts[1] not in _PARTS:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        """It is imported under its own name."""
        return importlib.import_module("gradbus." + spec.name)

    def exec_module(self, module):
        """That was done."""


sys.meta_path.insert(0, _Finder())
