"""Starts a rank of Horovod where horovodrun cannot: in the network namespaces of `gradbus run --link`.

    gradbus run -np 2 --agents 2 --link 1gbit -- python horovod_in_lab.py FILE python train.py ...

Does what horovodrun does: rank 0 serves the rendezvous of Gloo and writes its address into FILE (a path
that every rank sees; it must not exist yet); every rank gets Horovod's variables and becomes the program.
One rank per agent.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import sys
import time

SIOCGIFADDR = 0x8915  # linux/sockios.h
CLONE_NEWUTS = 0x04000000  # linux/sched.h
MEET_DEADLINE_S = 60


def address_of(interface: str) -> str:
    """Its IPv4 address, "" when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            answer = fcntl.ioctl(query.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def reachable_interface() -> tuple[str, str]:
    """(name, address) by which the other ranks reach this one."""
    for _, name in socket.if_nameindex():
        address = address_of(name)
        if address and not address.startswith("127."):
            return name, address
    sys.exit("horovod_in_lab: no interface has an address | next: start it with gradbus run --agents 2 --link 1gbit")


def be_named(address: str) -> None:
    """Gives this process a host name of its own, which is its address. Horovod 0.28 makes the Gloo context of
    a process set on the interface of the host name, whatever HOROVOD_GLOO_IFACE says."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS) != 0:
        sys.exit(f"horovod_in_lab: unshare: {os.strerror(ctypes.get_errno())} | next: run as root, as --link does")
    socket.sethostname(address)


def serve_rendezvous(size: int, address: str, meeting: pathlib.Path) -> object:
    """Starts the server (in threads of this process) and tells the others where it is."""
    from horovod.runner.common.util import hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(verbose=0)
    port = server.start()
    plan = hosts.get_host_assignments([hosts.HostInfo(f"rank-{rank}", 1) for rank in range(size)], size)
    server.init(plan)
    draft = meeting.with_suffix(".draft")
    draft.write_text(f"{address} {port}")
    draft.rename(meeting)  # so that nobody reads half of it
    return server


def meet(meeting: pathlib.Path) -> tuple[str, str]:
    """(address, port) that rank 0 wrote."""
    until = time.monotonic() + MEET_DEADLINE_S
    while not meeting.exists():
        if time.monotonic() > until:
            sys.exit(f"horovod_in_lab: no {meeting} after {MEET_DEADLINE_S} s | next: see what rank 0 printed")
        time.sleep(0.02)
    address, port = meeting.read_text().split()
    return address, port


def variables(rank: int, size: int, interface: str, address: str, port: str) -> dict[str, str]:
    """This process's environment for a rank of Horovod, without Gradbus's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRADBUS_")}
    return {**kept, "HOROVOD_RANK": str(rank), "HOROVOD_SIZE": str(size), "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1", "HOROVOD_CROSS_RANK": str(rank), "HOROVOD_CROSS_SIZE": str(size),
            "HOROVOD_HOSTNAME": f"rank-{rank}", "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port, "HOROVOD_GLOO_IFACE": interface,
            "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}


def main() -> int:
    """One rank."""
    meeting, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
    rank, size = int(os.environ["GRADBUS_RANK"]), int(os.environ["GRADBUS_SIZE"])
    interface, own_address = reachable_interface()
    be_named(own_address)
    server = serve_rendezvous(size, own_address, meeting) if rank == 0 else None
    address, port = meet(meeting)
    environment = variables(rank, size, interface, address, port)
    if server is None:
        os.execvpe(command[0], command, environment)
    try:
        return subprocess.call(command, env=environment)
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
