"""A rank: 1-bit Adam and 0/1 Adam on two ranks with an agent each, against the papers' formulas in float64.

A training that was interrupted goes on bit for bit, also with two ranks on each node.

Both ranks' gradients can be computed by anyone, so each rank works out what all of them must have.
"""

import io

import gradbus.torch as gradbus
import numpy as np
import torch

ROWS, COLUMNS, BLOCK = 64, 320, 2048  # 20480 elements: ten blocks
RATE, DECAY = 0.01, 0.1
BETA1, BETA2, EPSILON = 0.9, 0.99, 1e-8
CODEC = f"efsignsgd:block={BLOCK},communicator=allgather"  # each rank's payload is summed as it is: one encoding
TOLERANCE = 2e-5


def gradient(step, rank):
    """Of the weight and the bias. Elements of the bias's second half never have one."""
    generator = np.random.default_rng([step, rank])
    weight = generator.standard_normal((ROWS, COLUMNS)) + 0.3
    bias = generator.standard_normal(ROWS)
    bias[ROWS // 2 :] = 0
    return weight, bias


def start():
    generator = np.random.default_rng(7)
    return generator.standard_normal((ROWS, COLUMNS)), generator.standard_normal(ROWS)


class Signs:
    """Error feedback of each rank: what is sent are signs times the mean magnitude of their block."""

    def __init__(self):
        self.residuals = [np.zeros(ROWS * COLUMNS) for _ in range(SIZE)]

    def mean(self, vectors):
        total = np.zeros(ROWS * COLUMNS)
        for rank, vector in enumerate(vectors):
            wanted = (vector.ravel() + self.residuals[rank]).reshape(-1, BLOCK)
            sent = np.where(wanted < 0, -1, 1) * np.abs(wanted).mean(1, keepdims=True)
            self.residuals[rank] = (wanted - sent).ravel()
            total += sent.ravel()
        return (total / SIZE).reshape(ROWS, COLUMNS)


class Adam:
    """The formulas of both, of one tensor; ``mean`` of the large one goes through a codec, if there is one."""

    def __init__(self, value, codec):
        self.value = value.copy()
        self.m, self.v, self.updates = np.zeros_like(value), np.zeros_like(value), 0
        self.signs = {what: Signs() for what in ("gradient", "momentum", "way")} if codec else None

    def mean(self, what, vectors):
        return self.signs[what].mean(vectors) if self.signs else sum(vectors) / SIZE

    def divisor(self):
        return np.sqrt(self.v / (1 - BETA2**self.updates)) + EPSILON

    def square(self, g):
        self.v = BETA2 * self.v + (1 - BETA2) * g * g
        self.updates += 1

    def moved(self, value, m, step):
        return value * (1 - RATE * DECAY) - RATE / (1 - BETA1**step) * m / self.divisor()

    def used(self, vector):
        return np.where(self.v == 0, 0, vector)

    def onebit_step(self, step, gradients, warmup):
        if step <= warmup:
            g = sum(gradients) / SIZE
            self.m = BETA1 * self.m + (1 - BETA1) * g
            self.square(g)
        else:
            self.m = self.used(self.mean("momentum", [BETA1 * self.m + (1 - BETA1) * g for g in gradients]))
        self.value = self.moved(self.value, self.m, step)


class ZeroOne(Adam):
    """0/1 Adam: ranks have values and momenta of their own between two exchanges."""

    def __init__(self, value, codec, freeze, scaler, local_scaler, most):
        super().__init__(value, codec)
        self.options = freeze, scaler, local_scaler, most
        self.due, self.alone = 1, []

    def step(self, step, gradients):
        freeze, scaler, local_scaler, most = self.options
        if step > freeze:
            return self.alone_step(step, gradients, min(most, 2 ** ((step - freeze - 1) // local_scaler)))
        if step >= self.due:
            g = sum(gradients) / SIZE
            self.due = step + 2 ** (self.updates // scaler)
            self.square(g)
        else:
            g = self.used(self.mean("gradient", gradients))
        self.m = BETA1 * self.m + (1 - BETA1) * g
        self.value = self.moved(self.value, self.m, step)

    def alone_step(self, step, gradients, interval):
        if not self.alone:
            self.alone = [(self.value, self.m)] * SIZE
            self.rates, self.count = 0.0, 0
        momenta = [BETA1 * m + (1 - BETA1) * g for (_, m), g in zip(self.alone, gradients)]
        self.alone = [(self.moved(value, m, step), m) for (value, _), m in zip(self.alone, momenta)]
        self.rates += RATE / (1 - BETA1**step)
        self.count += 1
        if self.count >= interval:
            self.meet()

    def meet(self):
        if not self.alone:
            return
        way = self.mean("way", [(self.value - value) * self.divisor() for value, _ in self.alone])
        self.value = np.where(self.v == 0, self.alone[0][0], self.value - way / self.divisor())
        self.m = self.used(way / self.rates)
        self.alone = []


def close(tensor, expected, what):
    difference = np.abs(tensor.detach().numpy() - expected).max()
    assert difference <= TOLERANCE * max(1, np.abs(expected).max()), (what, difference)


def train(make, models, step_of, steps):
    """Steps of an optimizer and of the formulas, compared after each; returns the optimizer."""
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for value in start()]
    optimizer = make(parameters)
    for step in range(1, steps + 1):
        gradients = [gradient(step, rank) for rank in range(SIZE)]
        for number, parameter in enumerate(parameters):
            parameter.grad = torch.tensor(gradients[RANK][number], dtype=torch.float32)
            step_of(models[number], step, [one[number] for one in gradients])
        optimizer.step()
        for parameter, model in zip(parameters, models):
            expected = model.alone[RANK][0] if getattr(model, "alone", None) else model.value
            close(parameter, expected, (type(optimizer).__name__, step))
    return optimizer, parameters


ADAM = {"lr": RATE, "betas": (BETA1, BETA2), "eps": EPSILON, "weight_decay": DECAY}


def check_onebit(codec):
    models = [Adam(value, codec != "none" and value.ndim > 1) for value in start()]
    optimizer, parameters = train(
        lambda p: gradbus.OneBitAdam(p, **ADAM, warmup_steps=4, compression=codec),
        models, lambda model, step, gradients: model.onebit_step(step, gradients, 4), 9)  # fmt: skip
    if codec == "none":
        resume(optimizer, parameters, models)


def resume(optimizer, parameters, models):
    """A new optimizer goes on from state_dict()."""
    again = gradbus.OneBitAdam(parameters, **ADAM, warmup_steps=4, compression="none")
    again.load_state_dict(optimizer.state_dict())
    gradients = [gradient(10, rank) for rank in range(SIZE)]
    for number, (parameter, model) in enumerate(zip(parameters, models)):
        parameter.grad = torch.tensor(gradients[RANK][number], dtype=torch.float32)
        model.onebit_step(10, [one[number] for one in gradients], 4)
    again.step()
    for parameter, model in zip(parameters, models):
        close(parameter, model.value, "resumed")


def check_zero_one(codec):
    """Squares are updated at steps 1, 2, 3, 5 and 7, then exchanges follow after 1, 1, 1, 2 and 3 steps."""
    models = [ZeroOne(value, codec != "none" and value.ndim > 1, 7, 2, 3, 3) for value in start()]
    optimizer, parameters = train(
        lambda p: gradbus.ZeroOneAdam(
            p, **ADAM, freeze_step=7, variance_scaler=2, local_step_scaler=3, local_steps_max=3, compression=codec),
        models, lambda model, step, gradients: model.step(step, gradients), 17)  # fmt: skip
    assert models[0].alone and models[0].updates == 5, models[0].updates
    assert optimizer.flush() == models[0].count
    for parameter, model in zip(parameters, models):
        model.meet()
        close(parameter, model.value, "flushed")
        everyone = gradbus.allgather(parameter.detach()[None])
        assert torch.equal(everyone[0], everyone[1])
    assert optimizer.flush() == 0


def zero_one(parameters, codec):
    return gradbus.ZeroOneAdam(
        parameters, **ADAM, freeze_step=7, variance_scaler=2, local_step_scaler=3, local_steps_max=3, compression=codec)


def one_bit(parameters, codec):
    return gradbus.OneBitAdam(parameters, **ADAM, warmup_steps=4, compression=codec)


def run(optimizer, parameters, steps):
    for step in steps:
        for parameter, value in zip(parameters, gradient(step, RANK)):
            parameter.grad = torch.tensor(value, dtype=torch.float32)
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def through_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file)


def check_resumed(make, codec, at, through_state):
    """A training that was interrupted after step `at` goes on bit for bit. Without residuals, it would not."""
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for value in start()]
    optimizer = make(parameters, codec)
    run(optimizer, parameters, range(1, at + 1))
    saved = through_file(gradbus.state(optimizer).state_dict() if through_state else optimizer.state_dict())
    held = [parameter.detach().clone() for parameter in parameters]
    expected = run(optimizer, parameters, range(at + 1, 18))
    del optimizer
    kept = {} if through_state else saved["residuals"]["shares"]["residual"]
    for forgets in (False, True) if kept else (False,):
        for name in kept if forgets else ():
            kept[name].zero_()
        parameters = [torch.nn.Parameter(value.clone()) for value in held]
        again = make(parameters, codec)
        (gradbus.state(again) if through_state else again).load_state_dict(saved)
        same = all(torch.equal(*pair) for pair in zip(run(again, parameters, range(at + 1, 18)), expected))
        assert all(gradbus.allgather_object(same != forgets)), (make, codec, at, through_state, forgets)
    if not through_state:
        check_file_of_one(make, codec, saved)


def check_file_of_one(make, codec, saved):
    """All ranks load rank 0's: the others have no residuals then."""
    parameters = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for value in start()]
    again = make(parameters, codec)
    again.load_state_dict(gradbus.broadcast_object(saved))
    mine = again.compression_state()["residual"]
    assert all(bool(share.any()) is False for share in mine.values()) or RANK == 0, mine


def check_start():
    """The first steps are those of torch's AdamW on the mean gradient."""
    ours, theirs = (torch.nn.Parameter(torch.tensor(start()[0], dtype=torch.float32)) for _ in range(2))
    optimizer, plain = gradbus.OneBitAdam([ours], **ADAM), torch.optim.AdamW([theirs], **ADAM)
    for step in range(5):
        ours.grad = torch.tensor(gradient(step, RANK)[0], dtype=torch.float32)
        theirs.grad = torch.tensor(sum(gradient(step, r)[0] for r in range(SIZE)) / SIZE, dtype=torch.float32)
        optimizer.step()
        plain.step()
        close(ours, theirs.detach().numpy(), "AdamW")


def refused(text, call):
    try:
        call()
    except gradbus.InvalidError as error:
        assert text in str(error) and "\n" not in str(error), error
    else:
        raise AssertionError(f"{text}: not refused")


def check_refusals():
    parameter = torch.nn.Parameter(torch.ones(2))
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer = gradbus.OneBitAdam([parameter])
    refused("already distributed", lambda: gradbus.DistributedOptimizer(optimizer))
    refused("add_param_group", lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]}))
    refused("float16", lambda: gradbus.OneBitAdam([half]))
    refused("warmup_steps is 0", lambda: gradbus.OneBitAdam([parameter], warmup_steps=0))
    refused("local_steps_max is 0", lambda: gradbus.ZeroOneAdam([parameter], local_steps_max=0))
    refused("betas", lambda: gradbus.ZeroOneAdam([parameter], betas=(1.0, 0.9)))
    large = torch.nn.Parameter(torch.ones(ROWS, COLUMNS))
    refused("onebid", lambda: gradbus.OneBitAdam([large], compression="onebid"))
    parameter.grad = torch.ones(2).to_sparse()
    refused("sparse", optimizer.step)


def check_frozen():
    """As torch.optim.AdamW, both leave it alone."""
    for make in (gradbus.OneBitAdam, gradbus.ZeroOneAdam):
        frozen, trained = (torch.nn.Parameter(torch.ones(BLOCK)) for _ in range(2))
        frozen.requires_grad_(False)
        optimizer = make([frozen, trained], lr=RATE, weight_decay=DECAY)
        for _ in range(3):
            optimizer.zero_grad()
            trained.square().sum().backward()
            optimizer.step()
        assert (frozen == 1).all() and not (trained == 1).any(), (make, frozen[:3], trained[:3])


def check_interruptions():
    for codec in (CODEC, "onebit:block=2048"):
        for make, at in ((one_bit, 3), (one_bit, 9), (zero_one, 5), (zero_one, 13)):  # 13: between two exchanges
            for through_state in (False, True):
                check_resumed(make, codec, at, through_state)


gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
check_interruptions()
if SIZE == 2:  # one rank on each node: otherwise nodes, and not ranks, have the residuals
    check_start()
    for codec in ("none", CODEC):
        check_onebit(codec)
        check_zero_one(codec)
    check_refusals()
    check_frozen()
gradbus.shutdown()
print("ok")
