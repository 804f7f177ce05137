"""Elastic training of frameworks other than PyTorch, which is refused."""

from __future__ import annotations

from typing import Any, NoReturn

from .._errors import bad_argument


class Refused:
    """Stands for a function or a class of Horovod. Each call raises InvalidError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise bad_argument(
            f"elastic.{self._name}: Gradbus restores models of PyTorch only after the loss of an agent",
            "save a checkpoint in each epoch and start the job again, or use gradbus.horovod.torch",
        )
