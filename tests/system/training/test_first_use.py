"""gradbus.torch._exchange.first_use: what counts as a use of a parameter, without any job."""

import copy
import gc
import pickle

import pytest

torch = pytest.importorskip("torch")
first_use = pytest.importorskip("gradbus.torch._exchange.first_use")
holders = pytest.importorskip("gradbus.torch._exchange.holders")
hidden = pytest.importorskip("gradbus.torch._exchange.hidden")


class Watcher:
    """Counts the parameters that were used."""

    def __init__(self, model, values=True):
        self.used = []
        self.parameters = dict(model.named_parameters())
        first_use.watch(self.parameters.values(), self.on_use, values)

    def on_use(self, parameter):
        first_use.unwatch(parameter)
        self.used.append(next(name for name, p in self.parameters.items() if p is parameter))

    def finish(self):
        for parameter in self.parameters.values():
            if first_use._class_of(parameter) is not type(parameter):
                self.on_use(parameter)


def model_of():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model(torch.ones(1, 3)).sum().backward()
    return model


FIRST, ALL = ["0.weight", "0.bias"], ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda m: m[0](torch.ones(1, 3)), FIRST),
        (lambda m: m(torch.ones(1, 3)), ALL),
        (lambda m: m.state_dict(), ALL),
        (lambda m: copy.deepcopy(m[0]), FIRST),
        (lambda m: pickle.dumps(m[0]), FIRST),
        (lambda m: m[0].weight + 1, ["0.weight"]),
        (lambda m: 1 + m[0].weight, ["0.weight"]),
        (lambda m: m[0].weight[0], ["0.weight"]),
        (lambda m: m[0].weight.data, ["0.weight"]),
        (lambda m: m[0].weight.detach(), ["0.weight"]),
        (lambda m: m[0].weight.data_ptr(), ["0.weight"]),
        (lambda m: m[0].weight._version, ["0.weight"]),
        (lambda m: m[0].weight.grad, ["0.weight"]),
        (lambda m: setattr(m[0].weight, "grad", None), ["0.weight"]),
        (lambda m: setattr(m[0].weight, "requires_grad", False), ["0.weight"]),
        (lambda m: m[0].weight.requires_grad_(False), ["0.weight"]),
        (lambda m: torch.cat([p.flatten() for p in m.parameters()]), ALL),
        (lambda m: torch.stack([m[0].bias, m[0].bias]), ["0.bias"]),
        (lambda m: torch.nn.functional.linear(input=torch.ones(1, 3), weight=m[0].weight), ["0.weight"]),
        (lambda m: torch.ops.aten.mul(m[0].weight, 2), ["0.weight"]),
        (lambda m: m[0].weight.tolist(), ["0.weight"]),
        (lambda m: repr(m[0].bias), ["0.bias"]),
        (lambda m: bool(m[0].bias.sum() > 0), ["0.bias"]),
        (lambda m: m.to(torch.float64), ALL),
        (lambda m: m.zero_grad(), ALL),
        (lambda m: torch.nn.init.zeros_(m[1].bias), ["1.bias"]),
        # What is known without the value.
        (lambda m: [(p.shape, p.dtype, p.device, p.requires_grad, p.numel(), p.size(0)) for p in m.parameters()], []),
        (lambda m: [isinstance(p, torch.nn.Parameter) and p.is_leaf for p in m.parameters()], []),
        (lambda m: {p: 1 for p in m.parameters()}, []),
        (lambda m: m[0].weight is m[0].weight, []),
        (lambda m: str(m), []),
    ],
)
def test_what_is_a_use_of_a_value(use, expected):
    model = model_of()
    watcher = Watcher(model)
    use(model)
    assert watcher.used == expected


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda m: m(torch.ones(1, 3)), []),
        (lambda m: m.state_dict(), []),
        (lambda m: copy.deepcopy(m), []),
        (lambda m: pickle.dumps(m), []),
        (lambda m: m[0].weight.grad, ["0.weight"]),
        (lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0), ALL),
        (lambda m: setattr(m[0].weight, "grad", None), ["0.weight"]),
    ],
)
def test_what_is_a_use_of_a_gradient(use, expected):
    model = model_of()
    watcher = Watcher(model, values=False)
    use(model)
    assert watcher.used == expected
    # What was not used is watched still, and works as ever.
    left = [name for name in ALL if name not in expected]
    for name in left:
        assert watcher.parameters[name].grad is not None
    assert sorted(watcher.used) == sorted(ALL)


