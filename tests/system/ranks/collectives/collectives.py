"""A rank: every collective x dtype x operation x size against NumPy in float64, many cases in one job.

Every rank knows every rank's input (a seed per case and rank), works out the exact result itself, and
checks its own. What all ranks must have bit by bit it prints as checksums, which the test compares.

    collectives.py CHUNK_BYTES      the limit that sizes are chosen around
"""

import json
import sys
import zlib

import gradbus
import numpy as np
from gradbus import _core

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ARITHMETIC = (gradbus.Sum, gradbus.Average, gradbus.Min, gradbus.Max, gradbus.Product)
BITS = (gradbus.BitAnd, gradbus.BitOr)
F32_EPS, F64_EPS = 2.0**-23, 2.0**-52
# Of what values are stored as: the rounding unit, and the smallest step near zero.
STORED = {"float16": (2.0**-11, 2.0**-24), "bfloat16": (2.0**-8, 2.0**-133)}
BFLOAT16_NUMBER = 4


def item_bytes(dtype):
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def to_bfloat16(values):
    """float32 to the bits of the nearest bfloat16, ties to even, in a uint16 array."""
    bits = values.astype("float32").view("uint32")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")


def widened(array, dtype):
    """The exact values as float64."""
    if dtype == "bfloat16":
        return (array.astype("uint32") << 16).view("float32").astype("float64")
    return array.astype("float64")


def inputs(case, size, count, dtype, whole_range=True):
    """All ranks' arrays; bfloat16 as uint16 bits. Not the whole range: for averages and products."""
    made = []
    for rank in range(size):
        random = np.random.default_rng([zlib.crc32(case.encode()), rank])
        if dtype == "bool":
            made.append(random.integers(0, 2, count).astype(bool))
        elif dtype in INTEGERS:
            info = np.iinfo(dtype)
            low, high = (info.min, info.max) if whole_range else (info.min // 16, info.max // 16)
            made.append(random.integers(low, high, count, dtype=dtype, endpoint=True))
        else:
            values = random.normal(size=count) * 2.0 ** random.integers(-3, 4, count)
            if not whole_range:  # a product of nine stays a normal float16
                values = np.copysign(random.uniform(0.7, 1.4, count), values)
            made.append(to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype))
    return made


