"""A rank: tensors of all dtypes and layouts, against NumPy: `odd_tensors.py MODE`. Each rank draws all values."""

import functools
import random
import sys

import gradbus
import numpy as np
import torch
from gradbus.torch import broadcast_parameters

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
COMPLEX = ("complex64", "complex128")
DTYPES = ("float32", "float64", *INTEGERS, *COMPLEX, "bool")
SHAPES = ((), (1,), (1, 1), (0,), (3, 0), (5,), (2, 3), (1, 4, 1), (3, 2, 2))
RANK, SIZE = 0, 1


def values(seed, shape, dtype):
    """Of a rank: any bits of integers, halves of others, whose sums are exact."""
    draw = np.random.default_rng(seed)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return draw.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    if dtype == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    real = draw.integers(-40, 40, shape) / 2
    return (real + 1j * draw.integers(-40, 40, shape) / 2 if dtype in COMPLEX else real).astype(dtype)


def laid_out(array, layout):
    """The same elements in memory of another layout."""
    if layout == "strided" and array.ndim > 0:
        wide = np.zeros((*array.shape[:-1], 3 * array.shape[-1]), array.dtype)
        wide[..., ::3] = array
        return wide[..., ::3]
    if layout == "transposed" and array.ndim > 0:
        return np.ascontiguousarray(array.T).T
    if layout == "reversed" and array.ndim > 0:
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "inside":
        room = np.zeros(array.size + 2, array.dtype)
        room[1:-1] = array.reshape(-1)
        return room[1:-1].reshape(array.shape)
    return array


def as_torch(array, layout, lazy):
    """A torch tensor over that memory; ``lazy``: with the bits that torch resolves later."""
    if layout == "reversed" and array.ndim > 0:  # torch has no negative strides
        array = np.ascontiguousarray(array)
    tensor = torch.from_numpy(np.asarray(array))
    if not lazy:
        return tensor
    if tensor.is_complex():
        return torch.conj(torch.conj_physical(tensor)) if lazy == 1 else _negated(tensor)
    return _negated(tensor) if tensor.is_floating_point() else tensor


def _negated(tensor):
    """Equal to the tensor, with the negative bit: the imaginary part of a conjugated tensor."""
    if tensor.is_complex():
        return tensor
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


def torch_knows(dtype):
    return hasattr(torch, dtype)


def reduced(parts, op, dtype):
    """What NumPy makes of all ranks' arrays."""
    stack = np.stack(parts)
    if op == gradbus.Sum:
        return stack.sum(0, dtype=dtype)
    if op == gradbus.Product:
        return stack.prod(0, dtype=dtype)
    if op == gradbus.Average:
        if dtype in INTEGERS:
            total = stack.sum(0, dtype=dtype)  # wraps
            exact = np.array([int(v) for v in total.reshape(-1)], dtype=object)
            means = [abs(v) // SIZE * (1 if v >= 0 else -1) for v in exact]
            return np.array(means, dtype=object).astype(dtype).reshape(total.shape)
        return (stack.sum(0) / SIZE).astype(dtype)
    return {
        gradbus.Min: stack.min, gradbus.Max: stack.max,
        gradbus.BitAnd: lambda axis: np.bitwise_and.reduce(stack, axis),
        gradbus.BitOr: lambda axis: np.bitwise_or.reduce(stack, axis),
    }[op](0)  # fmt: skip


def ops_of(dtype):
    if dtype in COMPLEX:
        return (gradbus.Sum, gradbus.Average)
    if dtype == "bool":
        return (gradbus.Min, gradbus.Max, gradbus.BitAnd, gradbus.BitOr)
    every = (gradbus.Sum, gradbus.Average, gradbus.Min, gradbus.Max, gradbus.Product)
    return (*every, gradbus.BitAnd, gradbus.BitOr) if dtype in INTEGERS else every


def check_equal(got, want, what):
    got = got.resolve_conj().resolve_neg().numpy() if isinstance(got, torch.Tensor) else got
    assert str(got.dtype) == str(want.dtype) and got.shape == want.shape, (what, got, want)
    np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=str(what))


def fuzz():
    """Random calls, the same on every rank but for the layouts and the lazy bits."""
    same, own = random.Random(11), random.Random(RANK)
    for number in range(int(sys.argv[2])):
        dtype, shape = same.choice(DTYPES), same.choice(SHAPES)
        parts = [values(1000 * number + rank, shape, dtype) for rank in range(SIZE)]
        layout = own.choice(("plain", "strided", "transposed", "reversed", "inside"))
        mine = laid_out(np.array(parts[RANK]), layout)
        in_torch = same.random() < 0.6 and torch_knows(dtype)
        tensor = as_torch(mine, layout, own.choice((0, 1, 2))) if in_torch else mine
        kind = same.choice(("reduce", "in_place", "allgather", "broadcast", "alltoall", "scatter"))
        op = same.choice(ops_of(dtype))
        what = (number, kind, dtype, shape, op, in_torch)
        try:
            one_call(kind, op, tensor, parts, dtype, shape, what)
        except Exception:
            print("failed at", what, layout, flush=True)
            raise


