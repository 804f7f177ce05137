"""Bytes that look like an object of another rank but carry no proof of the job are not unpickled.

Rank 0 sends them as an intruder would who has got into a collective: by hand.
"""

import pickle
import sys

import gradbus
from gradbus import _core, _session
from gradbus._parts import Collective, int64

NAME = "intruder"
ran = []


class Trap:
    """Unpickling it runs code."""

    def __reduce__(self):
        return (exec, ("import builtins; builtins.trapped = True",))


def send_by_hand(session, payload):
    """What broadcast_object sends: the length, then the bytes."""
    length = int64([len(payload)])
    session.start([_core.Request(Collective.BROADCAST, f"{NAME}/length", output=length, root=0)]).wait()
    body = bytearray(1024)
    body[: len(payload)] = payload
    session.start([_core.Request(Collective.BROADCAST, f"{NAME}/body1024", output=body, root=0)]).wait()


gradbus.init()
session = _session.current()
rank = gradbus.rank()
payload = pickle.dumps(Trap(), protocol=4)
for forged in (payload, bytes(32) + payload, session.job_secret() + payload, b""):
    if rank == 0:
        send_by_hand(session, forged)
        continue
    try:
        gradbus.broadcast_object(None, 0, name=NAME)
    except gradbus.PermissionError as error:
        assert "GB-J409 OBJECT_NOT_PROVEN" in str(error) and "rank 0" in str(error), error
        assert "| next: " in str(error)
    else:
        sys.exit("an object without proof was taken")
import builtins  # noqa: E402

assert not hasattr(builtins, "trapped")

# The job goes on, and real objects arrive.
assert gradbus.broadcast_object({"rank": rank}, 1) == {"rank": 1}
assert gradbus.allgather_object((rank, "x" * (rank + 1) * 5000)) == [
    (other, "x" * (other + 1) * 5000) for other in range(gradbus.size())
]
secrets = gradbus.allgather_object(session.job_secret())
assert len(set(secrets)) == 1 and len(secrets[0]) == 32 and any(secrets[0])
pair = gradbus.add_process_set([0, 1])
if rank < 2:
    assert gradbus.broadcast_object(rank, 0, process_set=pair) == 0
gradbus.shutdown()
print("ok")
