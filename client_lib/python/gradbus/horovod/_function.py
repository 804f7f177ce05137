"""A rank of ``horovod.run()``: `python -m gradbus.horovod._function FOLDER` calls the function, writes its result."""

from __future__ import annotations

import os
import pathlib
import pickle
import sys

from ._launch import pickled


def main() -> None:
    """Reads the call and writes what it returned."""
    folder = pathlib.Path(sys.argv[1])
    func, args, kwargs = pickle.loads((folder / "call").read_bytes())
    result = pickled(func(*args, **kwargs))
    target = folder / f"result.{os.environ['GRADBUS_RANK']}"
    part = folder / f"part.{os.environ['GRADBUS_RANK']}"
    part.write_bytes(result)
    part.rename(target)


if __name__ == "__main__":
    main()
