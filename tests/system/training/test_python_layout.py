"""Where gradients lie (gradbus._layout): pure functions, so worked out by hand here."""

import types
from random import Random

import pytest

pytest.importorskip("torch")
layout = pytest.importorskip("gradbus._layout")

MIB = 1 << 20


def info(name, count, dtype="float32"):
    return layout.ParameterInfo(name, dtype, count)


def shape(plan):
    return [(slot.index, slot.offset, slot.count) for slot in plan.slots]


def test_last_parameter_comes_first_and_slots_are_aligned():
    plans = layout.plan_buckets([info("a", 3), info("b", 17), info("c", 16)], 25 * MIB, "grad")
    # 64 bytes are 16 elements of f32: c takes 16, b 32, a 16.
    assert [shape(plan) for plan in plans] == [[(2, 0, 16), (1, 16, 17), (0, 48, 3)]]
    assert plans[0].count == 64 and plans[0].name == "grad/f32/0:a..c"


def test_first_bucket_is_one_mebibyte_and_the_others_as_asked():
    parameters = [info(f"p{n}", MIB // 8) for n in range(12)]  # half a MiB each
    plans = layout.plan_buckets(parameters, 2 * MIB, "grad")
    assert [[slot.index for slot in plan.slots] for plan in plans] == [
        [11, 10],
        [9, 8, 7, 6],
        [5, 4, 3, 2],
        [1, 0],
    ]
    assert [plan.name for plan in plans] == [
        "grad/f32/0:p10..p11",
        "grad/f32/1:p6..p9",
        "grad/f32/2:p2..p5",
        "grad/f32/3:p0..p1",
    ]


def test_the_size_of_buckets_is_the_callers_then_horovods_then_the_schedules(monkeypatch):
    arguments = pytest.importorskip("gradbus.torch._arguments")
    schedules = pytest.importorskip("gradbus.torch._schedules")
    AUTO, DDP = (schedules.schedule_of(name) for name in ("auto", "ddp"))
    monkeypatch.delenv("HOROVOD_FUSION_THRESHOLD", raising=False)
    assert arguments.bucket_bytes_of(None, AUTO) is None
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", str(2 * MIB))
    assert arguments.bucket_bytes_of(None, AUTO) == 2 * MIB
    assert arguments.bucket_bytes_of(5, AUTO) == 5
    assert arguments.bucket_bytes_of(None, DDP) is None  # which has a size of its own
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "0")  # each tensor alone
    plans = layout.plan_buckets([info("a", 3), info("b", 17)], arguments.bucket_bytes_of(None, AUTO), "g")
    assert len(plans) == 2
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "64MB")
    with pytest.raises(ValueError, match="HOROVOD_FUSION_THRESHOLD='64MB' is no number of bytes"):
        arguments.bucket_bytes_of(None, AUTO)


def test_buckets_follow_the_order_of_arrival():
    parameters = [info(name, 16) for name in "abcd"]
    plans = layout.plan_buckets(parameters, 128, "grad", arrival=[1, 3, 0, 2])
    assert [[slot.index for slot in plan.slots] for plan in plans] == [[1, 3], [0, 2]]
    assert [plan.name for plan in plans] == ["grad/f32/0:d..b", "grad/f32/1:c..a"]


def test_priorities_of_schedules():
    schedules = pytest.importorskip("gradbus.torch._schedules")

    def priorities(name):
        return [schedules.schedule_of(name).priorities(number, 3) for number in range(3)]

    assert priorities("ddp") == [(0, 0)] * 3
    # The last bucket of the backward pass is the first one that the next forward pass needs.
    assert priorities("bytescheduler") == [(2, 2), (1, 1), (0, 0)]
    # All partial sums go before the results, and these in the order of the forward pass.
    assert priorities("dear") == [(0, 3), (0, 2), (0, 1)]


