"""A rank: a training script as those for Horovod and MNIST, on random digits.

Only the import says Gradbus. The functions behind main() are the test's, which compares with one process.
"""

import argparse

import gradbus.horovod.torch as hvd
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data
import torch.utils.data.distributed

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")


class Net(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=5)
        self.fc1 = nn.Linear(128, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.view(-1, 128)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits(count, seed):
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, 28, 28, generator=random)
    return torch.utils.data.TensorDataset(images, torch.randint(0, 10, (count,), generator=random))


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def train(model, optimizer, sampler, loader, epoch):
    model.train()
    sampler.set_epoch(epoch)
    for data, target in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
    if hvd.rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


def test(model, loader, sampler):
    model.eval()
    loss = hits = 0.0
    with torch.no_grad():
        for data, target in loader:
            output = model(data)
            loss += F.nll_loss(output, target, reduction="sum").item()
            hits += (output.argmax(1) == target).sum().item()
    loss = metric_average(loss / len(sampler), "avg_loss")
    return loss, metric_average(hits / len(sampler), "avg_accuracy")


def main(args):
    hvd.init()
    torch.manual_seed(42 + hvd.rank())  # broadcast_parameters() makes the models equal
    torch.set_num_threads(1)
    train_data, test_data = digits(96, seed=1), digits(48, seed=2)
    samplers = [
        torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
        for data in (train_data, test_data)
    ]
    loader = torch.utils.data.DataLoader(train_data, batch_size=args.batch_size, sampler=samplers[0])
    test_loader = torch.utils.data.DataLoader(test_data, batch_size=16, sampler=samplers[1])

    model = Net()
    lr_scaler = hvd.size() if not args.use_adasum else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=1.0,
    )
    for epoch in range(1, args.epochs + 1):
        train(model, optimizer, samplers[0], loader, epoch)
        found = test(model, test_loader, samplers[1])
    return model, found


# ---- the test


def samples_of(data, epoch):
    """The order in which each rank sees them."""
    orders = []
    for rank in range(hvd.size()):
        sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=rank)
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    return orders


def train_alone(args):
    """The batches of all ranks as one batch, in one process."""
    torch.manual_seed(42)
    data, model = digits(96, seed=1), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
    images, targets = data.tensors
    for epoch in range(1, args.epochs + 1):
        orders = samples_of(data, epoch)
        for start in range(0, len(orders[0]), args.batch_size):
            batch = [index for order in orders for index in order[start : start + args.batch_size]]
            optimizer.zero_grad()
            F.nll_loss(model(images[batch]), targets[batch]).backward()
            optimizer.step()
    return model


def check(args, model, found):
    alone = train_alone(args)
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters()):
        worst = (ours - theirs).abs().max().item()
        assert worst < 1e-5, (name, worst)
    images, targets = digits(48, seed=2).tensors
    with torch.no_grad():
        output = alone.eval()(images)
    assert abs(F.nll_loss(output, targets).item() - found[0]) < 1e-4, found
    assert abs((output.argmax(1) == targets).float().mean().item() - found[1]) < 0.03, found


arguments = parser.parse_args()
check(arguments, *main(arguments))
print("ok")
