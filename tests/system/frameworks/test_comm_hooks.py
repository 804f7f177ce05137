"""gradbus.torch.hook(): the exchange of DistributedDataParallel's gradients, with compression."""

import pytest
from conftest import PYTHONS, assert_all_ok, run_ranks

pytestmark = pytest.mark.timeout(300)
NEWEST, DEBIAN = str(PYTHONS["newest"]), str(PYTHONS["debian"])
CODECS = (
    "none", "fp16", "bf16", "fp8", "int8", "int4", "topk:ratio=0.01", "dgc:ratio=0.01", "randk:ratio=0.1",
    "threshold:value=0.001", "qsgd", "terngrad", "signsgd", "efsignsgd", "onebit", "signum", "natural",
    "powersgd:rank=2", "blocktopk", "rows",
)  # fmt: skip
FEW = ("none", "topk:ratio=0.01", "powersgd:rank=2")


@pytest.mark.parametrize(
    ("python", "backend", "size", "codecs"),
    [(NEWEST, "gloo", 2, CODECS), (NEWEST, "gloo", 4, FEW), (NEWEST, "gradbus", 2, FEW), (DEBIAN, "gloo", 2, FEW)],
    ids=["gloo-2", "gloo-4", "gradbus-2", "torch-1.13"],
)
def test_hooks_train_as_the_optimizer(two_agents, tmp_path, python, backend, size, codecs):
    words = [str(tmp_path / "store"), backend, *codecs]
    assert_all_ok(run_ranks(two_agents, python, "frameworks/comm_hooks.py", size, *words))
