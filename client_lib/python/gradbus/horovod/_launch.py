"""``horovod.run()``, which starts ranks out of a Python program. Gradbus has a command for it."""

from __future__ import annotations

from typing import Any, NoReturn

from .._errors import bad_argument


def run(
    func: object = None, args: object = (), kwargs: object = None, num_proc: object = 1, **options: Any
) -> NoReturn:
    """Raises InvalidError: a command starts ranks, and no function of Python does."""
    name = getattr(func, "__name__", "function")
    raise bad_argument(
        f"run: Gradbus does not start {num_proc} ranks of {name}() out of a Python program",
        f"call {name}() in a script and start it with `gradbus run -np {num_proc} -- python script.py`",
    )
