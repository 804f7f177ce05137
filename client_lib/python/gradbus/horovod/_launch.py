"""``horovod.run()``: calls a function on several ranks, which ``gradbus run`` starts. Main thread."""

from __future__ import annotations

import importlib
import os
import pathlib
import pickle
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..__main__ import words_of
from .._errors import PeerLostError, UnavailableError, bad_argument

# Options of horovod.run() that `gradbus run` knows under these names.
_OPTIONS = {
    "hosts": "-H", "hostfile": "--hostfile", "start_timeout": "--start-timeout", "output_filename": "--output-filename",
}  # fmt: skip
# Those that are words for ssh.
_SSH_OPTIONS = {"ssh_port": "-p", "ssh_identity_file": "-i"}
# Those that change nothing here.
_IGNORED = ("disable_cache", "use_gloo", "use_mpi", "network_interface", "network_interfaces", "slots")


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    num_proc: int = 1,
    *,
    np: int | None = None,
    executable: str | None = None,
    verbose: int | None = None,
    env: dict[str, str] | None = None,
    **options: Any,
) -> list[Any]:
    """What ``func(*args, **kwargs)`` returned on each rank, by rank.

    Args:
        func: with its arguments and results it passes through cloudpickle if that is installed, else pickle.
        num_proc: how many ranks; ``np`` is its older name.
        executable: the Python of the ranks, default this one.
        env: environment of the ranks, default this one's.
        options: hosts, hostfile, start_timeout, ssh_port, ssh_identity_file and output_filename of horovod.run().
            On other hosts the folder of temporary files must be shared.

    Raises InvalidError for other options, and PeerLostError if a rank fails, with what was said last.
    """
    number = num_proc if np is None else np
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise bad_argument(f"run: num_proc={number!r}", "pass a number of ranks, at least 1")
    if not callable(func):
        raise bad_argument(f"run: {func!r} is no function", "pass a function, and its arguments as args=")
    words = _words(options)
    with tempfile.TemporaryDirectory(prefix="gradbus-function-") as name:
        folder = pathlib.Path(name)
        (folder / "call").write_bytes(pickled((func, tuple(args), kwargs or {})))
        command = words_of("run", "-np", str(number), *words)
        command += ["--", executable or sys.executable, "-m", "gradbus.horovod._function", name]
        _call(command, env, bool(verbose))
        return [_result_of(folder, rank) for rank in range(number)]


def _words(options: dict[str, Any]) -> list[str]:
    words: list[str] = []
    ssh: list[str] = []
    for option, value in options.items():
        if value is None:
            continue
        if option in _OPTIONS:
            words += [_OPTIONS[option], str(value)]
        elif option in _SSH_OPTIONS:
            ssh += [_SSH_OPTIONS[option], str(value)]
        elif option in _IGNORED:
            if value is False:
                continue
            warnings.warn(f"run: {option}={value!r} changes nothing in Gradbus", RuntimeWarning, stacklevel=3)
        else:
            raise bad_argument(
                f"run: Gradbus has no {option}=", "leave it out; the number of ranks of a job does not change"
            )
    return [*words, "--ssh", shlex.join(["ssh", "-o", "BatchMode=yes", *ssh])] if ssh else words


def pickled(call: Any) -> bytes:
    """Raises InvalidError for what cannot be."""
    try:
        pickler: Any = importlib.import_module("cloudpickle")
    except ImportError:
        pickler = pickle
        if getattr(call[0] if isinstance(call, tuple) else None, "__module__", "") == "__main__":
            raise bad_argument(
                "run: without cloudpickle, ranks cannot import a function of the script that calls run()",
                "install cloudpickle, or put the function into a module",
            ) from None
    try:
        return pickler.dumps(call)  # type: ignore[no-any-return]
    except Exception as error:
        raise bad_argument(
            f"run: the function or its arguments cannot be pickled: {error}",
            "install cloudpickle, or pass a function of a module, and arguments that pickle takes",
        ) from error


def _call(command: list[str], env: dict[str, str] | None, verbose: bool) -> None:
    """Prints what the ranks say, and raises what was said last if one fails."""
    variables = dict(os.environ if env is None else env)
    # Functions of the caller's modules are imported by name on the ranks.
    variables["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    if verbose:
        print("gradbus:", shlex.join(command), file=sys.stderr)
    last: list[str] = []
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        for line in job.stdout:
            sys.stdout.write(line)
            last = [*last[-3:], line.strip()]
    if job.returncode != 0:
        raise PeerLostError(
            f"GB-H202 RANK_FAILED: run: the job ended with status {job.returncode}: {' / '.join(last)}"
            " | next: look at the output above"
        )


def _result_of(folder: pathlib.Path, rank: int) -> Any:
    try:
        return pickle.loads((folder / f"result.{rank}").read_bytes())
    except FileNotFoundError:
        raise UnavailableError(
            f"GB-H202 RANK_FAILED: run: rank {rank} has left no result in {folder}"
            " | next: let TMPDIR be a folder that all hosts share"
        ) from None
