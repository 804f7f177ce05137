"""A rank that forks: `forked.py torch|calls|c LIBRARY`. The child writes and calls; nothing of it may reach the parent.

torch: the child overwrites gradients, parameters and its copy of every view, and then ends by sys.exit().
calls: what the child calls is refused, and it may leave by shutdown().
c:     the same of the C interface, with a registered tensor.
"""

import ctypes
import os
import sys
import traceback

import gradbus.torch as gradbus
import torch


def in_child(work):
    """Runs `work` in a forked child that ends as a Python program does; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.exit(0)  # atexit handlers and destructors run, as in a child of multiprocessing
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def through_torch():
    gradbus.init()
    torch.manual_seed(gradbus.rank())
    model = torch.nn.Linear(40_000, 3)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), broadcast=True
    )
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 40_000)).sum().backward()
        before = [p.grad.clone() for p in model.parameters()]
        assert all(bool((grad == 2).all()) for grad in before)

        def scribble():
            for parameter in model.parameters():
                assert bool((parameter.grad == 2).all())  # it reads what the parent has
                parameter.grad.fill_(666)
                parameter.data.fill_(666)
                assert bool((parameter.grad == 666).all())  # ... and changes its own copy

        assert in_child(scribble) == 0
        assert all(torch.equal(p.grad, was) for p, was in zip(model.parameters(), before))
        gradbus.barrier()
        assert all(torch.equal(p.grad, was) for p, was in zip(model.parameters(), before))
        optimizer.step()
    assert abs(float(model.bias[0])) < 10, model.bias


def refuses(call):
    try:
        call()
    except gradbus.GradbusError as error:
        assert "GB-O907 FORKED" in str(error) and "spawn" in str(error), error
        return
    raise AssertionError("was accepted")


def calls():
    gradbus.init()
    assert gradbus.allreduce(torch.ones(3), op=gradbus.Sum, name="x").tolist() == [2.0] * 3
    handle = gradbus.allreduce_async(torch.ones(3), op=gradbus.Sum, name="y")

    def attempts():
        refuses(lambda: gradbus.allreduce(torch.ones(3), name="x"))
        refuses(gradbus.barrier)
        refuses(lambda: gradbus.unregister("x"))
        refuses(lambda: gradbus.synchronize(handle))
        gradbus.shutdown()

    if gradbus.rank() == 0:
        assert in_child(attempts) == 0
    assert gradbus.synchronize(handle).tolist() == [2.0] * 3
    assert gradbus.allreduce(torch.ones(3), op=gradbus.Sum, name="x").tolist() == [2.0] * 3


def through_c(library):
    import c_rank

    rank = c_rank.Rank(library)
    rank.register({"weight": 100_000}, "")
    (data,) = rank.data

    def attempts():
        assert bool((data == 2.5).all())
        data[:] = 666.0
        tensor = rank.tensors[0]
        for name, arguments in (
            ("start", (tensor,)), ("wait", (tensor, ctypes.c_int64(-1))), ("barrier", (rank.session,)),
        ):  # fmt: skip
            try:
                rank.call(name, *arguments)
                raise AssertionError(f"{name} was accepted")
            except c_rank.Refused as refused:
                assert "GB-O907 FORKED" in str(refused), refused
        rank.shutdown()

    for _ in range(3):
        data[:] = 2.0 if rank.number == 0 else 3.0
        rank.call("start", rank.tensors[0])
        rank.call("wait", rank.tensors[0], ctypes.c_int64(-1))
        assert in_child(attempts) == 0
        assert bool((data == 2.5).all()), data
        rank.call("barrier", rank.session)
    rank.shutdown()


def main():
    what, library = sys.argv[1:]
    if what == "c":
        through_c(library)
    else:
        {"torch": through_torch, "calls": calls}[what]()
        gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()
