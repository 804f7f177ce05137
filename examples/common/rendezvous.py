"""Where the ranks of a torch process group meet, under any launcher.

torchrun sets MASTER_ADDR and MASTER_PORT; Gradbus needs neither, so under `gradbus run` the ranks agree
on what is missing through Gradbus and then leave its job. Gloo also wants the network interface to use;
in network namespaces (`gradbus run --link`) the one it would guess is wrong.
"""

from __future__ import annotations

import array
import datetime
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface
NAMED = ("MASTER_ADDR", "MASTER_PORT")


def timeout(seconds: int) -> datetime.timedelta:
    """As torch wants it."""
    return datetime.timedelta(seconds=seconds)


def prepare(timeout_s: int) -> tuple[int, int]:
    """Completes the variables that env:// reads; (rank, size)."""
    rank = int(os.environ.get("RANK", os.environ.get("GRADBUS_RANK", "0")))
    size = int(os.environ.get("WORLD_SIZE", os.environ.get("GRADBUS_SIZE", "1")))
    if not all(name in os.environ for name in NAMED):
        address, port = _agree(timeout_s) if size > 1 else ("127.0.0.1", _free_port("127.0.0.1"))
        os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    interface = _interface_towards(os.environ["MASTER_ADDR"])
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    return rank, size


def _agree(timeout_s: int) -> tuple[str, int]:
    """Rank 0's address and a free port of it, known to all ranks."""
    import gradbus

    gradbus.init(start_timeout=timeout_s, op_timeout=timeout_s)
    one_network = len(set(gradbus.allgather_object(_network()))) == 1
    address = os.environ.get("MASTER_ADDR") or ("127.0.0.1" if one_network else _own_address())
    offer = (address, _free_port(address)) if gradbus.rank() == 0 else None  # the address is rank 0's
    meeting = gradbus.broadcast_object(offer, root_rank=0)
    gradbus.shutdown()
    return meeting


def _network() -> str:
    """Equal on two ranks when 127.0.0.1 is the same for both."""
    with open("/proc/sys/kernel/random/boot_id") as boot:
        return boot.read().strip() + os.readlink("/proc/self/ns/net")


def _interfaces() -> dict[str, str]:
    """IPv4 address of every interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("16s240x", name.encode()))
            try:
                fcntl.ioctl(query.fileno(), SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(request.tobytes()[20:24])
    return found


def _own_address() -> str:
    """The first address that others can reach."""
    others = [address for address in _interfaces().values() if not address.startswith("127.")]
    return others[0] if others else "127.0.0.1"


def _interface_towards(host: str) -> str:
    """The interface whose address this process uses to talk to `host`; "" when there is no telling."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing: asks the routing table
            ours = probe.getsockname()[0]
    except OSError:
        return ""
    if ours.startswith("127."):
        ours = "127.0.0.1"
    return next((name for name, address in _interfaces().items() if address == ours), "")


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]
