"""A rank: trainings with shard=True have the result of one process.

    sharded_cases.py WORD...    cases with these words in their name
"""

import sys

import cases_edited  # noqa: F401
import cases_gradients  # noqa: F401
import cases_habits  # noqa: F401
import cases_models  # noqa: F401
import cases_parameters  # noqa: F401
import gradbus.torch as gradbus
import torch
import training_cases

wrap = training_cases.Training.wrap
training_cases.Training.wrap = lambda training, optimizer, named, **options: wrap(
    training, optimizer, named, **{"shard": True, **options}
)
torch.set_num_threads(1)
gradbus.init()
wrong = training_cases.run(sys.argv[1:])
assert not wrong, wrong
print("ok")
