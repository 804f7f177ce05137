"""A world of one, without any daemon: arguments, errors, lifetimes and Ctrl-C need no second rank."""

import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings

import gradbus.torch as gradbus
import numpy as np
import torch


def refused(kind, *parts):
    """A context that expects a one-line error of this kind whose text has all `parts`."""

    class Context:
        def __enter__(self):
            return self

        def __exit__(self, got, error, trace):
            assert got is not None, f"no {kind.__name__}"
            assert issubclass(got, kind) and issubclass(got, RuntimeError), (got, error)
            text = str(error)
            assert "GB-" in text and "| next: " in text and "\n" not in text, text
            assert all(part in text for part in parts), (parts, text)
            assert error.code == kind.code
            return True

    return Context()


def check_before_init():
    for call in (
        gradbus.rank,
        gradbus.barrier,
        lambda: gradbus.allreduce(np.ones(1)),
        lambda: gradbus.DistributedOptimizer(torch.optim.SGD([torch.ones(1)], lr=1)),
    ):
        with refused(gradbus.ClosedError, "gradbus.init()"):
            call()
    assert not gradbus.is_initialized()
    gradbus.shutdown()  # nothing to do


def check_bad_init():
    nan, infinite = float("nan"), float("inf")
    for name, value in (
        ("rank", -1),
        ("rank", nan),
        ("rank", "0"),
        ("size", 0),
        ("size", 2.0),
        ("size", 2**40),
        ("start_timeout", nan),
        ("op_timeout", 0),
        ("op_timeout", infinite),
        ("start_timeout", "5"),
        ("job", [0, 1]),
        ("socket", 3),
        ("process_sets", 5),
    ):
        with refused(gradbus.InvalidError, f"init: {name}={value!r}"):
            gradbus.init(**{name: value})
    with refused(gradbus.InvalidError):
        gradbus.init(rank=3, size=2)
    os.environ["GRADBUS_SIZE"] = "many"
    os.environ["GRADBUS_RANK"] = "0"
    with refused(gradbus.InvalidError, "GRADBUS_SIZE", "many"):
        gradbus.init()
    del os.environ["GRADBUS_SIZE"], os.environ["GRADBUS_RANK"]
    with refused(gradbus.UnavailableError, "/nowhere/agent.sock"):
        gradbus.init(job="j", rank=0, size=2, socket="/nowhere/agent.sock")
    assert not gradbus.is_initialized()


def check_place():
    gradbus.init()
    gradbus.init()  # again, without arguments: nothing
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gradbus.init(size=1, rank=0, op_timeout=None)  # what it is: nothing
        assert not seen, seen
        gradbus.init(size=3, op_timeout=5, process_sets=[[0]])
    said = str(seen[0].message)
    assert "size=3, op_timeout=5, process_sets=[[0]] changes nothing" in said, said
    assert gradbus.size() == 1
    place = [
        gradbus.rank(),
        gradbus.size(),
        gradbus.local_rank(),
        gradbus.local_size(),
        gradbus.cross_rank(),
        gradbus.cross_size(),
    ]
    assert place == [0, 1, 0, 1, 0, 1], place
    assert gradbus.__version__.count(".") == 2


def check_bad_tensors():
    invalid = gradbus.InvalidError
    with refused(invalid, "allreduce: tensor 'flags'", "bool"):
        gradbus.allreduce(torch.ones(2, dtype=torch.bool), name="flags")
    with refused(invalid, "complex64"):
        gradbus.allreduce(torch.ones(2, dtype=torch.complex64), op=gradbus.Min)
    with refused(invalid, "sparse"):
        gradbus.allreduce(torch.ones(2, 2).to_sparse_csr())
    with refused(invalid, "op=", "gradbus.Sum"):
        gradbus.allreduce(torch.ones(2).to_sparse(), op=gradbus.Min)
    with refused(invalid, "meta"):
        gradbus.allreduce(torch.ones(2, device="meta"))
    with refused(invalid, "writable"):
        gradbus.allreduce_(b"frozen")
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with refused(invalid, "writable"):
        gradbus.broadcast_(frozen)
    with refused(invalid, ">f4"):
        gradbus.allreduce(np.ones(3, dtype=">f4"))
    with refused(invalid, "op=99", "gradbus.Adasum"):
        gradbus.allreduce(np.ones(3), op=99)
    for root in (-1, 1, 1.0):
        with refused(invalid, f"root_rank={root!r}"):
            gradbus.broadcast(np.ones(3), root_rank=root)
    with refused(invalid, "allgather: tensor 'x'", "object"):
        gradbus.allgather(np.array([object()]), name="x")


