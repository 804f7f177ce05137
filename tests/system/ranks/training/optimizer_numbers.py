"""A rank: optimizers that only some ranks have, and optimizers of one session after another."""

import gradbus.torch as gradbus
import torch
from optimizer import assert_same, batches, loss_of, mine, pair, sgd, wrap


def train(ours, alone, optimizer):
    reference = sgd(alone.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        loss_of(ours, mine(x), mine(y)).backward()
        optimizer.step()
        reference.zero_grad()
        loss_of(alone, x, y).backward()
        reference.step()
    assert_same(ours, alone)


def bucket_names(optimizer):
    return [bucket.core.name for bucket in optimizer._gradbus.exchange.buckets]


def some_ranks_have_one_more(ranks):
    """An optimizer of a process set must not shift the numbers of the others."""
    process_set = gradbus.add_process_set(ranks)
    if process_set.included():
        model, _ = pair(7)
        extra = wrap(sgd(model.parameters()), model, process_set=process_set)
        second, _ = pair(8)
        wrap(sgd(second.parameters()), second, process_set=process_set)
        loss_of(model, torch.ones(2, 5), torch.zeros(2, dtype=torch.long)).backward()
        extra.step()
    ours, alone = pair()
    first = wrap(sgd(ours.parameters()), ours)
    train(ours, alone, first)
    other, other_alone = pair(2)
    train(other, other_alone, wrap(sgd(other.parameters()), other))
    return bucket_names(first)


def a_refused_rank_calls_again():
    ours, alone = pair(3)
    if gradbus.rank() == 1:
        try:
            wrap(sgd(ours.parameters()), ours, sparse_parameters=[alone[0].weight])
        except gradbus.InvalidError:
            pass
        else:
            raise AssertionError
    train(ours, alone, wrap(sgd(ours.parameters()), ours))


def main():
    torch.set_num_threads(1)
    names = []
    for session in range(2):
        gradbus.init(job=f"{gradbus_job()}-{session}")
        if session == 0 and gradbus.rank() == 0:
            extra, _ = pair()
            alone_set = gradbus.add_process_set([0])
            wrap(sgd(extra.parameters()), extra, process_set=alone_set)
        elif session == 0:
            gradbus.add_process_set([0])
        names.append(some_ranks_have_one_more(range(1, gradbus.size())))
        a_refused_rank_calls_again()
        gradbus.shutdown()
    assert names[0] == names[1], names
    print("ok")


def gradbus_job():
    import os

    return os.environ["GRADBUS_JOB"]


if __name__ == "__main__":
    main()
