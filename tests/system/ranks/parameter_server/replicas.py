"""Steps through parameter-server shards with copies while the test kills some: one rank, by the C interface.

replicas.py LIBRARY counted MODE STEPS [COMPRESSION]   every rank's every gradient arrives exactly once; prints
                                         when each step ended, and what the parameters are in the end
replicas.py LIBRARY forever MODE         steps until the job ends; prints its error
replicas.py LIBRARY pulled MODE          prints the least and the largest parameter, after one round
replicas.py LIBRARY refused MODE [COMPRESSION]   prints why the tensor cannot be registered
"""

import sys
import time

import numpy
from c_rank import Rank, Refused

COUNTS = {"weight": 210_000, "bias": 3}
NODES = [0, 0, 1]  # of the ranks
START_OF_LAMB = 1000.0


def is_lamb(mode):
    return "optimizer=lamb" in mode


def gradient(mode, rank, number):
    """Integers of which the mean of two or three is one, too; lamb's never change."""
    return 6.0 if is_lamb(mode) else 6.0 * (rank + 1 + number % 5)


def wanted(mode, steps):
    """The sum of what the steps change. Lamb's with lr=0.01 make 0.99 of what is alike everywhere."""
    if is_lamb(mode):
        return START_OF_LAMB * 0.99 ** (steps * (1 if mode.startswith("ps:quorum") else 2))
    total = 0.0
    for number in range(steps):
        ranks = [gradient(mode, rank, number) for rank in range(len(NODES))]
        nodes = [(ranks[0] + ranks[1]) / 2, ranks[2]]
        if mode.startswith("ps:sync"):
            total += sum(ranks) / len(ranks)
        else:
            total -= sum(nodes) / (len(nodes) if mode.startswith("ps:quorum") else 1)
    return total


def counted(rank, mode, steps, compression=None):
    rank.register(COUNTS, mode, compression)
    only_sums = mode.startswith("ps:sync")
    totals = [numpy.zeros_like(data) for data in rank.data]
    if not only_sums:
        rank.round(START_OF_LAMB if is_lamb(mode) else 0.0)  # sets the parameters
    for number in range(int(steps)):
        rank.round(gradient(mode, rank.number, number))
        for total, data in zip(totals, rank.data):
            total[:] = total + data if only_sums else data
        print(f"stepped {time.monotonic():.6f}", flush=True)
        time.sleep(0.01)
    rank.call("barrier", rank.session)
    if not only_sums:
        rank.round(12345.0, "start_pull")
        totals = rank.data
    target = wanted(mode, int(steps))
    for total in totals:
        if only_sums or is_lamb(mode):  # means of three and lamb round; one gradient less would be far off
            assert numpy.all(numpy.abs(total - target) < 0.1), (total, target)
        else:
            assert numpy.all(total == target), (total, target)
    print(f"ended {target:.0f}")


def forever(rank, mode):
    rank.register(COUNTS, mode)
    while True:
        rank.round(1.0)
        print("stepped", flush=True)
        time.sleep(0.01)


def pulled(rank, mode):
    rank.register(COUNTS, mode)
    rank.round(0.0)
    print(f"pulled {rank.data[0].min():.0f} {rank.data[0].max():.0f}")


def refused(rank, mode, compression=None):
    rank.register(COUNTS, mode, compression)


def main():
    rank = Rank(sys.argv[1])
    try:
        {command.__name__: command for command in (counted, forever, pulled, refused)}[sys.argv[2]](rank, *sys.argv[3:])
    except Refused as error:
        print(f"refused: {error}")
        return
    rank.shutdown()
    print("ok")


if __name__ == "__main__":
    main()