def one_call(kind, op, tensor, parts, dtype, shape, what):
    if kind == "reduce":
        check_equal(gradbus.allreduce(tensor, op=op), reduced(parts, op, dtype), what)
    elif kind == "in_place" and isinstance(tensor, (np.ndarray, torch.Tensor)):
        assert gradbus.allreduce_(tensor, op=op) is tensor
        check_equal(tensor, reduced(parts, op, dtype), what)
    elif kind == "allgather" and shape:
        check_equal(gradbus.allgather(tensor), np.concatenate(parts), what)
    elif kind == "broadcast":
        check_equal(gradbus.broadcast(tensor, SIZE - 1), parts[-1], what)
    elif kind == "alltoall" and shape:
        splits = [shape[0]] + [0] * (SIZE - 1)
        got, rows = gradbus.alltoall(tensor, splits)
        want = np.concatenate(parts) if RANK == 0 else parts[0][:0]
        check_equal(got, want, what)
        assert [int(row) for row in rows] == ([shape[0]] * SIZE if RANK == 0 else [0] * SIZE)
    elif kind == "scatter" and shape:
        whole = np.concatenate([parts[-1]] * SIZE) if RANK == SIZE - 1 else tensor
        if RANK == SIZE - 1 and isinstance(tensor, torch.Tensor):
            whole = torch.from_numpy(whole)
        check_equal(gradbus.scatter(whole, SIZE - 1), parts[-1], what)


