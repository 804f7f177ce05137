"""A rank of two that calls one collective with a shape of its own: `shapes.py VERB SHAPE SHAPE NAME`.

Prints the error's text, or "ok" and the shape of the result. Shapes are like 2x4; "-" is a scalar. NAME "-": unnamed.
"""

import sys

import gradbus
import torch

CALLS = {
    "allreduce": gradbus.allreduce,
    "broadcast": lambda tensor, name: gradbus.broadcast(tensor, 0, name=name),
    "reduce": lambda tensor, name: gradbus.reduce(tensor, 0, name=name),
    "reducescatter": gradbus.reducescatter,
    "allgather": gradbus.allgather,
    "gather": lambda tensor, name: gradbus.gather(tensor, 0, name=name),
    "scatter": lambda tensor, name: gradbus.scatter(tensor, 0, name=name),
    "alltoall": lambda tensor, name: gradbus.alltoall(tensor, name=name),
}


def main():
    verb, *shapes, name = sys.argv[1:]
    gradbus.init(op_timeout=100)
    text = shapes[gradbus.rank()]
    shape = () if text == "-" else tuple(map(int, text.split("x")))
    try:
        result = CALLS[verb](torch.ones(shape), name=None if name == "-" else name)
        print("result", None if result is None else list(result.shape))
    except gradbus.MismatchError as error:
        print("refused", error)
    gradbus.shutdown()
    print("ok")


if __name__ == "__main__":
    main()