def exact_integers(arrays, op, size):
    """As the dtype's own arithmetic does it: sums and products wrap, averages truncate."""
    dtype = arrays[0].dtype
    if op == gradbus.Average:
        total = np.add.reduce(arrays, dtype=dtype)
        if dtype.kind == "u":
            return total // dtype.type(size)
        total = total.astype("int64")
        return (np.abs(total) // size * np.sign(total)).astype(dtype)
    function = {
        gradbus.Sum: np.add, gradbus.Product: np.multiply, gradbus.Min: np.minimum,
        gradbus.Max: np.maximum, gradbus.BitAnd: np.bitwise_and, gradbus.BitOr: np.bitwise_or,
    }[op]  # fmt: skip
    return function.reduce(arrays, dtype=dtype)


def reference(values, op, size, factor):
    """The result in float64, and what its summands add up to in magnitude."""
    stacked = np.stack(values)
    if op in (gradbus.Min, gradbus.Max):
        result = stacked.min(0) if op == gradbus.Min else stacked.max(0)
        return result * factor, np.abs(result * factor)
    if op == gradbus.Product:
        result = stacked.prod(0) * factor
        return result, np.abs(result)
    divisor = size if op == gradbus.Average else 1
    return stacked.sum(0) * factor / divisor, np.abs(stacked).sum(0) * abs(factor) / divisor


def check_floats(got, values, op, size, dtype, scaled, case):
    """Within (n - 1) eps sum|x|, an eps for each factor, and half a unit wherever a sum is narrowed."""
    prescale, postscale = scaled
    factor = prescale**size * postscale if op == gradbus.Product else prescale * postscale
    exact, magnitude = reference(values, op, size, factor)
    eps = F64_EPS if dtype == "float64" else F32_EPS
    factors = (prescale != 1) * (size if op == gradbus.Product else 1) + (postscale != 1)
    steps = (size - 1) + factors + (op == gradbus.Average)
    if op in (gradbus.Min, gradbus.Max):
        steps = factors
    bound = (steps + 1) * eps / 2 * 1.01 * magnitude
    if dtype in STORED:
        unit, least = STORED[dtype]
        if gradbus.cross_size() == 1:
            bound = bound + unit * np.abs(exact) * 1.01 + least
        else:  # each node's sum, each sum on the way and the result are stored in the dtype
            bound = bound + 2 * gradbus.cross_size() * (unit * magnitude * 1.01 + least)
    wrong = np.abs(widened(got, dtype) - exact) > bound
    assert not wrong.any(), (case, int(wrong.argmax()), got[wrong][:3], exact[wrong][:3])


class Rank:
    """What the cases share."""

    def __init__(self, chunk_bytes):
        self.rank, self.size = gradbus.rank(), gradbus.size()
        self.chunk_bytes = chunk_bytes
        self.common = {}  # case -> checksum of what every rank must have

    def sizes(self, dtype):
        """Nothing, one, odd, and around one and two chunks."""
        chunk = self.chunk_bytes // item_bytes(dtype)
        return (0, 1, 7, 255, chunk - 1, chunk, chunk + 1, 2 * chunk + 3)

    def same_everywhere(self, case, array):
        self.common[case] = zlib.crc32(np.ascontiguousarray(array).tobytes())


def run_core(collective, case, source, result, dtype, **more):
    """bfloat16, which NumPy lacks, goes to the extension as float16 bits with its own number."""
    view = {"input": source.view("float16"), "output": result.view("float16")}
    request = _core.Request(collective, case, **view, dtype=BFLOAT16_NUMBER, **more)
    gradbus._process_sets.session_of(gradbus.global_process_set, "test").start([request]).wait()
    return result


def all_reduce(case, mine, op, dtype, prescale=1.0, postscale=1.0):
    if dtype != "bfloat16":
        return gradbus.allreduce(mine, case, op, prescale_factor=prescale, postscale_factor=postscale)
    return run_core(1, case, mine, np.empty_like(mine), dtype, op=op, prescale=prescale, postscale=postscale)


def check_sum(us, case, count, dtype, op, prescale=1.0, postscale=1.0):
    whole_range = op not in (gradbus.Average, gradbus.Product)
    arrays = inputs(case, us.size, count, dtype, whole_range)
    got = all_reduce(case, arrays[us.rank], op, dtype, prescale, postscale)
    us.same_everywhere(case, got)
    if dtype in FLOATS:
        values = [widened(array, dtype) for array in arrays]
        check_floats(got, values, op, us.size, dtype, (prescale, postscale), case)
    else:
        assert got.dtype == arrays[0].dtype
        np.testing.assert_array_equal(got, exact_integers(arrays, op, us.size), case)
    return got


def check_all_reduce(us):
    """Every dtype with every operation at small sizes; sums at every size."""
    for dtype in FLOATS + INTEGERS + ("bool",):
        ops = (*BITS, gradbus.Min, gradbus.Max) if dtype == "bool" else ARITHMETIC
        if dtype in INTEGERS:
            ops = ops + BITS
        for op in ops:
            plain = op in (gradbus.Sum, gradbus.Max)
            for count in us.sizes(dtype) if plain else (0, 1, 33):
                check_sum(us, f"ar/{dtype}/{op.name}/{count}", count, dtype, op)


def check_factors(us):
    for dtype in FLOATS:
        for op in ARITHMETIC:
            check_sum(us, f"scaled/{dtype}/{op.name}", 65, dtype, op, 0.8, -1.7)


def check_odd_values(us):
    """A NaN wins, infinities add up, zeros keep the sign that the operation prefers."""
    nan, infinite = float("nan"), float("inf")
    mine = np.array([nan if us.rank == us.size - 1 else 1.0, infinite, 0.0], "float32")
    for op in (gradbus.Min, gradbus.Max, gradbus.Sum):
        got = gradbus.allreduce(mine, f"odd/{op.name}", op)
        assert np.isnan(got[0]) and np.isinf(got[1]) and got[2] == 0
    zeros = np.array([-0.0 if us.rank == 0 else 0.0], "float32")
    if us.size > 1:
        assert np.signbit(gradbus.allreduce(zeros, "odd/-0", gradbus.Min))[0]
        assert not np.signbit(gradbus.allreduce(zeros, "odd/+0", gradbus.Max))[0]


def adasum_of(values, dtype):
    """The tree of pairs of Maleki et al., in float64, each result rounded to the dtype."""
    while len(values) > 1:
        pairs = []
        for a, b in zip(values[::2], values[1::2]):
            dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
            c = (1 - dot / (2 * aa) if aa else 1) * a + (1 - dot / (2 * bb) if bb else 1) * b
            narrow = to_bfloat16(c) if dtype == "bfloat16" else c.astype(dtype)
            pairs.append(widened(narrow, dtype))
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


def check_adasum(us):
    for dtype in FLOATS:
        for count in (0, 1, 33, us.chunk_bytes // item_bytes(dtype) + 1):
            case = f"adasum/{dtype}/{count}"
            arrays = inputs(case, us.size, count, dtype)
            got = all_reduce(case, arrays[us.rank], gradbus.Adasum, dtype)
            us.same_everywhere(case, got)
            expected = adasum_of([widened(array, dtype) for array in arrays], dtype)
            # A unit of the dtype for each level of the tree.
            unit = {"float64": F64_EPS, "float32": F32_EPS, "float16": 2**-10, "bfloat16": 2**-7}
            largest = np.abs(expected).max(initial=1)
            np.testing.assert_allclose(
                widened(got, dtype), expected, rtol=0, atol=8 * unit[dtype] * largest, err_msg=case
            )


def check_reduce(us):
    for dtype in ("float32", "int64", "bool", "float16"):
        for root in sorted({0, us.size - 1}):
            for count in us.sizes(dtype):
                case = f"reduce/{dtype}/{root}/{count}"
                op = gradbus.Max if dtype == "bool" else gradbus.Sum
                arrays = inputs(case, us.size, count, dtype)
                got = gradbus.reduce(arrays[us.rank], root, case, op)
                assert (got is None) == (us.rank != root)
                if us.rank == root and dtype in FLOATS:
                    values = [widened(array, dtype) for array in arrays]
                    check_floats(got, values, op, us.size, dtype, (1, 1), case)
                elif us.rank == root:
                    np.testing.assert_array_equal(got, exact_integers(arrays, op, us.size), case)


def shard(rows, size, rank):
    """First row and number of rows, by the definition: the first ranks have one more."""
    counts = [rows // size + (1 if r < rows % size else 0) for r in range(size)]
    return sum(counts[:rank]), counts[rank]


def check_reduce_scatter(us):
    for dtype, op in (
        ("float32", gradbus.Average),
        ("float64", gradbus.Sum),
        ("int32", gradbus.Sum),
        ("uint8", gradbus.BitOr),
        ("bool", gradbus.Min),
    ):
        chunk = us.chunk_bytes // item_bytes(dtype)
        for rows, row in ((0, 1), (1, 1), (us.size, 1), (us.size + 1, 5), (7, 3), (3, 0),
                          (chunk * us.size + 1, 1), (2 * us.size, chunk // 2 + 1)):  # fmt: skip
            case = f"rs/{dtype}/{rows}x{row}"
            arrays = [a.reshape(rows, row) for a in inputs(case, us.size, rows * row, dtype)]
            got = gradbus.reducescatter(arrays[us.rank], case, op)
            first, count = shard(rows, us.size, us.rank)
            mine = [array[first : first + count] for array in arrays]
            assert got.shape == (count, row) and got.dtype == arrays[0].dtype, case
            if dtype in FLOATS:
                values = [widened(array, dtype) for array in mine]
                check_floats(got, values, op, us.size, dtype, (1, 1), case)
            else:
                np.testing.assert_array_equal(got, exact_integers(mine, op, us.size), case)


def check_moves(us):
    """Broadcast, scatter, gather, all-gather: the root's or everybody's bytes, whatever they are."""
    for dtype in ("float32", "bool", "complex128", "int8", "uint16"):
        size = np.dtype(dtype).itemsize
        for count in (0, 1, 7, us.chunk_bytes // size, us.chunk_bytes // size + 1):
            root = (count + size) % us.size
            case = f"move/{dtype}/{count}"
            arrays = [a.view(dtype) for a in inputs(case, us.size, count * size, "uint8")]
            if dtype == "bool":
                arrays = [a.view("uint8") % 2 == 1 for a in arrays]
            mine = arrays[us.rank]

            def check(got, expected, case=case):
                assert got.dtype == expected.dtype and got.shape == expected.shape, case
                assert got.tobytes() == expected.tobytes(), case

            check(gradbus.broadcast(mine, root, case + "/b"), arrays[root])
            check(gradbus.allgather(mine, case + "/ag"), np.concatenate(arrays))
            gathered = gradbus.gather(mine, root, case + "/g")
            if us.rank == root:
                check(gathered, np.concatenate(arrays))
            else:
                assert gathered is None
            whole = np.concatenate(arrays) if us.rank == root else mine
            check(gradbus.scatter(whole, root, case + "/s"), mine)


def check_lengths(us):
    """Blocks of different lengths, some empty, growing from call to call under one name."""
    for step in (0, 1, 5, 200, 3):
        lengths = [(rank * 7 + step) % (step + 2) * 3 for rank in range(us.size)]
        arrays = [np.full((length, 2), 10.0 * rank + step, "float32") for rank, length in enumerate(lengths)]
        got = gradbus.allgather(arrays[us.rank], "lengths")
        np.testing.assert_array_equal(got, np.concatenate(arrays))
        got = gradbus.gather(arrays[us.rank], us.size - 1, "lengths/gather")
        if us.rank == us.size - 1:
            np.testing.assert_array_equal(got, np.concatenate(arrays))
        widths = gradbus.allgather(np.zeros((lengths[us.rank], 0), "int32"), "lengths/0")
        assert widths.shape == (sum(lengths), 0)


def check_all_to_all(us):
    for dtype in ("int64", "float16", "bool"):
        for step in (0, 1, 3, 100):
            case = f"a2a/{dtype}/{step}"
            table = np.random.default_rng([7, step]).integers(0, step + 1, (us.size, us.size))
            row = 0 if step == 3 else 3
            blocks = [
                [np.full((table[s, d], row), 11 * s + d + step).astype(dtype) for d in range(us.size)]
                for s in range(us.size)
            ]
            mine = np.concatenate(blocks[us.rank])
            got, splits = gradbus.alltoall(mine, table[us.rank], case)
            np.testing.assert_array_equal(splits, table[:, us.rank])
            np.testing.assert_array_equal(
                got, np.concatenate([blocks[s][us.rank] for s in range(us.size)]), case
            )
            assert got.dtype == dtype and got.shape[1] == row
    equal = np.arange(us.size * 2) + 100 * us.rank
    expected = [100 * s + 2 * us.rank + i for s in range(us.size) for i in range(2)]
    assert gradbus.alltoall(equal).tolist() == expected


def check_long_blocks(us):
    """A block that does not fit the 64 MiB that the blocks of a tensor share goes piece by piece."""
    size, last = us.size, us.size - 1
    most = (64 << 20) // (size * size * 8)
    long = 2 * (1 << (most.bit_length() - 1)) + 5 if size > 1 else 1000
    table = np.ones((size, size), int)
    table[0, last] = long
    block = np.arange(long) * 3 + 1
    mine = np.concatenate([block[: table[us.rank, to]] + to + us.rank for to in range(size)])
    got, splits = gradbus.alltoall(mine, table[us.rank], "long")
    np.testing.assert_array_equal(splits, table[:, us.rank])
    expected = [block[: table[s, us.rank]] + us.rank + s for s in range(size)]
    np.testing.assert_array_equal(got, np.concatenate(expected))
    gathered = gradbus.gather(block[: long if us.rank == last else us.rank], 0, "long/gather")
    if us.rank == 0:
        np.testing.assert_array_equal(
            gathered, np.concatenate([block[: long if r == last else r] for r in range(size)])
        )


def check_views(us):
    """Unaligned, reversed, transposed, read-only, scalar: what NumPy calls an array."""
    total = sum(range(us.size))
    raw = np.zeros(4 * 9 + 1, "uint8")
    unaligned = raw[1:].view("float32")
    unaligned[:] = us.rank
    np.testing.assert_array_equal(gradbus.allreduce(unaligned, op=gradbus.Sum), [total] * 9)
    gradbus.allreduce_(unaligned, op=gradbus.Sum)
    np.testing.assert_array_equal(raw[1:].view("float32"), [total] * 9)
    grid = np.arange(12).reshape(3, 4) + us.rank
    for view in (grid[::-1], grid.T, grid[:, ::2]):
        expected = (view - us.rank) * us.size + total
        np.testing.assert_array_equal(gradbus.allreduce(view, op=gradbus.Sum), expected)
        copy = np.array(view, order="F")
        gradbus.allreduce_(copy, op=gradbus.Sum)
        np.testing.assert_array_equal(copy, expected)
        first, count = shard(view.shape[0], us.size, us.rank)
        np.testing.assert_array_equal(
            gradbus.reducescatter(view, op=gradbus.Sum), expected[first : first + count]
        )
    assert gradbus.allreduce(np.int64(us.rank), op=gradbus.Sum) == total
    assert gradbus.allgather(np.int8(us.rank)).tolist() == list(range(us.size))


def check_groups(us):
    """One handle for many; each member its own name, dtype and size."""
    kinds = ((3, "float32"), (0, "int8"), (us.chunk_bytes, "uint8"))
    arrays = [np.full(count, us.rank + 1, dtype) for count, dtype in kinds]
    total = us.size * (us.size + 1) // 2
    for name in (None, "group"):
        got = gradbus.grouped_allreduce(arrays, name, gradbus.Sum)
        for array, out in zip(arrays, got):
            np.testing.assert_array_equal(out, np.full(array.shape, total, array.dtype))
    handle = gradbus.grouped_allreduce_async_([array.copy() for array in arrays], "later", gradbus.Sum)
    shards = gradbus.grouped_reducescatter([arrays[0], arrays[0]], op=gradbus.Sum)
    assert [s.shape for s in shards] == [(shard(3, us.size, us.rank)[1],)] * 2
    joined = gradbus.grouped_allgather([arrays[0][:1], np.array([us.rank])])
    assert joined[1].tolist() == list(range(us.size)) and joined[0].tolist() == [
        r + 1 for r in range(us.size)
    ]
    assert gradbus.synchronize(handle)[0].tolist() == [float(total)] * 3


LARGE = (9 << 20) // 4 + 3  # elements of 4 bytes: on one node this goes through a ring of slots


def pattern(rank, count=LARGE):
    """Whole numbers, so that sums are exact in float32."""
    return (np.arange(count) % 251 + rank).astype("float32")


def check_large(us):
    """More than the ring holds: one copy in, none out; several under way and waited for in any order."""
    size, total = us.size, sum(range(us.size))
    base = pattern(0)
    expected = base * size + total
    mine = pattern(us.rank)
    got = gradbus.allreduce(mine, "large", gradbus.Sum)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(mine, pattern(us.rank))
    assert gradbus.allreduce_(mine, "large", gradbus.Average) is mine
    np.testing.assert_allclose(mine, base + total / size, rtol=1e-6)
    reduced = gradbus.reduce(pattern(us.rank), size - 1, "large", gradbus.Max)
    if us.rank == size - 1:
        np.testing.assert_array_equal(reduced, base + size - 1)
    first, count = shard(LARGE, size, us.rank)
    part = gradbus.reducescatter(pattern(us.rank), "large", gradbus.Sum)
    np.testing.assert_array_equal(part, expected[first : first + count])

    names = [f"large/{index}" for index in range(3)]
    order = names[us.rank % 3 :] + names[: us.rank % 3]
    handles = {}
    for name in order:
        given = pattern(us.rank)
        handles[name] = gradbus.allreduce_async(given, name, gradbus.Sum)
        given[:] = -1  # the input was copied
    small = gradbus.allreduce(np.ones(1), op=gradbus.Sum)  # others go on meanwhile
    assert small[0] == size
    for name in reversed(order):
        np.testing.assert_array_equal(gradbus.synchronize(handles.pop(name)), expected)
    gradbus.allreduce_async(pattern(us.rank), "dropped", gradbus.Sum)  # takes part all the same
    np.testing.assert_array_equal(gradbus.allreduce(pattern(us.rank), "dropped", gradbus.Sum), expected)


def check_disagreement(us):
    """Found before anything is mixed, by every rank, with one sentence; the name can be used again."""
    odd = us.rank == us.size - 1
    streams = gradbus.cross_size() == 1
    for count in (3, LARGE) if us.size > 1 else ():
        spec = f"f32[{count}] all_reduce"
        for arguments, parts in (
            ({"tensor": pattern(0, count + odd)}, (spec, f"f32[{count + 1}] all_reduce average")),
            (
                {"tensor": pattern(0, count), "op": gradbus.Max if odd else gradbus.Min},
                (f"{spec} min", f"{spec} max"),
            ),
            (
                {"tensor": pattern(0, count), "prescale_factor": 2 if odd else 1},
                ("scaled by 2",) if streams and count == LARGE else (),
            ),
        ):
            try:
                gradbus.allreduce(name="disagree", **arguments)
            except gradbus.MismatchError as error:
                text = str(error)
            assert all(part in text for part in ("disagree", f"rank {us.size - 1}", *parts)), text
            gradbus.barrier()  # all have heard of it
            same = gradbus.allreduce(pattern(us.rank, count), "disagree", gradbus.Sum)
            assert same[0] == sum(range(us.size))


def main():
    gradbus.init()
    us = Rank(int(sys.argv[1]))
    for check in (
        check_all_reduce,
        check_factors,
        check_odd_values,
        check_adasum,
        check_reduce,
        check_reduce_scatter,
        check_moves,
        check_lengths,
        check_all_to_all,
        check_long_blocks,
        check_views,
        check_groups,
        check_large,
        check_disagreement,
    ):
        check(us)
        gradbus.barrier()
    gradbus.shutdown()
    print(json.dumps(us.common))
    print("ok")


if __name__ == "__main__":
    main()
