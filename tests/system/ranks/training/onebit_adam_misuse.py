"""A rank: 1-bit Adam on two nodes of two ranks each, where ranks differ, are interrupted, or act alone."""

import functools
import io
import pathlib
import shutil
import tempfile
import time
import warnings

import gradbus.torch as gradbus
import numpy as np
import torch
from gradbus.torch import _momentum_adam, _vector_exchange

CODEC = "efsignsgd:block=2048"
SHAPE = (64, 80, 2, 2)  # 20480 elements


def gradient(step, rank):
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(10 * step + rank))


def mean_gradient(step):
    return sum(gradient(step, rank) for rank in range(SIZE)) / SIZE


def one_bit(make=gradbus.OneBitAdam, lies=torch.contiguous_format, **options):
    value = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    parameter = torch.nn.Parameter(value.to(memory_format=lies))
    return parameter, make([parameter], lr=0.01, **options)


def run(parameter, optimizer, steps):
    for step in steps:
        parameter.grad = gradient(step, RANK).to(memory_format=torch.preserve_format)
        optimizer.step()
    return parameter.detach().clone(memory_format=torch.contiguous_format)


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error) and "\n" not in str(error), error
    else:
        raise AssertionError(f"{text}: not refused")


def check_memory_orders():
    """The parameters of half of the ranks are channels_last, and all is as if they were not."""
    differs = torch.channels_last if RANK % 2 else torch.contiguous_format
    for make, codec in ((gradbus.OneBitAdam, "none"), (gradbus.OneBitAdam, CODEC), (gradbus.ZeroOneAdam, CODEC)):
        warm = {"warmup_steps": 2} if make is gradbus.OneBitAdam else {"freeze_step": 4, "variance_scaler": 1}
        results = [run(*one_bit(make, lies, compression=codec, **warm), range(6))
                   for lies in (torch.contiguous_format, differs)]  # fmt: skip
        everyone = gradbus.allgather(torch.stack(results)[None])
        assert all(torch.equal(everyone[0], one) for one in everyone), (make, codec)
        assert torch.equal(*results), (make, codec)


def interrupted(parameter, optimizer, step):
    """Ctrl-C comes while step() waits for other ranks."""
    finish = _vector_exchange.Piece.finish

    def stop(piece):
        raise KeyboardInterrupt

    _vector_exchange.Piece.finish = stop
    try:
        run(parameter, optimizer, [step])
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    finally:
        _vector_exchange.Piece.finish = finish


def check_interrupted():
    """Rank 0 may not overwrite what others have not received yet, or step twice."""
    parameter, optimizer = one_bit(warmup_steps=1, compression="none")
    held = run(parameter, optimizer, [0])
    saved = optimizer.state_dict()
    if RANK == 0:
        interrupted(parameter, optimizer, 1)
        momentum = optimizer.state[parameter]["exp_avg"].clone()
        parameter.grad = torch.ones(SHAPE)
        for call in (optimizer.step, optimizer.state_dict, optimizer.plain_state, optimizer.compression_state,
                     lambda: optimizer.load_state_dict(saved)):  # fmt: skip
            refused(gradbus.BusyError, "make a new optimizer and load a checkpoint, on all ranks", call)
        assert torch.equal(momentum, optimizer.state[parameter]["exp_avg"])
    gradbus.allgather_object("rank 0 has tried")
    if RANK != 0:
        beta = 0.9
        first = (1 - beta) * mean_gradient(0)
        run(parameter, optimizer, [1])
        expected = beta * first + (1 - beta) * mean_gradient(1)
        torch.testing.assert_close(optimizer.state[parameter]["exp_avg"], expected, rtol=1e-5, atol=1e-6)
    again, other = one_bit(warmup_steps=1, compression="none")
    again.data.copy_(held)
    other.load_state_dict(gradbus.broadcast_object(saved))
    everyone = gradbus.allgather(run(again, other, [1])[None])
    assert all(torch.equal(everyone[0], one) for one in everyone)