def test_gradients_of_half_precision_share_no_bucket_with_others():
    parameters = [layout.ParameterInfo(n, "float32", 5, gradient_dtype=d)
                  for n, d in (("a", "bfloat16"), ("b", ""), ("c", "bfloat16"), ("d", "float16"))]  # fmt: skip
    plans = layout.plan_buckets(parameters, MIB, "g")
    assert [(plan.gradient_dtype, [slot.index for slot in plan.slots]) for plan in plans] == [
        ("float16", [3]), ("bfloat16", [2, 0]), ("", [1])]  # fmt: skip


def test_buckets_do_not_mix_devices_and_each_device_begins_with_a_small_one():
    def half(name, device):
        return layout.ParameterInfo(name, "float32", MIB // 8, device=device)  # of a MiB

    devices = ["cuda", "cpu", "cuda", "cuda", "cpu", "cuda", "cuda"]
    plans = layout.plan_buckets([half(f"p{n}", d) for n, d in enumerate(devices)], 2 * MIB, "g")
    assert [(plan.device, [slot.index for slot in plan.slots]) for plan in plans] == [
        ("cuda", [6, 5]),
        ("cpu", [4, 1]),
        ("cuda", [3, 2, 0]),
    ]


def test_a_parameter_larger_than_a_bucket_gets_its_own():
    plans = layout.plan_buckets(
        [info("small", 1), info("large", 10 * MIB), info("last", 1)], MIB, "g"
    )
    assert [[slot.index for slot in plan.slots] for plan in plans] == [[2], [1], [0]]


def test_each_dtype_has_its_own_buckets():
    parameters = [info("a", 5), info("b", 5, "bfloat16"), info("c", 5, "float64"), info("d", 5)]
    plans = layout.plan_buckets(parameters, MIB, "grad2")
    assert [(plan.name, shape(plan), plan.count) for plan in plans] == [
        ("grad2/f32/0:a..d", [(3, 0, 5), (0, 16, 5)], 32),
        ("grad2/f64/1:c..c", [(2, 0, 5)], 8),
        ("grad2/bf16/2:b..b", [(1, 0, 5)], 32),
    ]


def test_matrices_and_sparse_gradients_stay_alone():
    table = layout.ParameterInfo("table", "float32", 70, "rows", columns=7, sparse=True)
    factors = layout.ParameterInfo("factors", "float32", 35, "powersgd:rank=2", columns=5)
    parameters = [info("a", 5), table, factors, info("b", 5)]
    plans = layout.plan_buckets(parameters, MIB, "g")
    assert [(shape(plan), plan.count, plan.columns, plan.sparse) for plan in plans] == [
        ([(3, 0, 5), (0, 16, 5)], 32, 0, False),
        ([(2, 0, 35)], 35, 5, False),
        ([(1, 0, 70)], 70, 7, True),
    ]


def test_what_is_compressed_has_no_gaps():
    """Codecs would take them for elements: they would count in means, and be remembered."""
    parameters = [layout.ParameterInfo(name, "float32", count, "onebit") for name, count in (("a", 17), ("b", 3))]
    plans = layout.plan_buckets([info("c", 5), *parameters], MIB, "g")
    assert [(shape(plan), plan.count) for plan in plans] == [([(2, 0, 3), (1, 3, 17)], 20), ([(0, 0, 5)], 16)]


def test_layers_of_lamb_stay_alone():
    lamb = [layout.ParameterInfo(name, "float32", 5, mode="ps:ssp,optimizer=lamb") for name in "ab"]
    plans = layout.plan_buckets([info("c", 5), *lamb, info("d", 5)], MIB, "g")
    assert [(shape(plan), plan.count) for plan in plans] == [
        ([(3, 0, 5), (0, 16, 5)], 32), ([(2, 0, 5)], 5), ([(1, 0, 5)], 5)]  # fmt: skip


def test_lamb_takes_from_the_group_what_its_mode_does_not_say():
    torch = pytest.importorskip("torch")
    text_of = pytest.importorskip("gradbus.torch._modes.shard_optimizers").text_of

    def text(mode, kind, **options):
        optimizer = kind([torch.nn.Parameter(torch.zeros(2))], lr=0.1, **options)
        return text_of(types.SimpleNamespace(kind=7, text=mode), kind, optimizer.param_groups[0])

    sgd, adam, lamb = torch.optim.SGD, torch.optim.Adam, "ps:async,optimizer=lamb"
    assert text(lamb, sgd, momentum=0.9) == f"{lamb},weight_decay=0"
    assert text(lamb, adam, betas=(0.7, 0.8), eps=0.5) == f"{lamb},weight_decay=0,beta1=0.7,beta2=0.8"
    told = f"{lamb},weight_decay=0.5,beta2=0.6"
    assert text(told, adam, betas=(0.7, 0.8)) == f"{told},beta1=0.7"
    assert text("ps:async,optimizer=adam", sgd) == "ps:async,optimizer=adam"


def test_empty_parameters_and_no_parameters():
    assert layout.plan_buckets([], MIB, "grad") == []
    assert layout.plan_buckets([info("none", 0)], MIB, "grad")[0].count == 0


def test_names_are_cut_to_255_bytes_between_characters():
    assert layout.cut_name("x" * 255) == "x" * 255
    assert layout.cut_name("x" * 256) == "x" * 255
    assert layout.cut_name("x" * 254 + "é") == "x" * 254
    plans = layout.plan_buckets([info("é" * 200, 1)], MIB, "grad")
    assert len(plans[0].name.encode()) <= 255


def test_fragments_are_contiguous_and_a_parameter_is_where_its_middle_is():
    split = pytest.importorskip("gradbus._modes.local_steps").split_by_bytes

    def parts(sizes, count):
        return split(sizes, sizes, count)

    assert parts([5, 6, 1], 2) == [[5], [6, 1]]  # middles at 2.5, 8 and 11.5 of 12
    assert parts([1, 2, 30, 3], 3) == [[1, 2], [30], [3]]
    assert parts([7], 3) == [[], [7], []]
    assert parts([0, 0], 2) == [[0, 0], []]


def random_parameters(random):
    kinds = [(dtype, codec) for dtype in ("float32", "float64", "bfloat16") for codec in ("none", "int8")]
    found = []
    for number in range(random.randrange(1, 40)):
        dtype, codec = random.choice(kinds)
        codec = codec if dtype == "float32" else "none"
        pairs = dtype == "float32" and codec == "none" and random.random() < 0.2
        count = 2 * random.randrange(1, 3000) if pairs else random.randrange(6000)
        found.append(layout.ParameterInfo(f"p{number}", dtype, count, codec, is_complex=pairs))
    return found


def test_every_element_is_in_one_bucket_once():
    """Random models, sizes, orders and plans: no element is missing, sent twice, or in a bucket of another kind."""
    random = Random(22)
    for _ in range(300):
        parameters = random_parameters(random)
        order = random.sample(range(len(parameters)), len(parameters))
        groups = [random.randrange(4) for _ in parameters] if random.random() < 0.5 else None
        size = random.randrange(1, 40_000)
        plans = layout.plan_buckets(parameters, size, "grad", order, groups)
        places = [(slot.index, slot.offset, slot.count, plan) for plan in plans for slot in plan.slots]
        assert sorted(index for index, *_ in places) == list(range(len(parameters)))
        assert len({plan.name for plan in plans}) == len(plans)
        for plan in plans:
            ends = 0
            for slot in plan.slots:
                assert slot.offset >= ends and slot.count == parameters[slot.index].count
                ends = slot.offset + slot.count
                like = parameters[slot.index]
                assert (plan.dtype, plan.compression) == (like.dtype, like.compression)
            assert ends <= plan.count
            members = [slot.index for slot in plan.slots]
            assert groups is None or len({groups[index] for index in members}) == 1
            if groups is None and len(members) > 1:
                width = layout.DTYPES[plan.dtype][2]
                assert plan.slots[-1].offset * width <= max(size, 1), "a bucket is closed when it has its size"
