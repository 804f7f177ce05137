"""A rank that makes one mistake of a user: `mistakes.py MISTAKE`. It catches nothing, as a user would not."""

import os
import signal
import sys
import time

import gradbus.torch as gradbus
import torch

STEPS = 3


def model_of(hidden=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 2))


def train(model, optimizer, steps=STEPS, between=lambda: None):
    for step in range(steps):
        torch.manual_seed(100 * step + gradbus.rank())
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        between()
        optimizer.step()


def wrapped(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return gradbus.DistributedOptimizer(optimizer, model.named_parameters(), **options)


def clip_before_synchronize():
    """Gradients are clipped while they travel."""
    model = model_of()
    train(model, wrapped(model, wait="step"),
          between=lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01))


def scale_before_synchronize():
    """Gradients are unscaled while they travel, as GradScaler does."""
    model = model_of()

    def unscale():
        for parameter in model.parameters():
            parameter.grad.mul_(1 / 1024)
        time.sleep(0.3)  # the agent meets the change first, and the job ends

    train(model, wrapped(model, wait="step"), between=unscale)


def module_without_torch():
    """`import gradbus` has no optimizer."""
    import gradbus as plain

    plain.DistributedOptimizer(torch.optim.SGD(model_of().parameters(), lr=0.1))


def other_width():
    """Ranks build models of different widths."""
    wrapped(model_of(8 + gradbus.rank()))


def other_layers():
    """A rank has a layer more."""
    layers = {f"layer{n}": torch.nn.Linear(4, 4) for n in range(1 + gradbus.rank())}
    wrapped(torch.nn.ModuleDict(layers))


def other_weights():
    """The call of broadcast_parameters() is missing, and seeds differ."""
    torch.manual_seed(gradbus.rank())
    model = torch.nn.Linear(4, 2)
    train(model, wrapped(model))


def other_shape():
    gradbus.allreduce(torch.ones(3 + gradbus.rank()), name="loss")


def other_inner_shape():
    """The same number of elements a row is not the same rows."""
    gradbus.allgather(torch.ones(2, 2 + 2 * gradbus.rank()), name="rows")


def other_dtype():
    gradbus.allreduce(torch.ones(3, dtype=(torch.float32, torch.float64)[gradbus.rank()]), name="loss")


def other_name():
    gradbus.allreduce(torch.ones(3), name=f"loss.{gradbus.rank()}")


def other_root():
    gradbus.broadcast(torch.ones(3), root_rank=gradbus.rank(), name="weights")


def fewer_batches():
    """Rank 1 has a batch less and ends."""
    model = model_of()
    optimizer = wrapped(model)
    gradbus.broadcast_parameters(model.state_dict(), root_rank=0)
    train(model, optimizer, steps=STEPS - gradbus.rank())


def only_rank_0():
    """A collective inside `if rank == 0`."""
    if gradbus.rank() == 0:
        gradbus.allreduce(torch.ones(3), name="metric")


def two_backwards():
    model = model_of()
    optimizer = wrapped(model, wait="step")
    gradbus.broadcast_parameters(model.state_dict(), root_rank=0)
    model(torch.ones(5, 4)).sum().backward()
    model(torch.ones(5, 4)).sum().backward()
    optimizer.step()


def parameters_for_names():
    """parameters() instead of named_parameters()."""
    model = model_of()
    gradbus.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.parameters())


def model_for_optimizer():
    model = model_of()
    gradbus.DistributedOptimizer(model, model.named_parameters())


def ddp_inside():
    """A model that DDP averages already."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(model_of())
    wrapped(model)


def fsdp_inside():
    """A model that FSDP shards already."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    fsdp = __import__("torch.distributed.fsdp", fromlist=["FullyShardedDataParallel"])
    wrapped(fsdp.FullyShardedDataParallel(model_of(), device_id=torch.device("cpu")))


def sharded_parameters():
    """fully_shard() has made DTensors of the parameters."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = model_of()
    __import__("torch.distributed.fsdp", fromlist=["fully_shard"]).fully_shard(model)
    wrapped(model)


def lazy_module():
    wrapped(torch.nn.Sequential(torch.nn.LazyLinear(4)))


def square_model(value=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])
    for parameter in model.parameters() if value is not None else ():
        torch.nn.init.constant_(parameter, value)
    return model


def in_other_order(**options):
    """Ranks list equal parameters in different orders: gradients of one would be averaged with those of another."""
    model = square_model(value=0.1)
    named = list(model.named_parameters())
    if gradbus.rank() == 1:
        named[2], named[4] = named[4], named[2]
    optimizer = torch.optim.SGD([parameter for _, parameter in named], lr=0.1)
    train(model, gradbus.DistributedOptimizer(optimizer, named, **options))


def in_other_order_with_broadcast():
    in_other_order(broadcast=True)


def frozen_on_one_rank():
    model = square_model()
    optimizer = wrapped(model)
    train(model, optimizer)
    model[0].requires_grad_(gradbus.rank() == 0)
    train(model, optimizer)


def other_rate():
    model = square_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + gradbus.rank()))
    train(model, gradbus.DistributedOptimizer(optimizer, model.named_parameters()))


def other_rate_later():
    """A scheduler looks at the loss of its own rank."""
    model = square_model()
    optimizer = wrapped(model, check_every=2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(3):
        train(model, optimizer, steps=1)
        if gradbus.rank() == 1:
            scheduler.step()


def other_optimizer():
    model = square_model()
    kind = (torch.optim.SGD, torch.optim.Adam)[gradbus.rank()]
    train(model, gradbus.DistributedOptimizer(kind(model.parameters(), lr=0.1), model.named_parameters()))


def state_on_one_rank():
    """Rank 0 alone has loaded a checkpoint, and broadcast_optimizer_state() is missing."""
    model = square_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if gradbus.rank() == 0:
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    train(model, gradbus.DistributedOptimizer(optimizer, model.named_parameters(), broadcast=True))


def compression_with_typo():
    wrapped(model_of(hidden=4096), compression="topkk")


def mode_with_typo():
    wrapped(model_of(), mode="delayd:k=1")


def root_out_of_range():
    gradbus.broadcast(torch.ones(3), root_rank=2)


def words_for_tensors():
    gradbus.allreduce("loss")


def a_rank_raises():
    """An exception on one rank."""
    if gradbus.rank() == 1:
        raise ValueError("the data of rank 1 is broken")
    while True:
        gradbus.allreduce(torch.ones(3), name="loss")


def a_rank_is_killed():
    """As by the kernel, when memory is short."""
    gradbus.barrier()
    if gradbus.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        gradbus.allreduce(torch.ones(3), name="loss")


if __name__ == "__main__":
    gradbus.init()
    globals()[sys.argv[1]]()
    gradbus.shutdown()
