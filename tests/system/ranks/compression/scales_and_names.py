"""A rank of four on two agents: the scale of votes, what needs a name, and which codecs go with what."""

import gradbus
import numpy as np
import pytest
from gradbus._session import current

RANK, SIZE, NODES = gradbus.init() or gradbus.rank(), gradbus.size(), 2
COUNT = 4096


def votes_count_the_same_whoever_counts_them():
    """All agree on the first half; of the second half each node votes for itself, so it is a tie."""
    node = 1 if RANK < SIZE // NODES else -1
    gradient = np.concatenate([np.full(COUNT // 2, 3.0), np.full(COUNT // 2, 3.0 * node)]).astype(np.float32)
    for codec in ("signsgd", "signum"):
        for step in (1.0, 0.25):
            for communicator in ("allgather", "ps"):
                spec = f"{codec}:step={step},communicator={communicator}"
                mean = gradbus.allreduce(gradient, name=f"mean {spec}", compression=spec)
                assert np.all(mean[: COUNT // 2] == step), (spec, mean[0])
                assert np.all(np.abs(mean[COUNT // 2 :]) <= step), (spec, mean[-1])
                total = gradbus.allreduce(gradient, name=f"sum {spec}", op=gradbus.Sum, compression=spec)
                assert np.all(total[: COUNT // 2] == NODES * step), (spec, total[0])


def an_operation_without_a_name_keeps_nothing():
    """It would be added to whatever has the same size."""
    gradient = np.arange(COUNT, dtype=np.float32)
    for spec in ("topk:ratio=0.01", "onebit", "dgc:ratio=0.01", "signum", "powersgd", "fp16:ef=residual"):
        with pytest.raises(gradbus.InvalidError, match="GB-O910.*without a name.*pass a name"):
            gradbus.allreduce(gradient, compression=spec)
    for _ in range(6):
        assert np.array_equal(gradbus.allreduce(np.zeros(COUNT, np.float32), compression="topk:ef=none"), gradient * 0)
        assert np.array_equal(gradbus.allreduce(gradient, compression="bf16:communicator=allgather").shape, (COUNT,))


def a_matrix_has_its_own_rows():
    """One of rank 1 is exact after a round: its column space is found by the first product (Vogels et al. 2019)."""
    random = np.random.default_rng(7)
    matrix = np.outer(random.standard_normal(300), random.standard_normal(50)).astype(np.float32)
    found = gradbus.allreduce(matrix, name="matrix", compression="powersgd:rank=1")
    assert np.linalg.norm(found - matrix) < 1e-4 * np.linalg.norm(matrix)
    rows = np.zeros((64, 50), np.float32)
    rows[RANK] = RANK + 1
    assert np.array_equal(gradbus.allreduce(rows, name="rows", op=gradbus.Sum, compression="rows")[:SIZE, 0],
                          np.arange(1, SIZE + 1))  # fmt: skip


def wrong_pairs_are_refused():
    gradient = np.ones(COUNT, np.float32)
    with pytest.raises(gradbus.InvalidError, match="GB-O910.*Adasum cannot be compressed"):
        gradbus.allreduce(gradient, name="adasum", op=gradbus.Adasum, compression="fp16")
    for spec in ("dgc", "topk:ef=dgc", "signum"):
        with pytest.raises(gradbus.InvalidError, match="GB-O910.*mode delayed:k=2 goes without a momentum"):
            current().register_buckets([(f"delayed {spec}", COUNT, 1, int(gradbus.Sum), spec, 0, "delayed:k=2")])


votes_count_the_same_whoever_counts_them()
an_operation_without_a_name_keeps_nothing()
a_matrix_has_its_own_rows()
wrong_pairs_are_refused()
print("ok", flush=True)
