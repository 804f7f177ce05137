"""Compressed all-reduces of one rank, compared with what NumPy makes of all ranks' inputs."""

import hashlib
import json
import sys

import gradbus
import numpy as np
from gradbus import MismatchError

COUNT = 100_003  # several partitions of small codecs would need more; odd, so that the last block is short
ROUNDS = 4
# codec: how far one round's sum may be from the exact one, relative to its norm. With three agents the
# planner may have owners who round a second time, so there is room for that. Selections send little
# in a round; what they leave comes later, which is checked over rounds.
ERROR_MAX = {
    "fp16": 1e-3,
    "bf16": 1e-2,
    "fp8": 0.06,
    "int8": 0.015,
    "int4:ef=none": 0.3,
    "topk:ratio=1": 1e-6,
    "topk:ratio=1,communicator=ps": 1e-6,
    "threshold:value=0": 1e-6,
    "randk:ratio=1": 1e-6,
    "rows:dim=300": 1e-6,
    "rows:dim=300,communicator=ps": 1e-6,
    "blocktopk:ratio=1": 1e-6,
    "qsgd": 0.15,
    "natural": 0.6,
    "onebit:ef=none": 0.9,
    "efsignsgd:ef=none": 0.9,
    "int8:communicator=allgather": 0.01,
    "int8:communicator=ps": 0.015,
}


def inputs(step):
    """Of all ranks."""
    return [
        np.random.default_rng([step, rank]).standard_normal(COUNT, dtype=np.float32)
        for rank in range(gradbus.size())
    ]


def relative(error, exact):
    return float(np.linalg.norm(error) / np.linalg.norm(exact))


def close_to_the_sum(checksums):
    for codec, allowed in ERROR_MAX.items():
        for step in range(ROUNDS):
            all_inputs = inputs(step)
            exact = np.sum(np.asarray(all_inputs, dtype=np.float64), axis=0)
            got = gradbus.allreduce(
                all_inputs[gradbus.rank()], name=codec, op=gradbus.Sum, compression=codec
            )
            error = relative(got - exact, exact)
            assert error <= allowed, f"{codec} round {step}: error {error}, allowed {allowed}"
            checksums[f"{codec} {step}"] = hashlib.sha256(got.tobytes()).hexdigest()


def nothing_is_lost(checksums):
    """Error feedback: with one gradient over and over, the mean result comes closer and closer."""
    gradient = inputs(0)[gradbus.rank()]
    exact = np.sum(np.asarray(inputs(0), dtype=np.float64), axis=0)
    for codec in ("topk:ratio=0.05", "onebit", "efsignsgd", "int4", "topk:ratio=0.05,communicator=ps"):
        total = np.zeros(COUNT)
        errors = []
        for step in range(1, 65):
            total += gradbus.allreduce(
                gradient, name=f"again {codec}", op=gradbus.Sum, compression=codec
            )
            errors.append(relative(total / step - exact, exact))
        # What is missing is one residual, whose size settles: twice the rounds, half the error. One bit
        # needs longer to settle; without a residual the error would stay as it is.
        assert errors[63] < 0.8 * errors[31], f"{codec}: {errors[31]} then {errors[63]}"
        checksums[f"again {codec}"] = hashlib.sha256(total.tobytes()).hexdigest()


def averages_and_factors():
    mean = gradbus.allreduce(
        inputs(0)[gradbus.rank()], name="mean", compression="fp16", postscale_factor=4.0
    )
    exact = 4 * np.mean(np.asarray(inputs(0), dtype=np.float64), axis=0)
    assert relative(mean - exact, exact) < 1e-3


def not_finite_is_seen():
    for codec in ("fp16", "topk", "onebit", "int8", "powersgd"):
        gradient = inputs(0)[gradbus.rank()].copy()
        if gradbus.rank() == gradbus.size() - 1:
            gradient[777] = np.inf
        got = gradbus.allreduce(gradient, name=f"inf {codec}", compression=codec)
        assert not np.isfinite(got).all(), codec
        again = gradbus.allreduce(
            inputs(1)[gradbus.rank()], name=f"inf {codec}", compression=codec
        )
        assert np.isfinite(again).all(), codec


def small_ones_work():
    for count in (1, 2, 63, 64, 65):
        for codec in ("topk", "onebit", "int4", "dgc", "fp16", "powersgd"):
            got = gradbus.allreduce(
                np.full(count, 2.0, np.float32), name=f"small {count} {codec}", compression=codec
            )
            assert got.shape == (count,) and np.isfinite(got).all(), (count, codec)


def mistakes_are_named():
    gradient = np.ones(10, np.float32)
    try:
        gradbus.allreduce(gradient, name="typo", compression="topkk")
    except gradbus.InvalidError as error:
        assert "GB-O910" in str(error) and 'did you mean "topk"?' in str(error), error
    else:
        sys.exit("a codec that there is not was taken")
    codec = "topk" if gradbus.rank() == 0 else "topk:ratio=0.5"
    try:
        gradbus.allreduce(gradient, name="differ", compression=codec)
    except MismatchError as error:
        assert "topk:ratio=0.5" in str(error), error
    else:
        sys.exit("ranks disagreed and nobody said so")
    try:
        gradbus.allreduce(np.ones(10, np.float64), name="f64", compression="topk")
    except gradbus.InvalidError as error:
        assert "f32" in str(error), error
    else:
        sys.exit("f64 was compressed")


gradbus.init()
sums = {}
close_to_the_sum(sums)
nothing_is_lost(sums)
averages_and_factors()
not_finite_is_seen()
small_ones_work()
mistakes_are_named()
print(json.dumps(sums))
print("ok")
