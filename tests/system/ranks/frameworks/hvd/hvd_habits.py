"""A rank: habits of Horovod's scripts around its operations."""

import os

import gradbus.horovod as horovod
import gradbus.horovod.torch as hvd
import torch
from gradbus.horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gradbus.horovod.common.process_sets import process_set_by_id
from gradbus.horovod.common.util import env, gloo_built, is_iterable, num_rank_is_power_2
from gradbus.horovod.runner import run
from gradbus.horovod.torch import optimizer, sync_batch_norm
from gradbus.horovod.torch.elastic.sampler import ElasticSampler
from gradbus.horovod.torch.elastic.state import TorchState
from gradbus.horovod.torch.functions import broadcast_parameters
from gradbus.horovod.torch.mpi_ops import rank


def world_or_one():
    """Scripts that also run without Horovod ask like this."""
    try:
        return hvd.size()
    except ValueError:
        return 1


def not_pickled(call):
    """All ranks hear of it, and the next operation works."""
    try:
        call((x for x in [1]) if rank() == 0 else None)
    except TypeError as error:
        assert rank() == 0 and "generator" in str(error), error
    except HorovodInternalError as error:
        assert rank() != 0 and "rank 0 could not pickle its object" in str(error), error
    else:
        raise AssertionError


assert run is horovod.run and optimizer.DistributedOptimizer is hvd.DistributedOptimizer
assert sync_batch_norm.SyncBatchNorm is hvd.SyncBatchNorm and not gloo_built(verbose=True)
assert (ElasticSampler, TorchState) == (hvd.elastic.ElasticSampler, hvd.elastic.TorchState)
assert [n for n in range(10) if num_rank_is_power_2(n)] == [1, 2, 4, 8] and is_iterable("") and not is_iterable(3)
with env(A_TEST_OF_GRADBUS="1", PATH=None):
    assert os.environ["A_TEST_OF_GRADBUS"] == "1" and "PATH" in os.environ
assert "A_TEST_OF_GRADBUS" not in os.environ
assert world_or_one() == 1
hvd.init()
assert process_set_by_id(0) is hvd.global_process_set
assert world_or_one() == hvd.size() == 2
assert horovod.__version__.split(".")[:2] == ["0", "28"] and not HostsUpdatedInterrupt().skip_sync
parameters = {name: torch.full((2,), float(rank() + 1)) for name in ("ab" if rank() else "ba")}
broadcast_parameters(parameters, 0)
assert all((values == 1).all() for values in parameters.values()), parameters
not_pickled(lambda given: hvd.broadcast_object(given, 0))
not_pickled(hvd.allgather_object)
assert hvd.broadcast_object({1: rank()}, 0) == {1: 0} and hvd.allgather_object(rank()) == [0, 1]
hvd.shutdown()
assert world_or_one() == 1
print("ok")
