"""A rank in trouble: `trouble.py MODE` prints what went wrong and how long it took to notice, as JSON."""

import json
import os
import signal
import sys
import threading
import time

import gradbus.torch as gradbus
import numpy as np
import torch


def report(error, began):
    print(
        json.dumps(
            {"error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - began}
        )
    )


def expect(kinds, call):
    began = time.monotonic()
    try:
        call()
    except kinds as error:
        report(error, began)
    else:
        sys.exit("no error")


def wrapped(hidden):
    model = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, gradbus.DistributedOptimizer(optimizer, model.named_parameters())


def other_width():
    """Rank 1 has a wider layer: the same bucket, another size."""
    expect(gradbus.MismatchError, lambda: wrapped(8 if gradbus.rank() == 1 else 4))


def other_layers():
    """Rank 1 has a layer more: another bucket name."""

    def build():
        layers = 2 if gradbus.rank() == 1 else 1
        model = torch.nn.ModuleDict({f"layer{n}": torch.nn.Linear(4, 4) for n in range(layers)})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gradbus.DistributedOptimizer(optimizer, model.named_parameters())

    expect(gradbus.MismatchError, build)


def other_dtype():
    dtype = np.float64 if gradbus.rank() == 1 else np.float32
    expect(gradbus.MismatchError, lambda: gradbus.allreduce(np.ones(3, dtype), name="loss"))


def other_name():
    """Each rank waits for a tensor that no other rank has: nobody could ever go on."""
    expect(gradbus.MismatchError, lambda: gradbus.allreduce(np.ones(3), name=f"of{gradbus.rank()}"))


def killed():
    """Rank 1 dies in backward of the third step."""
    model, optimizer = wrapped(4)

    def steps():
        for step in range(1000):
            if gradbus.rank() == 1 and step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    expect(gradbus.PeerLostError, steps)


def killed_with_child():
    """Rank 1 dies but leaves a forked child (a data loader) that inherited everything it had open."""
    gradbus.barrier()
    if gradbus.rank() == 1:
        if os.fork() == 0:
            os.closerange(0, 3)  # not the test's pipe
            time.sleep(20)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    expect(gradbus.PeerLostError, lambda: gradbus.allreduce(np.ones(3), name="never"))


def late():
    """Rank 1 does not come in time; then it does, and the same handle delivers.

    Rank 0 makes the file argv[2] when its wait has ended.
    """
    gradbus.allreduce(np.zeros(3, "int64"), name="late")
    while gradbus.rank() == 1 and not os.path.exists(sys.argv[2]):
        time.sleep(0.01)
    handle = gradbus.allreduce_async(np.full(3, gradbus.rank(), "int64"), name="late")
    if gradbus.rank() == 0:
        expect(gradbus.TimeoutError, lambda: gradbus.synchronize(handle, timeout=0.8))
        open(sys.argv[2], "w").close()
    assert gradbus.synchronize(handle).tolist() == [0, 0, 0]  # whole numbers: 1 / 2 truncates
    gradbus.barrier()


def interrupted():
    """Ctrl-C while rank 0 waits, in each call that waits."""
    model = torch.nn.Linear(2, 2)
    calls = [
        lambda: gradbus.allreduce(np.ones(3), name="never"),
        gradbus.barrier,
        lambda: gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1)),
    ]
    gradbus.barrier()
    if gradbus.rank() == 1:
        time.sleep(60)  # the test ends it
        os._exit(0)
    slowest = max(interrupted_after(call) for call in calls)
    print(json.dumps({"seconds": slowest}), flush=True)
    os._exit(0)


def interrupted_after(call):
    """Seconds from SIGINT to KeyboardInterrupt."""
    sent = []

    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, send)
    try:
        timer.start()
        call()
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        timer.cancel()
    sys.exit("no KeyboardInterrupt")


def interrupted_init():
    """Ctrl-C while the other rank never comes."""
    print(json.dumps({"seconds": interrupted_after(gradbus.init)}), flush=True)
    os._exit(0)


def main():
    mode = sys.argv[1]
    if mode != "interrupted_init":
        gradbus.init()
    globals()[mode]()


if __name__ == "__main__":
    main()