def check_bad_reductions():
    invalid = gradbus.InvalidError
    with refused(invalid, "float64", "gradbus.BitOr is not defined"):
        gradbus.allreduce(np.ones(3), op=gradbus.BitOr)
    with refused(invalid, "int64", "gradbus.Adasum is not defined"):
        gradbus.allreduce(np.ones(3, "int64"), op=gradbus.Adasum)
    with refused(invalid, "op=<ReduceOp.ADASUM: 8>"):
        gradbus.reduce(np.ones(3), op=gradbus.Adasum)
    with refused(invalid, "reducescatter: op="):
        gradbus.reducescatter(np.ones(3), op=gradbus.Adasum)
    with refused(invalid, "tensor 'n'", "a scalar"):
        gradbus.reducescatter(np.float32(3), name="n")
    with refused(invalid, "reduce: root_rank=1"):
        gradbus.reduce(np.ones(3), root_rank=1)
    with refused(invalid, "reduce: the tensor is a list"):
        gradbus.reduce(["one"])
    for bad in (0, float("nan"), float("inf"), "much", None):
        with refused(invalid, f"prescale_factor={bad!r}"):
            gradbus.allreduce(np.ones(3), prescale_factor=bad)
        with refused(invalid, f"postscale_factor={bad!r}"):
            gradbus.reducescatter(np.ones(3), postscale_factor=bad)
    with refused(invalid, "grouped_allreduce: tensor 'g.1'", "complex128"):
        gradbus.grouped_allreduce([np.ones(2), np.ones(2, complex)], name="g", op=gradbus.Max)
    assert gradbus.grouped_allreduce([]) == []


def check_bad_moves():
    invalid = gradbus.InvalidError
    for call in (gradbus.gather, gradbus.scatter, gradbus.broadcast):
        with refused(invalid, "root_rank=5"):
            call(np.ones(3), root_rank=5)
    for call in (gradbus.gather, gradbus.scatter, gradbus.alltoall, gradbus.allgather):
        with refused(invalid, "the tensor is a str"):
            call("text")
    with refused(invalid, "scatter: tensor 's'", "shape ()"):
        gradbus.scatter(np.float32(1), name="s")
    for splits in ([1], [4], [-3], [1, 2], [], ["3"], [3.0], np.array([2.5])):
        with refused(invalid, "alltoall: the tensor", "splits="):
            gradbus.alltoall(np.ones(3), splits)
    with refused(invalid, "'o'", "object"):
        gradbus.alltoall(np.array([object()]), name="o")


def check_wrong_types():
    """One line each, whatever is passed."""
    x = np.ones(2)
    calls = (
        (lambda: gradbus.allreduce(x, False), "name=False"),
        (lambda: gradbus.allreduce(x, name=3), "name=3"),
        (lambda: gradbus.allreduce(x, name="a\0b"), "NUL"),
        (lambda: gradbus.broadcast_(x, name=b"n"), "name=b'n'"),
        (lambda: gradbus.allgather(x, name=1.5), "name=1.5"),
        (lambda: gradbus.allreduce(x, op="sum"), "op='sum'"),
        (lambda: gradbus.allreduce(x, op=True), "op=True"),
        (lambda: gradbus.allreduce(x, compression=16), "compression=16"),
        (lambda: gradbus.allreduce(x, process_set=0), "process_set=0"),
        (lambda: gradbus.allreduce(None), "NoneType"),
        (lambda: gradbus.allreduce({"a": x}), "dict"),
        (lambda: gradbus.grouped_allreduce(x[0]), "no list"),
        (lambda: gradbus.grouped_allreduce(3), "no list"),
        (lambda: gradbus.grouped_allgather(None), "no list"),
        (lambda: gradbus.alltoall(x, 2), "splits=2"),
        (lambda: gradbus.broadcast(x, "0"), "root_rank='0'"),
        (lambda: gradbus.broadcast_object(1, name=2), "name=2"),
        (lambda: gradbus.allgather_object(1, name="a\0"), "NUL"),
        (lambda: gradbus.synchronize(x), "no handle"),
        (lambda: gradbus.poll(None), "no handle"),
        (lambda: gradbus.synchronize(gradbus.allreduce_async(x), "soon"), "timeout='soon'"),
        (lambda: gradbus.add_process_set(3), "3"),
        (lambda: gradbus.remove_process_set([0]), "process_set"),
        (lambda: gradbus.barrier("all"), "process_set='all'"),
    )
    for number, (call, part) in enumerate(calls):
        with refused(gradbus.InvalidError, part, " | next: "):
            call()
            print("accepted: call", number)
    assert issubclass(gradbus.GradbusError, RuntimeError)


