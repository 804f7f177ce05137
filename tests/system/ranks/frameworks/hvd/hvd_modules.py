"""A rank: modules of Horovod that scripts import from, and what is in them."""

import threading

import gradbus
import gradbus.horovod.torch as hvd
import pytest
import torch
from gradbus.horovod.common import basics, elastic, util
from gradbus.horovod.common.exceptions import HorovodVersionMismatchError
from gradbus.horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from gradbus.horovod.torch.elastic import state as states


def helpers():
    """These need no job."""
    assert util.split_list([1, 2, 3, 4, 5, 6], 4) == [[1, 2], [3, 4], [5], [6]] and util.split_list("ab", 3)[2] == ""
    for version, answer in (("2.1.0", True), ("2.0.10+cpu", True), ("2.0.1rc2", False), ("2", False), ("10.0", True)):
        assert util.is_version_greater_equal_than(version, "2.0.1") == answer, version
    with pytest.raises(ValueError, match='pass three numbers, as "1.2.3"'):
        util.is_version_greater_equal_than("2.0.1", "2.0")
    calls = []
    remembered = util._cache(lambda *given, **named: calls.append((given, named)) or len(calls))
    assert [remembered(1), remembered(1), remembered(1, a=2)] == [1, 1, 2]
    assert util.get_ext_suffix().endswith(".so") and not util.gpu_available("no_such_framework")
    assert util.gpu_available("torch") == torch.cuda.is_available()
    assert util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2") is None
    assert util.check_installed_version("torch", "0.1") is None and issubclass(HorovodVersionMismatchError, ImportError)
    which = hvd.mpi_ops.handle_average_backwards_compatibility
    assert (which(None, None), which(hvd.Max, None)) == (hvd.Average, hvd.Max)
    with pytest.warns(DeprecationWarning):
        assert (which(None, True), which(None, False)) == (hvd.Average, hvd.Sum)
    with pytest.raises(ValueError, match="both given"):
        which(hvd.Sum, True)


class Numbers(BaseDataLoader):
    """Batches 0 to 4; the last one fails if ``fails``."""

    def __init__(self, fails=False):
        self.fails = fails

    def __len__(self):
        return 5

    def _iterate(self):
        yield from range(4)
        if self.fails:
            raise KeyError("no batch")
        yield 4

    def _process_batch(self, batch):
        return 10 * batch


class Ahead(AsyncDataLoaderMixin, Numbers):
    """Reads in a thread."""


def loaders():
    before = threading.active_count()
    for loader in (Numbers(), Ahead(2), Ahead(async_loader_queue_size=0), Ahead(64, False, False)):
        for _ in range(2):
            assert list(loader) == [0, 10, 20, 30, 40] and len(loader) == 5
    early = Ahead(1)
    for batch in early:  # the thread waits for a place in its queue
        assert batch == 0
        break
    assert list(early) == [0, 10, 20, 30, 40]
    early.close_async_loader()
    found = []
    with pytest.raises(KeyError, match="no batch"):
        found.extend(iter(Ahead(2, fails=True)))
    assert threading.active_count() == before, threading.enumerate()


def sets_and_basics():
    assert hvd.mpi_ops._basics.size() == hvd.size() and hvd.mpi_ops._basics.cuda_built() == hvd.cuda_built()
    everyone = list(range(hvd.size()))
    if everyone == [0]:  # it would be a set of all ranks
        with pytest.raises(gradbus.InvalidError, match="are all ranks"):
            hvd.add_process_set(hvd.ProcessSet(ranks_or_comm=[0]))
    else:
        first = hvd.add_process_set(hvd.ProcessSet(ranks_or_comm=[0]))
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: everyone, first.process_set_id: [0]}
        hvd.remove_process_set(first)
    own = basics.HorovodBasics(__file__, "mpi_lib_v2")
    assert own._get_process_set_ids_and_ranks() == {0: everyone} and own.Sum is hvd.Sum
    own.init()  # changes nothing
    assert own.is_initialized() and own.rank() == hvd.rank() and not own.mpi_built()


