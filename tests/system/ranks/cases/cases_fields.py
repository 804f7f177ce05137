"""Cases: trainings of several fields, as their papers' programs write them."""

import copy
import functools

import gradbus.torch as gradbus
import torch
import torch.nn as nn
import torch.nn.functional as F
import training_cases
from torch.optim import lr_scheduler, swa_utils
from training_cases import mlp, sgd, step

case = functools.partial(training_cases.case, tolerance=1e-5)


@case
def actor_and_critic_with_one_trunk(training):
    """Policy gradient, value loss and entropy; the advantage is detached."""
    model = nn.ModuleDict({"trunk": nn.Linear(6, 16), "actor": nn.Linear(16, 3), "critic": nn.Linear(16, 1)})
    optimizer = training.wrap(torch.optim.RMSprop(model.parameters(), 0.01), model)
    for x, y in training.batches():
        hidden = model["trunk"](x).tanh()
        chances = model["actor"](hidden).log_softmax(1)
        value = model["critic"](hidden).squeeze(1)
        advantage = y[:, 0] - value.detach()
        chosen = chances.gather(1, y.argmax(1, keepdim=True)).squeeze(1)
        entropy = -(chances.exp() * chances).sum(1).mean()
        optimizer.zero_grad()
        (-(chosen * advantage).mean() + 0.5 * F.mse_loss(value, y[:, 0]) - 0.01 * entropy).backward()
        optimizer.step()
    return model


@case
def student_teacher_and_center(training):
    """DINO: the teacher is an average of students, and its center one of all ranks' outputs."""
    student = mlp()
    teacher = copy.deepcopy(student).requires_grad_(False)
    student.register_buffer("center", torch.zeros(3))
    optimizer = training.wrap(torch.optim.AdamW(student.parameters(), 0.01), student)
    for x, y in training.batches():
        target = teacher(x)
        optimizer.zero_grad()
        goal = ((target - student.center) / 0.1).softmax(1)
        (-(goal * student(x + 0.1 * y.repeat(1, 2)).log_softmax(1)).sum(1).mean()).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, theirs in zip(student.parameters(), teacher.parameters()):
                theirs.mul_(0.9).add_(mine, alpha=0.1)
            student.center.mul_(0.9).add_(training.mean(target.mean(0)), alpha=0.1)
    return student


@case
def lstm_through_pieces_of_sequences(training):
    """Truncated backpropagation: the state goes on, its graph does not."""
    model = nn.ModuleDict({"lstm": nn.LSTM(6, 8, num_layers=2), "head": nn.Linear(8, 6)})
    optimizer = training.wrap(sgd(model), model)
    generator = torch.Generator().manual_seed(4)
    sequences = training.part(torch.randn(8, 20, 6, generator=generator)).transpose(0, 1)
    state = None
    for first in range(0, 16, 4):
        optimizer.zero_grad()
        made, state = model["lstm"](sequences[first : first + 4], state)
        F.mse_loss(model["head"](made), sequences[first + 1 : first + 5]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        state = tuple(part.detach() for part in state)
    return model


@case
def meta_learning_through_inner_steps(training):
    """MAML: the outer gradient goes through two inner steps."""
    model = mlp()
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    for x, y in training.batches():
        losses = []
        for task in range(len(x)):  # each row is a task
            weights = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(torch.func.functional_call(model, weights, (x[task],)), y[task])
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes)}
            losses.append(F.mse_loss(torch.func.functional_call(model, weights, (x[task] + 0.1,)), y[task]))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    return model


class Experts(nn.Module):
    """Each row goes to one expert, so a rank may use none of some experts."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(6, 8)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(8))

    def forward(self, x):
        weight, chosen = self.router(x).softmax(1).max(1)
        made = x.new_zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().squeeze(1)
            if len(rows):
                made = made.index_add(0, rows, expert(x[rows]) * weight[rows, None])
        return made


@case
def experts_that_some_ranks_do_not_use(training):
    return training.loop(model := Experts(), sgd(model, momentum=0))


@case
def loss_over_the_rows_of_all_ranks(training):
    """Padding differs by rank, so the sum of losses is divided by the count of all ranks, and gradients are summed."""
    model = mlp()
    options = {"op": gradbus.Sum} if training.distributed else {}
    optimizer = training.wrap(sgd(model), model, **options)
    for x, y in training.batches():
        rows = (y[:, 0] > -0.5).float()
        count = rows.sum()
        if training.distributed:
            count = gradbus.allreduce(count, op=gradbus.Sum)
        optimizer.zero_grad()
        ((model(x) - y).square().mean(1) * rows).sum().div(count).backward()
        optimizer.step()
    return model


@case
def averaged_weights_after_warm_restarts(training):
    """SWA with a schedule of schedules."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    restarts = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2)
    schedule = lr_scheduler.SequentialLR(optimizer, [warm, restarts], [3])
    average = swa_utils.AveragedModel(model)
    for number, (x, y) in enumerate(training.batches(10)):
        step(model, optimizer, x, y)
        schedule.step()
        if number >= 5:
            average.update_parameters(model)
    return average


