"""A rank: what gradbus.horovod.torch refuses, and that each message says what to do."""

import os

import gradbus
import gradbus.horovod
import gradbus.horovod.torch as hvd
import pytest
import torch


def refused(part, function, *arguments, **options):
    """The call raises an InvalidError that has this text."""
    try:
        function(*arguments, **options)
    except gradbus.InvalidError as problem:
        text = str(problem)
        assert text.startswith("GB-O900") and " | next: " in text and part in text, text
        assert isinstance(problem, (ValueError, hvd.HorovodInternalError))
        return
    raise AssertionError(f"{function} was not refused: {part}")


class Own:
    """A compressor of a script."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


def optimizer(**options):
    model = torch.nn.Linear(2, 2)
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(one, model.named_parameters(), **options), model


tensor = torch.ones(3)
refused("no list of different ranks", hvd.init, comm=object())
refused("no list of different ranks", hvd.init, comm=[0, 0])
refused("process_sets=3", hvd.init, process_sets=3)
refused("two sets of the ranks [0, 2]", hvd.init, process_sets=[[0, 2], hvd.ProcessSet([2, 0])])
assert not hvd.is_initialized()
os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "soon"
refused("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS='soon'", hvd.init)
del os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"]
hvd.init(process_sets="dynamic")

refused("uses no MPI", hvd.mpi_threads_supported)
refused("is no path", hvd.start_timeline, 3)
if hvd.size() == 1:
    with pytest.warns(RuntimeWarning, match="one rank"):
        hvd.start_timeline("trace.json", mark_cycles=True)
hvd.stop_timeline()  # nothing is recorded
refused("num_proc=-1", hvd.run, print, num_proc=-1)
refused("is no function", gradbus.horovod.run, "print", np=2)
refused("no max_num_proc=", hvd.run, print, max_num_proc=2)
assert hvd.join() in range(hvd.size())

refused("op=2", hvd.allreduce, tensor, op=2)  # Adasum in Horovod, and int(hvd.Average)
refused("op=True", hvd.allreduce, tensor, op=True)
refused("both given", hvd.allreduce, tensor, average=True, op=hvd.Sum)
refused("both given", hvd.grouped_allreduce_async_, [tensor], average=False, op=hvd.Sum)
refused("no compressor", hvd.allreduce, tensor, compression="fp16")
refused("prescale_factor", hvd.allreduce, tensor, prescale_factor=float("nan"))
refused("prescale_factor", gradbus.allreduce, tensor, prescale_factor=0.0)
refused("not sparse", hvd.sparse_allreduce_async, tensor, "name", hvd.Sum)
refused("op=", hvd.sparse_allreduce_async, tensor.to_sparse(), "name", hvd.Min)
refused("op=", hvd.reducescatter, tensor, op=hvd.Adasum)
refused("no list of ranks", hvd.ProcessSet, object())
refused("not known", hvd.allreduce, tensor, process_set=hvd.ProcessSet([0]))
refused("splits", hvd.alltoall, tensor, splits=[5] * hvd.size())

refused("mode= does not go", optimizer, op=hvd.Adasum, mode="sync")
refused("ReduceOp.MIN", optimizer, op=3)
refused("agents compress", optimizer, compression=print)
refused("mode= does not go", optimizer, compression=Own, mode="sync")
refused("groups=-1", optimizer, compression=Own, groups=-1)
refused("backward_passes_per_step", optimizer, compression=Own, backward_passes_per_step=0)
refused("needs a mean", optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)
refused("gradient_predivide_factor", optimizer, gradient_predivide_factor=0.0)
refused("groups='two'", optimizer, groups="two")
refused("groups=-1", optimizer, groups=-1)
refused("in groups= twice", optimizer, groups=[[tensor, tensor]])
refused("backward_passes_per_step", optimizer, backward_passes_per_step=0)
made, model = optimizer()
refused("backward_passes_per_step=0", made.set_backward_passes_per_step, 0)
sharded, _ = optimizer(shard=True)
refused("fixed number", sharded.set_backward_passes_per_step, 2)

refused("not a tensor", hvd.broadcast_parameters, {"step": 3}, root_rank=0)
refused("pass hvd.broadcast_object", hvd.elastic.ObjectState, print, hvd.rank, step=0)
refused("call commit()", hvd.elastic.TorchState(model, made, step=0).save)
refused("shape (3,)", hvd.SyncBatchNorm(3), tensor)
hvd.barrier()
print("ok")
