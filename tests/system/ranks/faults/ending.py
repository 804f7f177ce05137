"""A rank: rank 0 shuts down beside calls of its other threads, which wait for rank 1. They raise ClosedError."""

import os
import threading
import time

import gradbus
import numpy

PAUSE_S = 0.3  # until the other thread is inside its call
LEAVE_S = 20  # far below every deadline
CALLS = {
    "allreduce": lambda: gradbus.allreduce(numpy.ones(5, numpy.float32), name="alone"),
    "large": lambda: gradbus.allreduce(numpy.ones(4 << 20, numpy.float32), name="large"),
    "barrier": gradbus.barrier,
    "process set": lambda: gradbus.add_process_set([0, 1]),
    "handle": lambda: gradbus.synchronize(gradbus.allreduce_async(numpy.ones(5, numpy.float32), name="handle")),
}


def stay(rank):
    """Until rank 0 has left."""
    try:
        gradbus.barrier()
        raise AssertionError(f"rank {rank} passed a barrier that rank 0 left")
    except gradbus.PeerLostError:
        gradbus.shutdown()


def leave_beside(name, call):
    errors = []

    def run():
        try:
            call()
        except gradbus.GradbusError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(PAUSE_S)
    began = time.monotonic()
    gradbus.shutdown()
    thread.join()
    took = time.monotonic() - began
    assert isinstance(errors[0], gradbus.ClosedError) and "GB-O908 SHUT_DOWN" in str(errors[0]), (name, errors)
    assert took < LEAVE_S, (name, took)


def main():
    for number, (name, call) in enumerate(CALLS.items()):
        gradbus.init(job=f"ending-{number}", rank=int(os.environ["GRADBUS_RANK"]), size=2)
        gradbus.allreduce(numpy.ones(1, numpy.float32), name="together")
        if gradbus.rank() == 1 and name == "barrier":
            time.sleep(2 * PAUSE_S)
        leave_beside(name, call) if gradbus.rank() == 0 else stay(1)
    print("ok")


main()
