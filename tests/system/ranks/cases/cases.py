"""A rank: trainings of all kinds have the result of one process.

    cases.py            all cases but those that are compiled, which take longer
    cases.py WORD...    those with these words in their name
    cases.py but WORD...    all cases but those that are compiled or have these words in their name
"""

import sys

import cases_edited  # noqa: F401
import cases_fields  # noqa: F401
import cases_gradients  # noqa: F401
import cases_habits  # noqa: F401
import cases_loops  # noqa: F401
import cases_models  # noqa: F401
import cases_optimizers  # noqa: F401
import cases_parameters  # noqa: F401
import cases_programs  # noqa: F401
import gradbus.torch as gradbus
import torch
import training_cases

words = sys.argv[1:]
if words and words[0] != "but":
    import cases_compiled  # noqa: F401

torch.set_num_threads(1)
gradbus.init()
wrong = training_cases.run(words)
assert not wrong, wrong
print("ok")