def check_bad_process_sets():
    invalid = gradbus.InvalidError
    for ranks, part in (([1], "0..0"), ([0, 0], "twice"), ([], "empty"), ([0.5], "[0.5]")):
        with refused(invalid, part):
            gradbus.add_process_set(ranks)
    intruders = gradbus.ProcessSet([0])
    with refused(invalid, "[0] is not known", "add_process_set"):
        gradbus.barrier(intruders)
    with refused(invalid, "process_set=[0]"):
        gradbus.allreduce(np.ones(1), process_set=[0])
    alone = gradbus.add_process_set(intruders)
    assert alone is intruders and alone.rank() == 0 and alone.size() == 1 and alone.included()
    assert gradbus.allreduce(np.ones(2), process_set=alone).tolist() == [1, 1]
    with refused(invalid, "root_rank=1", "one of [0]"):
        gradbus.broadcast(np.ones(1), 1, process_set=alone)
    with refused(invalid, "already"):
        gradbus.add_process_set([0])
    assert gradbus.remove_process_set(alone)
    assert gradbus.global_process_set.size() == 1 and gradbus.global_process_set.included()


def check_an_optimizer_of_a_set_outlives_it():
    """Its gradients lie in the set's memory: removing the set makes them copies."""
    own = gradbus.add_process_set([0])
    layer = torch.nn.Linear(2, 2)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1), layer.named_parameters(), process_set=own
    )
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    assert gradbus.remove_process_set(own)
    assert layer.weight.grad.tolist() == [[1, 1], [1, 1]]
    with refused(gradbus.ClosedError, "shut down"):
        optimizer.step()


def check_bad_optimizers():
    invalid = gradbus.InvalidError
    layer = torch.nn.Linear(2, 2)
    plain = torch.optim.SGD(layer.parameters(), lr=0.1)
    with refused(invalid, "str"):
        gradbus.DistributedOptimizer("sgd")
    with refused(invalid, "backward_passes_per_step=0"):
        gradbus.DistributedOptimizer(plain, backward_passes_per_step=0)
    with refused(invalid, "bucket_bytes=1.5"):
        gradbus.DistributedOptimizer(plain, bucket_bytes=1.5)
    with refused(invalid, "op=3"):
        gradbus.DistributedOptimizer(plain, op=3)
    with refused(invalid, "1 parameters have no name", "(2,)"):
        gradbus.DistributedOptimizer(plain, [("w", layer.weight)])
    with refused(invalid, "two parameters are named 'w'"):
        gradbus.DistributedOptimizer(plain, [("w", layer.weight), ("w", layer.bias)])
    assert type(plain) is torch.optim.SGD  # refused, so untouched
    assert gradbus.DistributedOptimizer(plain, layer.named_parameters()) is plain
    with refused(invalid, "already distributed"):
        gradbus.DistributedOptimizer(plain)
    with refused(invalid, "'group0.0'", "complex32"):
        gradbus.DistributedOptimizer(
            torch.optim.SGD([torch.nn.Parameter(torch.empty(2, dtype=torch.complex32))], lr=1)
        )
    assert type(copy.deepcopy(plain)) is torch.optim.SGD
    assert type(pickle.loads(pickle.dumps(plain))) is torch.optim.SGD


def check_bad_gradients():
    table = torch.nn.Embedding(5, 2, sparse=True)
    with refused(gradbus.InvalidError, "sparse_parameters", "(2,)", "model.embedding.weight"):
        gradbus.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=1), table.named_parameters(),
            sparse_parameters=[torch.nn.Parameter(torch.ones(2))],
        )  # fmt: skip
    layer = torch.nn.Linear(2, 2)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1), layer.named_parameters(), wait="step"
    )
    layer(torch.ones(1, 2)).sum().backward()
    with refused(gradbus.BusyError, "backward_passes_per_step=1"):
        layer(torch.ones(1, 2)).sum().backward()
    with refused(gradbus.BusyError, "'bias' was changed during its exchange", "synchronize()"):
        optimizer.step()
    optimizer.zero_grad()
    head = torch.nn.Linear(2, 2).requires_grad_(False)
    body = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*head.parameters(), *body.parameters()], lr=1)
    optimizer = gradbus.DistributedOptimizer(optimizer)
    head.requires_grad_(True)
    body(head(torch.ones(1, 2))).sum().backward()
    with refused(gradbus.InvalidError, "(2, 2)", "unfreeze"):
        optimizer.step()


