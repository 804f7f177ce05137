"""A rank that runs another one of this folder as if no result were there when step() is called.

    deferred.py PROGRAM WORDS...

So each parameter is stepped when it is used next, however fast the machine is. At the end it says how many buckets
that were.
"""

import pathlib
import runpy
import sys

from gradbus.torch._buckets.gradient_buckets import Bucket
from gradbus.torch._exchange.deferred import Deferred

counted = {"deferred": 0}


def step(self, *arguments, original=Deferred.step):
    original(self, *arguments)
    counted["deferred"] += len(self._left)


Bucket.test = lambda self: False
Deferred.step = step
sys.argv = [str(pathlib.Path(__file__).parent / sys.argv[1]), *sys.argv[2:]]
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"deferred {counted['deferred']}\nok")
