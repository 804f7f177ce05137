"""Each codec's formula once more in NumPy, written from the papers and from nothing in compression/."""

import ctypes

import numpy as np
import pytest
import rig as rigs

COUNT = 10_007  # no multiple of any block
EPSILON = 1e-6  # of f32 arithmetic in another order, relative to the largest value


@pytest.fixture(scope="module")
def probe():
    library = ctypes.CDLL(str(rigs.BIN.parent / "lib/libcodec_probe.so"))
    library.codec_probe.restype = ctypes.c_int64
    floats = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
    library.codec_probe.argtypes = [
        ctypes.c_char_p, floats, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64,
        floats,
    ]  # fmt: skip

    def run(spec, gradient, residual=None, seed=1, columns=0):
        """(decoded, payload bytes); `residual` is changed in place."""
        decoded = np.full_like(gradient, 7)
        pointer = None if residual is None else residual.ctypes.data
        size = library.codec_probe(
            spec.encode(), gradient, pointer, len(gradient), columns, seed, decoded
        )
        assert size >= 0, spec
        return decoded, size

    return run


@pytest.fixture(scope="module")
def gradient():
    values = np.random.default_rng(1).standard_normal(COUNT, dtype=np.float32)
    values[17] = 0
    values[5000:5100] *= 100  # blocks differ in scale
    return values


def blocks_of(values, size):
    return [values[first : first + size] for first in range(0, len(values), size)]


def blockwise(values, size, formula):
    return np.concatenate([formula(block.astype(np.float64)) for block in blocks_of(values, size)])


def assert_close(got, expected):
    scale = np.abs(expected).max()
    worst = np.abs(got - expected).argmax()
    assert np.allclose(got, expected, rtol=0, atol=EPSILON * scale), (
        f"element {worst}: {got[worst]}, expected {expected[worst]}"
    )


def test_none_and_halves(probe, gradient):
    assert np.array_equal(probe("none", gradient)[0], gradient)
    assert np.array_equal(probe("fp16", gradient)[0], gradient.astype(np.float16))
    bits = gradient.view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even
    expected = (bits >> 16 << 16).astype(np.uint32).view(np.float32)
    assert np.array_equal(probe("bf16", gradient)[0], expected)


def nearest(values, grid):
    """The nearest of a sorted grid, by magnitude."""
    right = np.clip(np.searchsorted(grid, np.abs(values)), 1, len(grid) - 1)
    low, high = grid[right - 1], grid[right]
    chosen = np.where(np.abs(values) - low <= high - np.abs(values), low, high)
    return np.sign(values) * chosen


def test_fp8(probe, gradient):
    """OCP: e4m3 has 448 = 1.75 * 2^8 at most, e5m2 57344 = 1.75 * 2^15; scale = max |v| / that."""
    for spec, mantissa, least, most in (
        ("fp8:format=e4m3", 3, -6, 448.0),
        ("fp8:format=e5m2", 2, -14, 57344.0),
    ):
        steps = 1 << mantissa
        grid = [i / steps * 2.0**least for i in range(steps)]
        for exponent in range(least, 17):
            grid += [(1 + i / steps) * 2.0**exponent for i in range(steps)]
        grid = np.array([value for value in grid if value <= most])

        def formula(block, grid=grid, most=most):
            scale = np.abs(block).max() / most
            return scale * nearest(block / scale, grid)

        got = probe(spec, gradient)[0]
        expected = blockwise(gradient, 1024, formula)
        # A value half-way between two codes may go either way by the rounding of the scale.
        step = np.abs(expected - gradient)
        assert np.all(np.abs(got - expected) <= 2 * step + EPSILON * np.abs(expected).max())
        assert np.mean(np.abs(got - expected) > EPSILON * np.abs(expected).max()) < 1e-3, spec


@pytest.mark.parametrize(("spec", "block", "levels"), [("int8", 1024, 127), ("int4", 128, 7)])
def test_whole_numbers(probe, gradient, spec, block, levels):
    def formula(values):
        scale = np.abs(values).max() / levels
        return scale * np.rint(values / scale)

    got = probe(spec, gradient)[0]
    expected = blockwise(gradient, block, formula)
    wrong = np.abs(got - expected) > 1e-5 * np.abs(expected).max()
    assert wrong.mean() < 1e-3, "more than ties by the rounding of the scale"


def test_stochastic_levels(probe, gradient):
    """QSGD (Alistarh et al. 2017): |v| / norm * s lies between the level and its neighbour."""
    for spec, levels, bucket, norm in (
        ("qsgd", 127, 512, np.linalg.norm),
        ("qsgd:levels=7,norm=max", 7, 512, lambda block: np.abs(block).max()),
        ("terngrad:bound=0", 1, 2048, lambda block: np.abs(block).max()),
    ):
        got = probe(spec, gradient)[0]
        for values, decoded in zip(blocks_of(gradient, bucket), blocks_of(got, bucket)):
            step = norm(values.astype(np.float64)) / levels
            level = decoded / step
            assert np.allclose(level, np.rint(level), atol=1e-3), spec
            assert np.all(np.abs(decoded - values) < step * (1 + 1e-4)), spec
            assert np.all(decoded * values >= 0), spec