def check_gradients_live_in_the_arena():
    """Pointers: a gradient stays inside its bucket, aligned, through every way of zeroing."""
    model = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Linear(9, 3))
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    flat = optimizer._gradbus.exchange.buckets[0].flat
    first, last = flat.data_ptr(), flat.data_ptr() + flat.numel() * 4
    seen = []
    for step in range(4):
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        model(torch.ones(1, 7)).sum().backward()
        seen.append([p.grad.data_ptr() for p in model.parameters()])
        optimizer.step()
    assert seen[1:] == seen[:-1]
    assert all(first <= pointer < last and pointer % 64 == 0 for pointer in seen[0])
    optimizer.zero_grad()
    assert flat.abs().sum() == 0


def check_wait_free_backpropagation():
    """The last layer's bucket is on its way before the first layer's gradient exists."""
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    events = []
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), bucket_bytes=288
    )
    buckets = optimizer._gradbus.exchange.buckets
    assert len(buckets) > 4, len(buckets)
    model(torch.ones(1, 8)).sum().backward()  # in which each gradient is counted, and starts nothing
    optimizer.step()
    for number, bucket in enumerate(buckets):

        def start(*arguments, number=number, start=bucket.start):
            events.append(f"start {number}")
            start(*arguments)

        bucket.start = start
    model[0].weight.register_hook(lambda grad: events.append("first layer"))
    model(torch.ones(1, 8)).sum().backward()
    assert events.index("start 0") < events.index("start 3") < events.index("first layer"), events
    optimizer.step()
    assert sorted(e for e in events if e.startswith("start")) == sorted(
        f"start {n}" for n in range(len(buckets))
    )


def check_other_threads_go_on():
    """A barrier and an all-reduce release the interpreter: both end in threads of their own."""
    results = []
    threads = [
        threading.Thread(
            target=lambda n=n: results.append(gradbus.allreduce(np.full(1000, n)).sum())
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(results) == [1000 * n for n in range(8)]


def check_fork():
    """A forked child is told so; its end does not end the parent's session."""
    child = os.fork()
    if child == 0:
        try:
            with refused(gradbus.ClosedError, "forked"):
                gradbus.allreduce(np.ones(2))
            assert not gradbus.is_initialized()
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        sys.exit(0)  # through atexit, as a child of multiprocessing may
    assert os.waitpid(child, 0)[1] == 0
    assert gradbus.allreduce(np.ones(2)).tolist() == [1, 1]
    assert gradbus.is_initialized()


def check_shutdown():
    """Gradients outlive the arena; handles and optimizers say what happened; a new session works."""
    layer = torch.nn.Linear(2, 2)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=1), layer.named_parameters()
    )
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    handle = gradbus.allreduce_async(np.ones(3))
    gradbus.shutdown()
    assert layer.weight.grad.tolist() == [[1, 1], [1, 1]]
    with refused(gradbus.ClosedError, "shut down"):
        gradbus.synchronize(handle)
    layer(torch.ones(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[2, 2], [2, 2]]
    for use in (optimizer.step, optimizer.zero_grad, optimizer.synchronize):
        with refused(gradbus.ClosedError, "shut down"):
            use()
    gradbus.init(rank=0, size=1)
    assert gradbus.allreduce(np.ones(2)).tolist() == [1, 1]
    assert gradbus.DistributedOptimizer(optimizer, layer.named_parameters()) is optimizer
    before = layer.bias.detach().clone()
    optimizer.zero_grad()
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert torch.equal(layer.bias, before - 1)


def check_no_framework_needed():
    """The core imports neither numpy nor torch."""
    code = (
        "import sys, gradbus; gradbus.init(); gradbus.allreduce_(bytearray(4)); gradbus.barrier(); "
    )
    code += "assert gradbus.broadcast_object(3) == 3; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd="/").returncode == 0


def main():
    check_before_init()
    check_bad_init()
    check_place()
    check_bad_tensors()
    check_wrong_types()
    check_bad_reductions()
    check_bad_moves()
    check_bad_process_sets()
    check_an_optimizer_of_a_set_outlives_it()
    check_bad_optimizers()
    check_bad_gradients()
    check_gradients_live_in_the_arena()
    check_wait_free_backpropagation()
    check_other_threads_go_on()
    check_fork()
    check_shutdown()
    check_no_framework_needed()
    print("ok")


if __name__ == "__main__":
    main()
