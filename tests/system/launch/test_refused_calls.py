"""Systems that refuse a call or a resource: containers without pidfd_open, processes with few descriptors."""

import ctypes
import platform
import resource
import struct
import subprocess
import time

import pytest
import rig as rigs

GRADBUS = str(rigs.BIN / "gradbus")
SCRIPTED_RANK = str(rigs.BIN / "scripted_rank")
DEADLINE_S = 60.0
PIDFD_OPEN, GETSOCKOPT, SO_PEERPIDFD = 434, 55, 77  # x86-64
EPERM, ENOPROTOOPT = 1, 92
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter has x86-64's numbers")


def refuse_pidfds():
    """As older Docker profiles: pidfd_open ends with EPERM; and as kernels before 6.5: there is no SO_PEERPIDFD."""
    program = [
        (LOAD, 0, 0, 0),  # the call's number
        (JUMP_IF_EQUAL, 0, 1, PIDFD_OPEN), (RETURN, 0, 0, REFUSE | EPERM),
        (JUMP_IF_EQUAL, 0, 3, GETSOCKOPT),
        (LOAD, 0, 0, 16 + 2 * 8),  # its third argument
        (JUMP_IF_EQUAL, 0, 1, SO_PEERPIDFD), (RETURN, 0, 0, REFUSE | ENOPROTOOPT),
        (RETURN, 0, 0, ALLOW),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in program))
    filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0)):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def run(words, **options):
    return subprocess.run(words, text=True, capture_output=True, timeout=DEADLINE_S, check=False, **options)


@needs_x86
def test_the_filter_refuses():
    """Else the tests below would show nothing."""
    look = "import os, sys\ntry: os.pidfd_open(os.getpid())\nexcept PermissionError: sys.exit(7)"
    assert run(["python3", "-c", look], preexec_fn=refuse_pidfds).returncode == 7


@needs_x86
@pytest.mark.parametrize("command, status", [
    ([SCRIPTED_RANK, "red:x:1000:i64:sum"], 0), (["sh", "-c", "exit 5"], 5), (["sh", "-c", "kill -9 $$"], 137),
    (["/nowhere/program"], 127),
])  # fmt: skip
def test_run_works_without_pidfd_open(command, status):
    done = run([GRADBUS, "run", "-np", "3", "--agents", "2", "--", *command], preexec_fn=refuse_pidfds)
    assert done.returncode == status, done.stdout + done.stderr


@needs_x86
def test_an_agent_sees_a_death_without_pidfd_open(monkeypatch, tmp_path):
    """A child of the rank holds its socket, so only the watch of the process can tell."""
    start = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen",
                        lambda *words, **options: start(*words, preexec_fn=refuse_pidfds, **options))
        running = rigs.cluster(1)
        rig = running.__enter__()
    try:
        loop = ["python3", "-c", HOLD_THE_SOCKET, str(rigs.BIN.parent / "lib/libgradbus.so")]
        ranks = [rig.start_rank(rank, 2, program=loop) for rank in range(2)]
        rig.wait_for_rank(0)
        rig.wait_for_rank(1)
        assert ranks[1].process.stdout.readline() == "joined\n"
        killed = time.monotonic()
        ranks[1].process.kill()
        status, output = ranks[0].finish(DEADLINE_S)
        assert status == 7 and "GB-P101" in output, (status, output)
        assert time.monotonic() - killed < 20
    finally:
        running.__exit__(None, None, None)


# Joins, leaves a child with a copy of the socket behind, and works until an error ends it.
HOLD_THE_SOCKET = """
import ctypes, os, sys, time
library = ctypes.CDLL(sys.argv[1])
library.gradbus_last_error.restype = ctypes.c_char_p
session = ctypes.c_void_p()
code = library.gradbus_init(None, ctypes.byref(session))
if os.fork() == 0:
    os.close(1), os.close(2)
    time.sleep(30)
    os._exit(0)
print("joined", flush=True)
while code == 0:
    code = library.gradbus_barrier(session)
print(library.gradbus_last_error().decode(), flush=True)
sys.exit(7)
"""


@pytest.mark.parametrize("limit", [8, 24, 32, 64])
def test_few_descriptors_are_named_as_the_cause(limit):
    done = run([GRADBUS, "run", "-np", "2", "--", "true"],
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    assert done.returncode != 0
    assert "GB-S220 NO_DESCRIPTORS" in done.stderr and "ulimit -n" in done.stderr, done.stderr
    assert str(limit) in done.stderr and "Bad file descriptor" not in done.stderr


@pytest.mark.parametrize("limit", [8, 16, 63])
def test_a_daemon_with_few_descriptors_names_the_cause(limit, tmp_path):
    for words in (["gradbus-agent", "--socket", str(tmp_path / "a.sock"), "--bind", "127.0.0.1:0"],
                  ["gradbus-server", "--role=coordinator", "--listen", "127.0.0.1:0"]):
        done = run([rigs.BIN / words[0], *words[1:]],
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        assert done.returncode == 1 and "GB-S220 NO_DESCRIPTORS" in done.stderr, done
        assert f"may open {limit} files" in done.stderr