def test_natural(probe, gradient):
    """Powers of two next to |v| (Horvath et al. 2019)."""
    got = probe("natural", gradient)[0]
    sent = gradient != 0
    low = 2.0 ** np.floor(np.log2(np.abs(gradient[sent].astype(np.float64))))
    assert np.all((np.abs(got[sent]) == low) | (np.abs(got[sent]) == 2 * low))
    assert np.all(np.sign(got) == np.sign(gradient))


def test_top_k(probe, gradient):
    got, size = probe("topk:ratio=0.01", gradient)
    k = int(COUNT * 0.01)
    largest = np.argsort(-np.abs(gradient), kind="stable")[:k]
    expected = np.zeros_like(gradient)
    expected[largest] = gradient[largest]
    assert np.array_equal(got, expected)
    assert size < 16 + k * 8


def test_dgc(probe, gradient):
    """What is sent is among the largest: none is smaller than one that is much larger and was not."""
    got, _ = probe("dgc:ratio=0.01", gradient)
    sent = got != 0
    k = int(np.ceil(COUNT * 0.01))
    assert 0.5 * k <= sent.sum() <= k
    assert np.array_equal(got[sent], gradient[sent])
    threshold = np.sort(np.abs(gradient))[-2 * k]
    assert np.abs(gradient[sent]).min() >= threshold


def test_threshold_and_random(probe, gradient):
    got, _ = probe("threshold:value=1.5", gradient)
    assert np.array_equal(got, np.where(np.abs(gradient) >= 1.5, gradient, np.float32(0)))
    got, _ = probe("randk:ratio=0.1", gradient)
    k = int(COUNT * 0.1)
    sent = np.flatnonzero(got)
    assert len(sent) in (k - 1, k)  # one element is zero
    assert np.allclose(got[sent], gradient[sent] * (COUNT / k), rtol=1e-6)


def test_rows(probe):
    """Rows that are not zeros, as they are; 4 bytes an element of them and under 2 bytes a row."""
    rows, columns, rest = 1000, 10, 7
    random = np.random.default_rng(2)
    values = np.zeros(rows * columns + rest, np.float32)
    used = random.choice(rows, 50, replace=False)
    matrix = values[: rows * columns].reshape(rows, columns)
    matrix[used] = random.standard_normal((50, columns), dtype=np.float32)
    matrix[used[0], 1:] = 0
    values[-1] = 1  # of a row that is cut short
    got, size = probe("rows:dim=10", values)
    assert np.array_equal(got, values)
    assert 16 + 4 * (50 * columns + rest) < size < 16 + 4 * (50 * columns + rest) + 2 * 51
    got, _ = probe("rows:dim=10,values=fp16", values)
    assert np.array_equal(got, values.astype(np.float16))


def test_signs(probe, gradient):
    sign = np.where(gradient < 0, -1, 1)
    assert np.array_equal(probe("signsgd", gradient)[0], sign)
    assert np.array_equal(probe("signum", gradient)[0], sign), "of the first round"

    def mean_magnitude(block):
        return np.where(block < 0, -1, 1) * np.abs(block).mean()

    def two_means(block):
        negative = block < 0
        below = block[negative].mean() if negative.any() else 0
        above = block[~negative].mean() if (~negative).any() else 0
        return np.where(negative, below, above)

    assert_close(probe("efsignsgd", gradient)[0], blockwise(gradient, 1024, mean_magnitude))
    assert_close(probe("efsignsgd:block=0", gradient)[0], mean_magnitude(gradient.astype(float)))
    assert_close(probe("onebit", gradient)[0], blockwise(gradient, 1024, two_means))


def test_block_top_k(probe, gradient):
    got, _ = probe("blocktopk:ratio=0.1,block=64", gradient)
    norms = np.array([np.abs(block.astype(np.float64)).sum() for block in blocks_of(gradient, 64)])
    k = round(len(norms) * 0.1)
    chosen = np.argsort(-norms, kind="stable")[:k]
    expected = np.zeros_like(gradient)
    for block in chosen:
        expected[64 * block : 64 * block + 64] = gradient[64 * block : 64 * block + 64]
    assert np.array_equal(got, expected)


def test_power_sgd(probe):
    """A matrix of rank 2 comes back whole; of any other, a matrix of rank 2 whose rows are projections
    (P is orthonormal: P P^T M, Vogels et al. 2019)."""
    random = np.random.default_rng(2)
    low = (random.standard_normal((60, 2)) @ random.standard_normal((2, 40))).astype(np.float32)
    got, size = probe("powersgd:rank=2", low.reshape(-1), columns=40)
    assert np.linalg.norm(got - low.reshape(-1)) < 1e-4 * np.linalg.norm(low)
    assert size == (60 + 40) * 2 * 4
    full = random.standard_normal((60, 40)).astype(np.float32)
    got = probe("powersgd:rank=2", full.reshape(-1), columns=40)[0].reshape(60, 40)
    assert np.linalg.matrix_rank(got.astype(np.float64), tol=1e-3) == 2
    basis = np.linalg.svd(got.astype(np.float64))[0][:, :2]
    assert np.allclose(basis @ basis.T @ full, got, atol=1e-3)


@pytest.mark.parametrize("spec", ["fp16", "int8", "topk:ratio=0.01", "onebit", "qsgd", "powersgd"])
def test_error_feedback(probe, gradient, spec):
    """r = v - sent, with v = g + r."""
    residual = np.random.default_rng(3).standard_normal(COUNT, dtype=np.float32)
    v = gradient + residual
    decoded, _ = probe(spec, gradient, residual)
    assert_close(decoded + residual, v)
