"""Keeps torch.compile away from a process group. Pure.

torch calls the methods of a group from C++, also while a compiled forward pass runs: DistributedDataParallel makes its
buckets anew there. The compiler would then trace the methods, and fails at torch's own objects.
"""

from __future__ import annotations

import contextlib
import types
from typing import Any


def keep_out_of_compiler(*classes: type) -> None:
    """Frames of their methods, and what these call, are not compiled."""
    with contextlib.suppress(ImportError, AttributeError):  # a torch without these names, which are its own
        from torch._C._dynamo import eval_frame

        action: Any = eval_frame._FrameAction.SKIP
        strategy = eval_frame._FrameExecStrategy(action, action)
        for one in classes:
            for method in vars(one).values():
                if isinstance(method, types.FunctionType):
                    eval_frame.set_code_exec_strategy(method.__code__, strategy)
