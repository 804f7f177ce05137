"""A rank: trainings of all kinds have the result of one process.

    cases.py            all cases but those that are compiled, which take longer
    cases.py WORD...    those with these words in their name
"""

import sys

import cases_gradients  # noqa: F401
import cases_loops  # noqa: F401
import cases_models  # noqa: F401
import cases_optimizers  # noqa: F401
import cases_parameters  # noqa: F401
import cases_programs  # noqa: F401
import gradbus.torch as gradbus
import torch
import training_cases

if len(sys.argv) > 1:
    import cases_compiled  # noqa: F401

torch.set_num_threads(1)
gradbus.init()
wrong = training_cases.run(sys.argv[1:])
assert not wrong, wrong
print("ok")
