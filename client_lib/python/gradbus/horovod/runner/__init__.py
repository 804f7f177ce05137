"""``horovod.runner.run()``."""

from .._launch import run

__all__ = ["run"]
