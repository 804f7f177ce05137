"""Rank 2 brings a NaN to a compression with nan=stop: every rank gets the error that names it."""

import sys

import gradbus
import numpy as np
from gradbus import GradbusError


def main():
    gradbus.init()
    gradient = np.ones(20_000, dtype=np.float32)
    if gradbus.rank() == 2:
        gradient[777] = np.nan
    try:
        gradbus.allreduce(gradient, name="grad", op=gradbus.Sum, compression=sys.argv[1])
    except GradbusError as error:
        print(error)


main()