@case
def rates_by_layer_and_rows_that_stay(training):
    """Fine-tuning: lower rates for lower layers, no decay of biases, and masked rows of an embedding."""
    model = nn.Sequential(nn.Embedding(10, 6, padding_idx=0), nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    model[0].weight.register_hook(lambda gradient: gradient * (torch.arange(10) > 4)[:, None])
    groups = [
        {"params": [p], "lr": 0.01 * 0.7 ** (3 - int(name[0])), "weight_decay": 0.1 * (p.dim() > 1)}
        for name, p in model.named_parameters()
    ]
    optimizer = training.wrap(torch.optim.AdamW(groups), model)
    for x, y in training.batches():
        step(model, optimizer, (x[:, 0] * 3).long().clamp(0, 9), y)
    return model


@case
def contrast_with_the_rows_of_all_ranks(training):
    """SimCLR: each rank's loss is about all ranks' embeddings, through a differentiable allgather()."""
    model = mlp()
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    for x, y in training.batches():
        views = [F.normalize(model(view), dim=1) for view in (x, x + 0.1 * y.repeat(1, 2))]
        if training.distributed:
            views = [gradbus.allgather(view) for view in views]
        optimizer.zero_grad()
        F.cross_entropy(views[0] @ views[1].T / 0.5, torch.arange(len(views[0]))).backward()
        optimizer.step()
    return model


@case
def variational_autoencoder(training):
    model = nn.ModuleDict({"coder": nn.Linear(6, 4), "decoder": nn.Linear(2, 6)})
    optimizer = training.wrap(torch.optim.Adamax(model.parameters(), 0.02), model)
    for x, y in training.batches():
        mean, spread = model["coder"](x).chunk(2, 1)
        made = model["decoder"](mean + (spread / 2).exp() * y[:, :2])  # the noise is part of the batch
        optimizer.zero_grad()
        apart = (mean.square() + spread.exp() - 1 - spread).sum(1).mean()
        (F.mse_loss(made, x) + 0.01 * apart).backward()
        optimizer.step()
    return model


@case
def adversarial_inputs(training):
    """FGSM: a backward pass that ends at the inputs comes before that of the step."""
    model = mlp()
    optimizer = training.wrap(sgd(model), model)
    for x, y in training.batches():
        moved = x.clone().requires_grad_()
        F.mse_loss(model(moved), y, reduction="sum").backward(inputs=[moved])
        step(model, optimizer, x + 0.05 * moved.grad.sign(), y)
    return model


@case
def values_with_a_target_network(training):
    """DQN: the target is copied each third step, as state_dict()."""
    model = mlp()
    target = copy.deepcopy(model)
    optimizer = training.wrap(torch.optim.RMSprop(model.parameters(), 0.01, centered=True), model)
    for number, (x, y) in enumerate(training.batches(7)):
        with torch.no_grad():
            goal = y[:, 0] + 0.9 * target(x.flip(1)).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(model(x).gather(1, y.argmax(1, keepdim=True)).squeeze(1), goal).backward()
        optimizer.step()
        if number % 3 == 2:
            target.load_state_dict(model.state_dict())
    return model


@case
def weights_made_by_a_network(training):
    """A hypernetwork: the layer that is applied has no parameters."""
    model = nn.ModuleDict({"maker": nn.Linear(4, 18), "seed": nn.ParameterDict({"z": torch.ones(4)})})
    optimizer = training.wrap(torch.optim.NAdam(model.parameters(), 0.01), model)
    for x, y in training.batches():
        optimizer.zero_grad()
        F.mse_loss(x @ model["maker"](model["seed"]["z"].tanh()).view(6, 3), y).backward()
        optimizer.step()
    return model


@case
def letters_of_unequal_lengths(training):
    """CTC with packed sequences."""
    model = nn.ModuleDict({"gru": nn.GRU(6, 8, bidirectional=True), "head": nn.Linear(16, 5)})
    optimizer = training.wrap(torch.optim.Adam(model.parameters(), 0.01), model)
    generator = torch.Generator().manual_seed(5)
    for _ in range(4):
        sounds, words = torch.randn(8, 12, 6, generator=generator), torch.randint(1, 5, (8, 3), generator=generator)
        sounds, words, lengths = training.part(sounds, words, torch.tensor([12, 11, 10, 12, 9, 12, 8, 10]))
        packed = nn.utils.rnn.pack_padded_sequence(sounds.transpose(0, 1), lengths, enforce_sorted=False)
        made, _ = nn.utils.rnn.pad_packed_sequence(model["gru"](packed)[0])
        optimizer.zero_grad()
        F.ctc_loss(model["head"](made).log_softmax(2), words, lengths, torch.full((len(words),), 3)).backward()
        optimizer.step()
    return model