def check_numbers_of_numpy():
    """LambdaLR with numpy makes lr a number of numpy, which torch's loader refuses."""
    parameter, optimizer = one_bit()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + np.cos(step / 7)))
    run(parameter, optimizer, [0])
    scheduler.step()
    rate = optimizer.param_groups[0]["lr"]
    assert isinstance(rate, np.float64), type(rate)
    optimizer.param_groups[0].update(weight_decay=np.float32(0.25), noted=(np.int64(3), np.bool_(True)))
    saved = gradbus.state(optimizer).state_dict()
    _, again = one_bit()
    gradbus.state(again).load_state_dict(saved)
    group = again.param_groups[0]
    assert group["lr"] == rate and type(group["lr"]) is float, group
    assert group["weight_decay"] == 0.25 and group["noted"] == (3, True), group


def check_a_slow_rank():
    """Rank 0 says whom state_dict() waits for. The others come only when it has."""
    parameter, optimizer = one_bit(warmup_steps=1, compression=CODEC)
    run(parameter, optimizer, range(3))
    folder = pathlib.Path(gradbus.broadcast_object(tempfile.mkdtemp() if RANK == 0 else None))
    said = folder / "said"
    if RANK != 0:
        deadline = time.monotonic() + 120
        while not said.exists():
            assert time.monotonic() < deadline, "rank 0 said nothing"
            time.sleep(0.01)
        optimizer.state_dict()
    else:
        _momentum_adam._SECONDS_UNTIL_WARNING = 0.1
        show, shown = warnings.showwarning, []
        warnings.showwarning = lambda message, *_: (shown.append(str(message)), said.touch())
        optimizer.state_dict()
        warnings.showwarning = show
        _momentum_adam._SECONDS_UNTIL_WARNING = 10.0
        assert "state_dict() of this rank waits" in shown[0] and "plain_state()" in shown[0], shown
    gradbus.barrier()
    if RANK == 0:
        shutil.rmtree(folder)


def check_root_alone():
    """Rank 0 saves and loads plain_state() alone; broadcast_optimizer_state() gives it to the others."""
    parameter, optimizer = one_bit(warmup_steps=1, compression=CODEC)
    held = run(parameter, optimizer, range(3))
    again, other = one_bit(warmup_steps=1, compression=CODEC)
    again.data.copy_(held)
    if RANK == 0:
        file = io.BytesIO()
        torch.save(optimizer.plain_state(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file))
    gradbus.broadcast_optimizer_state(other)
    assert other.param_groups[0]["steps"] == 3
    for name, value in optimizer.state[parameter].items():
        assert torch.equal(value, other.state[again][name]), name
    everyone = gradbus.allgather(run(again, other, [3])[None])
    assert all(torch.equal(everyone[0], one) for one in everyone)


def check_scaler():
    """It looks for infinities of this rank, and would leave a step out on one rank alone."""
    if not hasattr(torch.amp, "GradScaler"):
        return
    for make in (gradbus.OneBitAdam, gradbus.ZeroOneAdam):
        parameter, optimizer = one_bit(make)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(parameter.sum() * (float("inf") if RANK == 1 else 1)).backward()
        step = functools.partial(scaler.step, optimizer)
        refused(gradbus.InvalidError, f"{make.__name__}: a gradient scaler steps", step)


def check_state_dict_alone():
    """Rank 0 calls state_dict() after the warm-up, and the other rank of its node steps. The last check."""
    parameter, optimizer = one_bit(warmup_steps=1, compression=CODEC)
    run(parameter, optimizer, range(3))
    if RANK == 0:
        refused(gradbus.MismatchError, "call state_dict() on all ranks; on one rank use plain_state()",
                optimizer.state_dict)  # fmt: skip
        refused(gradbus.BusyError, "new optimizer", optimizer.step)
    elif gradbus.cross_rank() == 0:
        refused(gradbus.MismatchError, "GB-O902", lambda: run(parameter, optimizer, [3]))


gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
check_memory_orders()
check_interrupted()
check_numbers_of_numpy()
check_a_slow_rank()
check_root_alone()
check_scaler()
check_state_dict_alone()
gradbus.shutdown()
print("ok")
