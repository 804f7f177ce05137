"""Parameters on a device, against the same in host memory.

    staged.py under FOLDER/PROGRAM ARGUMENTS...   another rank program, whose tensors pass for a device's
    staged.py compare DEVICE MODE[/COMPRESSION]...   the same training twice: the same bits
    staged.py check DEVICE WHAT...         accumulate: backward_passes_per_step, a clipped gradient, skip_synchronize
                                           carried: a residual that was kept for what is dense now
                                           mixed: half of the model in host memory
                                           scaler: GradScaler with an overflow in one step, on one rank
                                           operations: plain collectives, broadcasts of parameters and optimizer state
                                           refused: what is refused, and how
                                           pinned: shared memory is registered (cuda alone)
                                           unstopped: nothing but step() stops the host for the device (cuda alone)

DEVICE is `double` (staging_double.py) or `cuda`. Gradients are given, learning rates and momenta powers
of two: a step is a few operations without rounding of products, so a device and the processor agree in
every bit.
"""

import os
import pathlib
import runpy
import sys
import warnings

import gradbus.torch as gradbus
import staging_double
import torch
from gradbus.torch._gpu import cuda, staging

STEPS = 6
shared_places = []


class NotedShared(staging.Shared):
    """Of buckets that lie in memory of the agent."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        shared_places.append(self)


staging.Shared = NotedShared
SHAPES = {"weight": (160, 128), "bias": (7,), "other": (33, 5)}


def enter(device):
    """Where tensors of this device are made."""
    if device == "double":
        staging_double.install()
    return torch.device("cuda" if device == "cuda" else "cpu")


def leave():
    staging_double.remove()


def gradient_of(name, step, rank):
    random = torch.Generator().manual_seed(1000 * step + 10 * rank + len(name))
    return torch.randn(SHAPES[name], generator=random)


def make(where, dtypes=(torch.float32,) * 3, lr=0.5, momentum=0.5, **options):
    """{name: parameter}, optimizer."""
    named = {
        name: torch.nn.Parameter(torch.zeros(shape, dtype=dtype, device=where))
        for (name, shape), dtype in zip(SHAPES.items(), dtypes)
    }
    plain = torch.optim.SGD(named.values(), lr=lr, momentum=momentum, foreach=False)
    with warnings.catch_warnings():
        if "GRADBUS_DEVICE_MEMORY" not in os.environ:  # nobody wants to hear why they are copied
            warnings.filterwarnings("error", message="gradbus: gradients are copied")
        return named, gradbus.DistributedOptimizer(plain, named.items(), bucket_bytes=4096, **options)


def loss_of(named, step, factor=1.0):
    """Its gradients are gradient_of(name, step, this rank) * factor."""
    total = 0
    for name, parameter in named.items():
        gradient = gradient_of(name, step, gradbus.rank()) * factor
        total = total + (parameter * gradient.to(parameter.device, parameter.dtype)).sum()
    return total


def backward(named, step):
    loss_of(named, step).backward()


def values(named):
    return {name: p.detach().cpu().clone() for name, p in named.items()}


def assert_same(left, right, what=""):
    for name, value in left.items():
        assert torch.equal(value, right[name]), (what, name, (value - right[name]).abs().max())
        assert value.isfinite().all() and value.abs().max() > 0, name


def on_both(device, train, what=""):
    """What train(where) returns, in host memory and on the device."""
    in_memory = train(torch.device("cpu"))
    where = enter(device)
    try:
        staged = train(where)
        if device == "double":
            assert staging_double.device.rank_buffers or staging_double.device.vectors, "nothing was staged"
        expected = os.environ.get("GRADBUS_EXPECT")
        assert expected is None or bool(shared_places) == (expected != "staged"), what
        assert expected != "all shared" or not staging_double.device.vectors, what
    finally:
        leave()
    assert_same(in_memory, staged, what)


def compare(device, *modes):
    for words in modes:
        mode, _, compression = words.partition("/")
        compare_one(device, mode, compression or None)


def compare_one(device, mode, compression):
    dtypes = [(torch.float32,) * 3]
    if compression is None and not mode.startswith("ps:"):
        dtypes.append((torch.float16, torch.bfloat16, torch.float64))

    def train(where):
        ended = {}
        for number, kinds in enumerate(dtypes):
            named, optimizer = make(where, kinds, mode=mode, compression=compression)
            for step in range(2 * STEPS):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                backward(named, step)
                optimizer.step()
                if step == STEPS:
                    optimizer.flush()
            optimizer.flush()
            ended.update({f"{name}{number}": value for name, value in values(named).items()})
            if compression is not None:
                state = optimizer.compression_state()
                optimizer.load_compression_state(state)
                kept = optimizer.compression_state()
                for name, share in kept["residual"].items():
                    assert torch.equal(share, state["residual"][name])
                    assert share.device.type == where.type
                    ended[f"residual of {name}{number}"] = share.cpu() + 1
        return ended

    on_both(device, train, f"{mode}/{compression}")


def accumulate(device):
    def train(where):
        named, optimizer = make(where, backward_passes_per_step=2)
        for step in range(STEPS):
            optimizer.zero_grad()
            backward(named, 2 * step)
            backward(named, 2 * step + 1)
            optimizer.synchronize()
            # As clipping does, with a factor that rounds nothing.
            for parameter in named.values():
                parameter.grad.mul_(0.25)
            with optimizer.skip_synchronize():
                optimizer.step()
        return values(named)

    on_both(device, train)


def carried(device):
    def train(where):
        named, optimizer = make(where)
        kept = {name: gradient_of(name, 99, gradbus.rank()).to(where) for name in SHAPES}
        optimizer.load_compression_state({"residual": kept, "momentum": {}})
        for step in range(2):
            optimizer.zero_grad()
            backward(named, step)
            optimizer.step()
        return values(named)

    on_both(device, train)


def mixed(device):
    names = set()

    def train(where):
        named, optimizer = make(torch.device("cpu"))
        if where is not None:
            with torch.no_grad():
                named = {
                    name: torch.nn.Parameter(p.to(where) if name == "weight" else p.clone())
                    for name, p in named.items()
                }
            names.update(id(p) for name, p in named.items() if name == "weight")
            plain = torch.optim.SGD(named.values(), lr=0.5, momentum=0.5, foreach=False)
            optimizer = gradbus.DistributedOptimizer(plain, named.items(), bucket_bytes=1 << 20)
            assert len(optimizer._gradbus.exchange.buckets) == 2
        for step in range(STEPS):
            optimizer.zero_grad()
            for one in ("weight", "other"), ("bias",):
                backward({name: named[name] for name in one}, step)
            optimizer.step()
        return values(named)

    in_memory = train(None)
    if device == "double":
        staging_double.install(lambda tensor: id(tensor) in names)
    staged = train(torch.device("cuda" if device == "cuda" else "cpu"))
    leave()
    assert_same(in_memory, staged)


def scaler(device):
    """A step that overflows on one rank is left out on all."""
    scaler_of = getattr(torch.amp, "GradScaler", None)
    if scaler_of is None:
        return  # torch 1 has none for the CPU

    def train(where):
        named, optimizer = make(where)
        scale = scaler_of(where.type, init_scale=4.0, growth_interval=1000)
        for step in range(STEPS):
            optimizer.zero_grad()
            overflows = step == 2 and gradbus.rank() == gradbus.size() - 1
            scale.scale(loss_of(named, step, float("inf") if overflows else 1.0)).backward()
            before = values(named)
            optimizer.synchronize()
            scale.unscale_(optimizer)
            scale.step(optimizer)
            scale.update()
            same = all(torch.equal(before[name], value) for name, value in values(named).items())
            assert same == (step == 2), step
        assert scale.get_scale() == 2.0
        return values(named)

    on_both(device, train)


def operations(device):
    where = enter(device)
    me, size = gradbus.rank(), gradbus.size()
    x = torch.arange(6.0, device=where).reshape(2, 3) + me
    total = torch.arange(6.0).reshape(2, 3) * size + size * (size - 1) / 2
    for result in (
        gradbus.allreduce(x, op=gradbus.Sum),
        gradbus.synchronize(gradbus.allreduce_async(x, op=gradbus.Sum)),
        gradbus.allreduce_(x.clone(), op=gradbus.Sum),
        gradbus.grouped_allreduce([x, x], op=gradbus.Sum)[1],
        gradbus.allreduce_(x.t().clone().t(), op=gradbus.Sum),  # not contiguous
    ):
        assert result.device == x.device and torch.equal(result.cpu(), total), result
    out = x.clone()
    handle = gradbus.allreduce_async_(out, op=gradbus.Sum)
    assert gradbus.synchronize(handle) is out and torch.equal(out.cpu(), total)
    reduced = gradbus.reduce(x, root_rank=0, op=gradbus.Sum)
    assert (reduced is None) == (me != 0)
    scattered = gradbus.reducescatter(x, op=gradbus.Sum)
    assert scattered.device == x.device
    gathered = gradbus.allgather(torch.full((me + 1, 2), me, device=where))
    assert gathered.device == x.device and gathered.shape == (size * (size + 1) // 2, 2)
    root = gradbus.broadcast(x.to(torch.complex64), root_rank=1)
    assert root.device == x.device and torch.equal(root.cpu().real, torch.arange(6.0).reshape(2, 3) + 1)
    moved, counts = gradbus.alltoall(x, splits=[1] * size if size == 2 else None)
    assert moved.device == x.device and counts.tolist() == [1] * size
    rows = gradbus.scatter(x if me == 0 else x[:1], root_rank=0)
    assert rows.device == x.device and torch.equal(rows.cpu(), torch.arange(6.0).reshape(2, 3)[me : me + 1])
    broadcasts(where)
    leave()


def broadcasts(where):
    torch.manual_seed(gradbus.rank())
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(where)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (gradbus.rank() + 1))
    if gradbus.rank() == 0:
        model(torch.randn(5, 4, device=where)).sum().backward()
        optimizer.step()
    gradbus.broadcast_parameters(model)
    gradbus.broadcast_optimizer_state(optimizer)
    for parameter in model.parameters():
        moments = optimizer.state[parameter]["exp_avg"]
        assert moments.device == parameter.device
        everyone = gradbus.allgather_object((parameter.tolist(), moments.tolist()))
        assert everyone[0] == everyone[-1]


def refused(device):
    where = enter(device)
    embedding = torch.nn.Embedding(40, 8, sparse=True).to(where)
    plain = torch.optim.SGD(embedding.parameters(), lr=0.5)
    try:
        gradbus.DistributedOptimizer(
            plain, embedding.named_parameters(), sparse_parameters=embedding.parameters()
        )
    except gradbus.InvalidError as error:
        assert "'weight'" in str(error) and "sparse=False" in str(error), error
    else:
        raise AssertionError("sparse rows were taken from a device")
    meta = torch.nn.Parameter(torch.zeros(3, device="meta"))
    try:
        gradbus.DistributedOptimizer(torch.optim.SGD([meta], lr=0.5))
    except gradbus.InvalidError as error:
        assert "is on meta" in str(error) and "cuda" in str(error), error
    else:
        raise AssertionError("a parameter without memory was taken")
    leave()


def unstopped(device):
    """torch raises where anything waits for the GPU without being asked to."""
    assert device == "cuda"
    named, optimizer = make(torch.device("cuda"))
    losses = [loss_of(named, step) for step in range(STEPS)]
    for step, loss in enumerate(losses):
        optimizer.zero_grad()
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        loss.backward()
        optimizer.synchronize()
        torch.cuda.set_sync_debug_mode("default")
        optimizer.step()


def pinned(device):
    """Warnings of the registration are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = make(torch.device("cuda"))
    assert len(cuda.PINNED) > 0
    del kept


def check(device, *whats):
    for what in whats:
        globals()[what](device)


def under(program, *arguments):
    staging_double.install()
    path = pathlib.Path(__file__).parents[1] / program
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] != "under":
        gradbus.init()
    globals()[words[0]](*words[1:])
    assert not staging_double.races, f"{len(staging_double.races)} copies were not ordered"
    if words[0] != "under":
        gradbus.shutdown()
        assert staging_double.device.pinned == len(cuda.PINNED) == 0, "delay slots stay pinned"
    print("ok")
