"""Keeps torch.compile away from what waits for other ranks. Pure.

torch calls the methods of a process group from C++, also while a compiled forward pass runs: DistributedDataParallel
makes its buckets anew there. A compiled function may use a parameter whose step was put off, or call an optimizer. The
compiler would then trace our code, and fails at torch's own objects, or runs a part of it twice.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any


def keep_out_of_compiler(*classes: type) -> None:
    """Frames of their methods, and what these call, are not compiled."""
    for one in classes:
        for method in vars(one).values():
            function = getattr(method, "__func__", method.fget if isinstance(method, property) else method)
            if isinstance(function, types.FunctionType):
                _keep_out(function)


def keep_module_out_of_compiler(name: str) -> None:
    """The same for the functions of a module, and for the methods of its classes."""
    for value in list(vars(sys.modules[name]).values()):
        if getattr(value, "__module__", None) == name:
            if isinstance(value, types.FunctionType):
                _keep_out(value)
            elif isinstance(value, type):
                keep_out_of_compiler(value)


def _keep_out(function: Any) -> None:
    function._torchdynamo_disable = True  # where the compiler would trace a call of it
    with contextlib.suppress(ImportError, AttributeError):  # a torch without these names, which are its own
        from torch._C._dynamo import eval_frame

        action: Any = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(action, action)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
