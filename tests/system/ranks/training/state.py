"""A rank: the root's parameters and optimizer state reach every rank, bit by bit."""

import gradbus.torch as gradbus
import torch

ROOT = 1


class Model(torch.nn.Module):
    """Parameters of two dtypes, and buffers of an integer and a boolean dtype."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
        self.norm = torch.nn.BatchNorm1d(4).double()
        self.register_buffer("mask", torch.rand(5) < 0.5)
        self.register_buffer("big", torch.randn(3, 1 << 23))  # above the size that is joined

    def forward(self, x):
        return self.norm(self.layer(x).double())


def same_everywhere(values):
    everywhere = gradbus.allgather_object([v.flatten()[:100].tolist() for v in values])
    return all(other == everywhere[ROOT] for other in everywhere)


def check_parameters():
    torch.manual_seed(gradbus.rank())
    for pick in (lambda m: m.state_dict(), lambda m: m, lambda m: m.named_parameters()):
        model = Model()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        gradbus.broadcast_parameters(pick(model), root_rank=ROOT)
        assert same_everywhere(list(model.parameters()))
        if gradbus.rank() == ROOT:
            assert all(torch.equal(before[n], v) for n, v in model.state_dict().items())
    model = Model()
    gradbus.broadcast_parameters(model.state_dict(), root_rank=ROOT)
    assert same_everywhere(list(model.state_dict().values()))
    total = gradbus.allgather_object(float(model.big.double().sum()))
    assert len(set(total)) == 1


def check_optimizer_state():
    """Only the root has trained; then all have its moments, steps, options and none of their own."""

    def classes(model):
        yield torch.optim.Adam(model.parameters(), lr=0.1 * (gradbus.rank() + 1), amsgrad=True)
        yield torch.optim.SGD(model.parameters(), lr=0.1 * (gradbus.rank() + 1), momentum=0.9)
        yield torch.optim.LBFGS(model.parameters(), lr=0.1 * (gradbus.rank() + 1))

    model = torch.nn.Linear(3, 2)
    for optimizer in classes(model):
        if gradbus.rank() == ROOT:

            def closure(optimizer=optimizer):
                optimizer.zero_grad()
                loss = model(torch.ones(4, 3)).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)
        gradbus.broadcast_optimizer_state(optimizer, root_rank=ROOT)
        assert optimizer.param_groups[0]["lr"] == 0.1 * (ROOT + 1)
        flat = repr(optimizer.state_dict())
        assert len(set(gradbus.allgather_object(flat))) == 1, flat
        assert len(optimizer.state) > 0
        assert all(any(key is p for p in model.parameters()) for key in optimizer.state)


def check_stale_state_goes():
    """The root starts afresh; what the others had is gone."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    if gradbus.rank() != ROOT:
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
    gradbus.broadcast_optimizer_state(optimizer, root_rank=ROOT)
    assert len(optimizer.state) == 0


def check_refusals():
    try:
        gradbus.broadcast_parameters({"epoch": 3})
    except gradbus.InvalidError as error:
        assert "'epoch' is a int" in str(error)
    else:
        raise AssertionError("a state_dict with a number was taken")


def main():
    gradbus.init()
    check_parameters()
    check_optimizer_state()
    check_stale_state_goes()
    check_refusals()
    gradbus.barrier()
    print("ok")


if __name__ == "__main__":
    main()
