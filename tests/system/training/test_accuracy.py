"""Real trainings with compression end where dense ones do; and what scripts/accuracy makes of trainings.

The bounds are on the accuracy, of which an image is 0.3 points, and on the training loss, which has no such graininess.
Trainings are shorter than those of docs/benchmarks/accuracy.md, and of one seed.
"""

import dataclasses
import math
import sys

import pytest
import rig as rigs
from conftest import PYTHONS

sys.path.insert(0, str(rigs.REPOSITORY / "scripts"))
from accuracy import report, results, training  # noqa: E402
from accuracy.rows import CORRECTED, DENSE, DIGITS, TASKS, Row, rows  # noqa: E402

pytestmark = pytest.mark.timeout(400)
EPOCHS = 20
STEPS = EPOCHS * 29
SEED = 1
SHORT = dataclasses.replace(DIGITS, options=("--hidden", "2048", "--epochs", str(EPOCHS), "--lr", "0.05",
                                             "--last-lr-share", "0"), steps=STEPS)  # fmt: skip
DGC = f"dgc:ratio=0.001,warmup={STEPS // 4}"
PROMISED = [
    Row("topk", "topk:ratio=0.01"),
    Row("dgc", DGC, CORRECTED),
    Row("qsgd", "qsgd"),
    Row("onebit", "onebit"),
    Row("efsignsgd", "efsignsgd"),
    Row("powersgd", "powersgd:rank=4"),
]
ACCURACY_LESS_MAX = 0.015  # 5 images; measured: 2 less with dgc, else none
LOSS_FACTOR_MAX = 1.3  # of dense's; measured 0.88 to 1.00, and 2.1 with a residual that is lost
DGC_LOSS_FACTOR_MAX = 2.5  # measured 1.85: 580 steps are few for 0.1 %
# Dense / compressed bytes; gathered payloads are twice the owned ones, and measured paths decide which.
FEWER_MIN = {"topk": 15, "dgc": 9, "qsgd": 1.8, "onebit": 6, "efsignsgd": 6, "powersgd": 5}
LOST = Row("topk, no residual", "topk:ratio=0.01,ef=none")


@pytest.fixture(scope="module")
def trained():
    """{row: the program's JSON line} of all trainings, in one job."""
    todo = [training.Training(SHORT, row, SEED) for row in (Row(DENSE), LOST, *PROMISED)]
    return {one.row.name: result for one, result in training.run(todo, str(PYTHONS["newest"]))}


@pytest.mark.parametrize("row", PROMISED, ids=lambda row: row.name)
def test_compressed_training_ends_where_dense_does(trained, row):
    ours, dense = trained[row.name], trained[DENSE]
    assert ours["accuracy"] >= dense["accuracy"] - ACCURACY_LESS_MAX
    assert ours["loss"] <= dense["loss"] * (DGC_LOSS_FACTOR_MAX if row.name == "dgc" else LOSS_FACTOR_MAX)
    assert ours["ranks_identical"] and ours["steps"] == dense["steps"] == STEPS
    assert ours["param_hash"] != dense["param_hash"], "nothing was compressed"


def test_a_lost_residual_would_be_noticed(trained):
    assert trained[LOST.name]["loss"] > trained[DENSE]["loss"] * LOSS_FACTOR_MAX


def test_dense_sends_what_an_all_reduce_does(trained):
    per_rank = trained[DENSE]["sent_bytes"] / STEPS / 4
    # A ring sends 2 * 3 / 4 gradients, recursive doubling 2; measured paths decide which.
    assert 1.49 <= per_rank / trained[DENSE]["gradient_bytes"] <= 2.02


@pytest.mark.parametrize("name", FEWER_MIN)
def test_agents_send_as_little_as_the_codec_promises(trained, name):
    assert trained[DENSE]["sent_bytes"] >= FEWER_MIN[name] * trained[name]["sent_bytes"]


# ---- scripts/accuracy, on figures worked by hand


def recorded(tmp_path, task, row, values):
    """Results of seeds 1, 2, ... of a row."""
    found = results.Results(tmp_path / "results.jsonl")
    for seed, (value, sent) in enumerate(values, start=1):
        found.add(training.Training(task, row, seed), {
            task.metric: value, "sent_bytes": sent, "gradient_bytes": 1000, "compressible_bytes": 900, "steps": 10,
            "seconds": 1.0, "param_hash": "0"})  # fmt: skip
    return found


def test_a_summary_compares_seed_by_seed(tmp_path):
    recorded(tmp_path, DIGITS, Row(DENSE), [(0.97, 60000), (0.98, 60000), (0.99, 60000)])
    found = recorded(tmp_path, DIGITS, Row("int8", "int8"), [(0.962, 15000), (0.98, 15000)])
    summary = results.summarize(found, DIGITS, Row("int8", "int8"), [1, 2, 3])
    assert summary.seeds == 2 and summary.mean == pytest.approx(0.971)
    assert summary.spread == pytest.approx(0.018 / 2**0.5)
    assert summary.worse == pytest.approx(0.4)  # points: 0.8 and 0
    assert summary.worse_error == pytest.approx(0.4)  # 0.8 / sqrt(2) of deviation, over sqrt(2)
    assert summary.bytes_per_step == pytest.approx(15000 / 10 / 4)
    assert summary.fewer == pytest.approx(4)  # 1.5 * 1000 / 375
    assert summary.compressible == pytest.approx(0.9) and summary.met(DIGITS)
    assert results.summarize(found, DIGITS, Row("fp16", "fp16"), [1, 2, 3]) is None
    assert results.summarize(found, DIGITS, Row("int8", "int8:block=64"), [1]) is None, "other settings"


def test_a_loss_is_compared_in_percent_and_nan_is_no_success(tmp_path):
    task = TASKS["charlm"]
    recorded(tmp_path, task, Row(DENSE), [(2.0, 60000)])
    recorded(tmp_path, task, Row("broken", "signsgd"), [(math.nan, 2000)])
    found = recorded(tmp_path, task, Row("qsgd", "qsgd"), [(2.03, 20000)])
    assert results.summarize(found, task, Row("qsgd", "qsgd"), [1]).worse == pytest.approx(1.5)
    broken = results.summarize(found, task, Row("broken", "signsgd"), [1])
    assert math.isinf(broken.worse) and not broken.met(task)


def test_the_report_has_every_row_and_draws(tmp_path):
    for row in rows(DIGITS):
        found = recorded(tmp_path, DIGITS, row, [(0.9 if not row.bounded else 0.97, 15000 + len(row.name))])
    path = report.write(found, [DIGITS, TASKS["charlm"]], [1], tmp_path, "scripts/accuracy.sh")
    text, picture = path.read_text(), (tmp_path / "accuracy-digits.svg").read_text()
    for row in rows(DIGITS):
        assert f"| {row.name} |" in text and f"{row.name}<" in picture.replace(" (90)<", "<")
    assert "| 97.00 |" in text and "Character-level" not in text