def test_copies_are_plain_parameters():
    model = model_of()
    watcher = Watcher(model, values=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [type(p) for p in other.parameters()] == [torch.nn.Parameter] * 4
        assert [torch.equal(a, b) for a, b in zip(other.parameters(), model.parameters())] == [True] * 4
    watcher.finish()


def test_a_watcher_that_is_gone_is_no_obstacle():
    model = model_of()
    watcher = Watcher(model)
    del watcher
    gc.collect()
    assert model(torch.ones(1, 3)).shape == (1, 2)
    assert [type(p) for p in model.parameters()] == [torch.nn.Parameter] * 4


def test_parameters_that_are_gone_leave_nothing_behind():
    """Later ones may have their ids, and are not theirs."""
    before = len(first_use._watches)
    for _ in range(20):
        watcher = Watcher(model_of())
        assert len(first_use._watches) == before + 4
        del watcher
        gc.collect()
        assert len(first_use._watches) == before
    watcher = Watcher(model_of())
    stale = {number: watch for number, watch in first_use._watches.items() if watch.real is not None}
    del watcher
    gc.collect()
    other = torch.nn.Parameter(torch.ones(2))
    first_use._watches[id(other)] = next(iter(stale.values())) if stale else None
    try:
        assert first_use._watch_of(other) is None
    finally:
        del first_use._watches[id(other)]


def test_a_module_that_python_does_not_run_uses_all_that_is_in_it():
    model = model_of()
    model.forward = lambda x: x  # as torch.cuda.make_graphed_callables does
    watcher, hook = Watcher(model), first_use.ModuleHook()
    hook.put()
    try:
        model(torch.ones(1, 3))
    finally:
        hook.remove()
    assert watcher.used == ALL


def test_a_module_uses_the_parameters_of_lists_in_it():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            one = torch.nn.ParameterDict({"c": torch.nn.Parameter(torch.ones(2))})
            self.own = torch.nn.ModuleList([torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2))]), one])
            self.other = torch.nn.Linear(2, 2)
            self.scripted = torch.jit.script(torch.nn.ReLU())

        def forward(self, x):
            return x

    model = Model()
    watcher, hook = Watcher(model), first_use.ModuleHook()
    hook.put()
    try:
        model(torch.ones(1, 2))
    finally:
        hook.remove()
    assert watcher.used == ["own.0.0", "own.1.c"]


@pytest.mark.parametrize("read", [
    lambda p: torch.tensor(p),
    lambda p: torch.asarray(p, copy=True),
    lambda p: torch.ones(1).new_tensor(p),
    lambda p: torch.Tensor(p),
    lambda p: torch.utils.dlpack.to_dlpack(p),
    lambda p: torch.Tensor.as_subclass(p, torch.Tensor) + 1,
    lambda p: torch.Tensor._make_subclass(torch.Tensor, p) + 1,
    lambda p: torch.sparse_coo_tensor(torch.zeros(1, 4, dtype=torch.long), p, (3,)).to_dense(),
    lambda p: (torch.ones(4), setattr(torch.ones(4), "data", p)),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_an_unseen_reader_gets_an_error_or_the_value(read):
    """Never what was there before."""
    if hidden._refuse_access is None:
        pytest.skip("this torch cannot refuse access to memory")
    model = torch.nn.Linear(4, 1, bias=False)
    model.weight = torch.nn.Parameter(torch.ones(4))
    watcher = Watcher(model)
    try:
        read(model.weight)
    except RuntimeError as error:
        assert "GB-O905 IN_FLIGHT" in str(error) and "optimizer.flush()" in str(error), error
    watcher.finish()
    assert torch.equal(model.weight, torch.ones(4)) and type(model.weight) is torch.nn.Parameter


def test_whoever_keeps_a_gradient_is_found():
    if not holders.sees_all_readers():
        pytest.skip("this torch does not count uses")
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    assert not holders.is_gradient_held(parameter, 0)
    for make in (lambda: parameter.grad, lambda: parameter.grad.data, lambda: parameter.grad.numpy(),
                 lambda: parameter.grad[0], lambda: [parameter.grad.detach()],
                 lambda: parameter.grad.untyped_storage()):  # fmt: skip
        kept = make()
        assert holders.is_gradient_held(parameter, 0), make
        del kept
        assert not holders.is_gradient_held(parameter, 0), make
    kept = parameter.grad
    assert not holders.is_gradient_held(parameter, 1)
    assert kept is parameter.grad


def test_whoever_keeps_a_part_of_an_optimizers_state_is_found():
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert not holders.is_state_held(optimizer.state)
    for make in (lambda: optimizer.state[parameter], lambda: optimizer.state[parameter]["exp_avg"],
                 lambda: optimizer.state[parameter]["exp_avg"].numpy(),
                 lambda: optimizer.state[parameter]["exp_avg"].view(-1)):  # fmt: skip
        kept = make()
        assert holders.is_state_held(optimizer.state), make
        del kept
        assert not holders.is_state_held(optimizer.state), make


def test_other_readers_are_found():
    if not holders.sees_all_readers():
        pytest.skip("this torch does not count uses")
    model = model_of()
    parameters = list(model.parameters())
    assert not holders.are_read_elsewhere(parameters)
    readers = [
        lambda: model[0].weight.detach(),
        lambda: model[0].weight.data[0],
        lambda: model[0].weight.detach().numpy(),
        lambda: model[0].weight.untyped_storage(),  # set_() makes a tensor of it later
        lambda: model.state_dict(),
        lambda: model(torch.ones(1, 3)),  # its graph
        lambda: torch.jit.script(model),
    ]
    for make in readers:
        reader = make()
        assert holders.are_read_elsewhere(parameters), make
        del reader
        gc.collect()
        assert not holders.are_read_elsewhere(parameters), make
    model.share_memory()
    assert holders.are_read_elsewhere(parameters)


def test_a_tensor_that_is_a_parameter_in_name_only_is_not_watched():
    class Other(torch.Tensor):
        _is_param = True

    other = torch.ones(2).as_subclass(Other)
    assert not first_use.can_watch(other)
    assert first_use.can_watch(torch.nn.Parameter(torch.ones(2)))
