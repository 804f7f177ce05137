"""A rank whose tensor has other priorities on each rank, then the same ones, which `gradbus status` shows."""

import json
import os
import subprocess
import sys

import gradbus
from gradbus._session import current

F32 = 1
SPEC = ("t", 1000, F32, int(gradbus.Sum), "none", 0, "sync")

gradbus.init()
try:
    current().register_buckets([SPEC], (), [(3 + gradbus.rank(), 9)])
except gradbus.MismatchError as error:
    assert "of priority 3, of results 9" in str(error) and "of priority 4, of results 9" in str(error), error
else:
    raise AssertionError("ranks differ")
try:
    current().register_buckets([SPEC], (), [((1 << 20) + 1, 0)])
except gradbus.InvalidError as error:
    assert "priority 1048577; allowed are 0..1048576" in str(error), error
else:
    raise AssertionError("no such priority")
(tensor,) = current().register_buckets([SPEC], (), [(3, 9)])
tensor.start()
tensor.wait()
if gradbus.rank() == 0:
    said = subprocess.run([sys.argv[1], "status", "--job", current().job, "--json", "--coordinator", sys.argv[2]],
                          env=dict(os.environ, GRADBUS_TOKEN_FILE=sys.argv[3]),
                          text=True, capture_output=True, check=False)  # fmt: skip
    (shown,) = [t for t in json.loads(said.stdout)["jobs"][0]["tensors"] if t["name"] == "t"]
    assert (shown["priority"], shown["result_priority"]) == (3, 9), shown
    assert shown["algorithm"] == "recursive_doubling" and "predicted" in shown["why"], shown
gradbus.barrier()
gradbus.shutdown()
print("ok", flush=True)
