"""What Horovod's tests import of its horovod.common.util."""

import contextlib
import os

from packaging import version


def is_version_greater_equal_than(ver, target):
    """Of two version strings."""
    return version.parse(ver) >= version.parse(target)


@contextlib.contextmanager
def env(**variables):
    """Sets environment variables for a while."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in variables.items() if value is not None})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
