"""A rank in a launcher: `forked_rank.py SOCKET PYTHON PROGRAM WORDS...` runs the program in a fork of a server.

See fork_server.py. If this process is in another place than the server, or has other variables that Python
reads when it starts, Python itself is run.
"""

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("i")


def place() -> list[str]:
    """As the server's."""
    names = [os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "net", "pid", "user")]
    with open("/proc/self/cgroup") as group:
        return [str(os.geteuid()), *names, group.read()]


def main() -> None:
    """Stays until the rank has ended, and ends like it."""
    path, *command = sys.argv[1:]
    job = {"command": command[1:], "env": dict(os.environ), "folder": os.getcwd(),
           "processors": list(os.sched_getaffinity(0)), "place": place()}  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        socket.send_fds(server, [json.dumps(job).encode()], [0, 1, 2])
        begun = server.recv(NUMBER.size)
        if not begun:
            os.execv(command[0], command)
        (rank,) = NUMBER.unpack(begun)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda got, _: os.kill(rank, got))
        ended = server.recv(NUMBER.size)
    status = NUMBER.unpack(ended)[0] if ended else 1
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)


main()
