"""A program that is no rank: hvd.run() calls functions on ranks that it starts."""

import gradbus
import gradbus.horovod
import gradbus.horovod.torch as hvd
from run_functions import fail, total

assert hvd.run is gradbus.horovod.run
results = hvd.run(total, args=(10,), kwargs={"more": 1}, num_proc=2, use_gloo=True, use_mpi=False)
assert results == [{"rank": 0, "total": 23}, {"rank": 1, "total": 23}]
for options, kind, words in (
    ({"np": 2, "func": fail}, gradbus.PeerLostError, ["GB-H202", "rank 1"]),
    ({"num_proc": 0}, gradbus.InvalidError, ["num_proc=0"]),
    ({"min_num_proc": 2}, gradbus.InvalidError, ["min_num_proc"]),
):
    try:
        hvd.run(**{"func": total, **options})
        raise AssertionError(options)
    except kind as error:
        assert all(word in str(error) for word in words) and "\n" not in str(error), error
print("ok")