def functions_with_gradients():
    rank, size = hvd.rank(), hvd.size()
    everyone = hvd.global_process_set
    ops = hvd.mpi_ops
    given = torch.full((size,), 1.0 + rank, requires_grad=True)
    total = size * (size + 1) / 2
    ops.HorovodAllreduce.apply(given, None, "a", hvd.Sum, 1.0, 1.0, everyone).sum().backward()
    assert (given.grad == size).all()
    (mean,) = ops.HorovodGroupedAllreduce.apply(None, "b", hvd.Average, 1.0, 1.0, everyone, given.detach())
    assert (mean == total / size).all()
    rows = ops.HorovodAllgather.apply(given.detach(), "c", everyone)
    (same,) = ops.HorovodGroupedAllgather.apply("d", everyone, given.detach())
    assert torch.equal(rows, same) and len(rows) == size**2
    assert (ops.HorovodBroadcast.apply(given.detach(), 0, "e", everyone) == 1).all()
    assert len(ops.HorovodAlltoall.apply(given.detach(), torch.ones(size, dtype=torch.int32), "f", everyone)) == 2
    assert ops.HorovodReducescatter.apply(given.detach(), "g", hvd.Sum, everyone, 1.0, 1.0).item() == total
    (mine,) = ops.HorovodGroupedReducescatter.apply("h", hvd.Sum, everyone, 1.0, 1.0, given.detach())
    assert mine.item() == total


class Counter:
    """A value that no pickle takes."""

    def __init__(self, count):
        self.count = count
        self.lock = threading.Lock()


class CounterHandler(states.StateHandler):
    """Of a Counter."""

    def save(self):
        self.saved = self.value.count

    def restore(self):
        self.value.count = self.saved

    def sync(self):
        self.value.count = hvd.broadcast_object(self.value.count)


def own_handlers():
    before = states.get_handler_registry()
    assert dict(before)[torch.nn.Module] is states.ModelStateHandler
    states.set_handler_registry([(Counter, CounterHandler), *before])
    model = torch.nn.Linear(1, 1)
    state = hvd.elastic.TorchState(model, counter=Counter(7 + hvd.rank()), epoch=0)
    states.set_handler_registry(before)
    counter = state.counter
    state.sync()
    assert state.counter is counter and counter.count == 7
    counter.count = 8
    state.commit()
    counter.count, state.epoch = 9, 1
    state.restore()
    assert (counter.count, state.epoch) == (8, 0)
    state.counter = Counter(20)
    state.commit()
    state.counter.count = 21
    state.restore()
    assert state.counter.count == 20 and counter.count == 8

    handler = states.ModelStateHandler(model)
    with torch.no_grad():
        model.weight.add_(1)
    changed = model.weight.clone()
    handler.restore()
    assert not torch.equal(model.weight, changed)
    handler.sync()
    sampler = hvd.elastic.ElasticSampler(range(10))
    kept = states.SamplerStateHandler(sampler)
    sampler.set_epoch(hvd.rank())
    kept.sync()
    assert sampler.epoch == 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0 + hvd.rank())
    kept = states.OptimizerStateHandler(optimizer)
    kept.sync()
    assert optimizer.param_groups[0]["lr"] == 1
    kept.restore()
    assert optimizer.param_groups[0]["lr"] == 1 + hvd.rank()


def elastic_names():
    state = hvd.elastic.ObjectState(step=0)
    elastic.notification_manager.init()
    elastic.notification_manager.register_listener(state)
    state.on_hosts_updated(1, 2)
    assert elastic.run_fn(lambda state: state.step, hvd.shutdown)(state) == 0
    assert hvd.elastic.run(func=lambda state: hvd.rank())(state) == hvd.rank()
    assert hvd.elastic.run(timeout=60)(lambda state: 3)(state) == 3
    elastic.notification_manager.remove_listener(state)
    assert (hvd.elastic.init, hvd.elastic.shutdown) == (hvd.init, hvd.shutdown) and hvd.functions.broadcast_object


helpers()
loaders()
hvd.init()
for check in (sets_and_basics, functions_with_gradients, own_handlers, elastic_names):
    check()
assert issubclass(gradbus.GradbusError, hvd.HorovodInternalError)
hvd.barrier()
print("ok")