def edges():
    """Both parts of complex numbers, factors of integers, elements in one place."""
    z = torch.complex(torch.tensor([1.0 + RANK]), torch.tensor([2.0 * RANK]))
    total = torch.complex(torch.tensor([SIZE + SIZE * (SIZE - 1) / 2]), torch.tensor([SIZE * (SIZE - 1.0)]))
    assert torch.equal(gradbus.allreduce(z, op=gradbus.Sum), total)
    assert torch.equal(gradbus.allreduce(z.conj(), op=gradbus.Sum), total.conj().resolve_conj())
    assert torch.equal(gradbus.reducescatter(z.repeat(SIZE), op=gradbus.Sum), total)
    both = gradbus.grouped_allreduce([z, torch.tensor([3], dtype=torch.int16)], op=gradbus.Sum)
    assert torch.equal(both[0], total) and both[1].tolist() == [3 * SIZE]
    for op in (gradbus.Min, gradbus.Product, gradbus.Adasum):
        refuses(lambda op=op: gradbus.allreduce(z, op=op), "complex64", "gradbus.Sum or gradbus.Average")
    ints = torch.tensor([3, -5])
    assert gradbus.allreduce(ints, op=gradbus.Sum, prescale_factor=0.5).tolist() == [SIZE, -2 * SIZE]
    assert gradbus.allreduce(ints, op=gradbus.Sum, postscale_factor=2).tolist() == [6 * SIZE, -10 * SIZE]
    half = np.array([7], dtype="uint16")
    gradbus.allreduce_(half, op=gradbus.Sum, postscale_factor=0.5)
    assert half.tolist() == [7 * SIZE // 2]
    refuses(lambda: gradbus.allreduce_(torch.ones(1).expand(3)), "expand", "contiguous")
    assert gradbus.allreduce(torch.ones(1).expand(3)).tolist() == [1, 1, 1]
    frozen = np.ones((4, 4))[:, ::2]
    frozen.flags.writeable = False
    refuses(lambda: gradbus.allreduce_(frozen), "not writable")


def factor_of(array, factor):
    return (array.astype("float64") * factor).astype(array.dtype)


def integers():
    """Every dtype, operation and form at odd lengths, over the whole range: sums and products wrap."""
    for number, dtype in enumerate(INTEGERS):
        for length in (1, 33, 1021):
            parts = [values(100 * number + length + 7 * rank, length, dtype) for rank in range(SIZE)]
            for op in ops_of(dtype):
                for in_torch in (False, True) if torch_knows(dtype) else (False,):
                    one_integer_case(parts, op, dtype, in_torch)
        check_factors(dtype)
    long = [values(rank, 5_000_003, "uint16") for rank in range(SIZE)]  # goes through a ring on one node
    check_equal(gradbus.allreduce(long[RANK], op=gradbus.Sum), reduced(long, gradbus.Sum, "uint16"), "long")
    if SIZE > 1:
        check_signs_matter()


def one_integer_case(parts, op, dtype, in_torch):
    def given():
        return torch.from_numpy(parts[RANK].copy()) if in_torch else parts[RANK].copy()

    want, what = reduced(parts, op, dtype), (dtype, op, len(parts[RANK]), in_torch)
    check_equal(gradbus.allreduce(given(), op=op), want, what)
    tensor = given()
    assert gradbus.allreduce_(tensor, op=op) is tensor
    check_equal(tensor, want, what)
    everywhere = gradbus.grouped_allreduce([given(), given()[:1]], op=op)
    check_equal(everywhere[1], want[:1], what)
    at_root = gradbus.reduce(given(), SIZE - 1, op=op)
    assert (at_root is None) == (RANK != SIZE - 1)
    if at_root is not None:
        check_equal(at_root, want, what)
    rows, extra = divmod(len(want), SIZE)
    first = RANK * rows + min(RANK, extra)
    check_equal(gradbus.reducescatter(given(), op=op), want[first : first + rows + (RANK < extra)], what)


def check_factors(dtype):
    """As float64, truncated toward zero, before and after."""
    mine = np.array([7, 100, 3], dtype) + np.array(RANK, dtype)
    parts = [np.array([7, 100, 3], dtype) + np.array(rank, dtype) for rank in range(SIZE)]
    for forms in (mine, torch.from_numpy(mine)) if torch_knows(dtype) else (mine,):
        got = gradbus.allreduce(forms, op=gradbus.Max, prescale_factor=0.5, postscale_factor=1.5)
        halves = [factor_of(part, 0.5) for part in parts]
        check_equal(got, factor_of(np.stack(halves).max(0), 1.5), ("factors", dtype))


def check_signs_matter():
    """What ranks call uint16 and int16, or uint64 and int64, is told apart on the way."""
    for signed, name in (("int16", "16[3]"), ("int64", "64[3]")):
        dtype = "u" + signed if RANK == SIZE - 1 else signed
        try:
            gradbus.allreduce(np.ones(3, dtype), "signs", op=gradbus.Sum)
        except gradbus.MismatchError as error:
            assert "i" + name in str(error) and "u" + name in str(error), error
        else:
            raise AssertionError("no MismatchError")
        gradbus.barrier()


def numbers():
    """Python's numbers and lists of them."""
    mean = (SIZE - 1) / 2
    for value, want in ((RANK / 1, mean), (RANK, mean), (True, 1.0)):
        got = gradbus.allreduce(value, name="metric")
        assert type(got) is float and got == want, got
    total = gradbus.allreduce(RANK + 1, op=gradbus.Sum)
    assert type(total) is int and total == SIZE * (SIZE + 1) // 2
    assert gradbus.allreduce(RANK == 0, op=gradbus.Max) is True
    assert gradbus.allreduce([RANK, 0.5], op=gradbus.Sum) == [SIZE * mean, 0.5 * SIZE]
    assert gradbus.allreduce((1, 2), op=gradbus.Sum) == [SIZE, 2 * SIZE]
    assert gradbus.allreduce([]) == []
    assert gradbus.grouped_allreduce([1.5, [2, 4]]) == [1.5, [2.0, 4.0]]
    assert gradbus.synchronize(gradbus.allreduce_async(2.0, op=gradbus.Sum)) == 2.0 * SIZE
    assert gradbus.allgather(RANK * 1.5) == [1.5 * rank for rank in range(SIZE)]
    assert gradbus.allgather([RANK] * (RANK + 1)) == [r for r in range(SIZE) for _ in range(r + 1)]
    assert gradbus.broadcast(RANK + 0.25, SIZE - 1) == SIZE - 0.75
    assert gradbus.broadcast([RANK, 1]) == [0, 1]
    assert gradbus.reduce(1.0, 0, op=gradbus.Sum) == (SIZE if RANK == 0 else None)
    assert gradbus.allreduce(7, op=gradbus.Sum, prescale_factor=0.5) == 3 * SIZE
    refuses(lambda: gradbus.allreduce(1 << 70, op=gradbus.Sum), "64 bits")
    refuses(lambda: gradbus.allreduce(["a"]), "a list")


def nested():
    """Tensors of rows with lengths of their own, in both of torch's layouts."""
    kinds = [{}] if hasattr(torch, "nested") and hasattr(torch.nested, "nested_tensor") else []
    kinds += [{"layout": torch.jagged}] if hasattr(torch, "jagged") else []
    for options in kinds:
        one = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], **options)
        for call in (gradbus.allreduce, gradbus.allreduce_, gradbus.allreduce_async, gradbus.allgather,
                     gradbus.broadcast, gradbus.broadcast_, gradbus.alltoall):  # fmt: skip
            refuses(functools.partial(call, one), "is nested", ".unbind()")
        refuses(lambda one=one: broadcast_parameters({"rows": one}), "'rows' is nested")


def refuses(call, *parts):
    try:
        call()
    except gradbus.InvalidError as error:
        assert all(part in str(error) for part in parts), error
        assert "\n" not in str(error) and " | next: " in str(error), error
        return
    raise AssertionError("no InvalidError")


gradbus.init()
RANK, SIZE = gradbus.rank(), gradbus.size()
globals()[sys.argv[1]]()
gradbus.barrier()
print("ok")
