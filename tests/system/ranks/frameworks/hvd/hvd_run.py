"""A program that is no rank: hvd.run() calls functions on ranks that it starts."""

import sys
from unittest import mock

import gradbus
import gradbus.__main__
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
for version, option in (((3, 10), []), ((3, 11), ["-P"])):  # Python has -P from 3.11
    with mock.patch.object(sys, "version_info", version):
        words = gradbus.__main__.words_of("status")
    assert words == [sys.executable, *option, "-m", "gradbus", "status"], words
print("ok")
