"""A rank: JobLogger with real TensorBoard, MLflow and W&B, offline: `job_logger.py FOLDER`. Rank 1 is late.

What rank 0 reads back from the files is what the job did.
"""

import itertools
import os
import pathlib
import struct
import sys
import time

import gradbus.torch as gradbus
import torch
from gradbus.loggers import JobLogger

FOLDER = pathlib.Path(sys.argv[1])
LATE_S, DEADLINE_S = 0.05, 100  # the status of a job is some seconds old
WANTED = {"gradbus/fidelity_cosine", "gradbus/lateness_s", "gradbus/exposed_ms_per_step"}
RANK = int(os.environ["GRADBUS_RANK"])


def open_all():
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # mlflow-skinny has no other store
    import mlflow
    import wandb
    from torch.utils.tensorboard import SummaryWriter

    mlflow.set_tracking_uri(FOLDER / "mlflow")
    mlflow.start_run()
    run = wandb.init(mode="offline", dir=str(FOLDER), project="gradbus", settings=wandb.Settings(silent=True))
    return SummaryWriter(str(FOLDER / "board")), mlflow, run


def train(log):
    torch.manual_seed(0)
    model = torch.nn.Linear(200, 200)
    optimizer = gradbus.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), compression="topk:ratio=0.01,fidelity=10"
    )
    written, ends = [], time.monotonic() + DEADLINE_S
    for step in itertools.count():
        seen = len(written) >= 3 and WANTED <= set(written[-1]) and written[-1]["gradbus/latest_rank"] == 1
        if gradbus.broadcast_object(seen or time.monotonic() > ends):
            break
        if RANK == 1:
            time.sleep(LATE_S)
        optimizer.zero_grad()
        model(torch.randn(4, 200, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
        point = log(step)
        written += [point] if point else []
    gradbus.barrier()
    point = log.close()
    return [*written, point] if point else written


def of_board():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(FOLDER / "board"))
    events.Reload()
    return {tag: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def of_mlflow(mlflow, run_id):
    client = mlflow.MlflowClient()
    names = client.get_run(run_id).data.metrics
    return {name: [metric.value for metric in client.get_metric_history(run_id, name)] for name in names}


def records_of(data):
    """Of a file in the log format of LevelDB, behind W&B's seven bytes."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block is empty
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, last
            yield record
            record = b""


def of_wandb():
    """From the file that `wandb sync` would send."""
    from wandb.proto import wandb_internal_pb2

    curves = {}
    (file,) = (FOLDER / "wandb").glob("offline-run-*/run-*.wandb")
    for data in records_of(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if name.startswith("gradbus/"):
                curves.setdefault(name, []).append(float(item.value_json))
    return curves


def check(points, curves, what):
    assert set(curves) == set().union(*points), (what, sorted(curves))
    for name, values in curves.items():
        expected = [point[name] for point in points if name in point]
        assert len(values) == len(expected), (what, name, values, expected)
        assert all(abs(a - b) <= 1e-6 * abs(b) for a, b in zip(sorted(values), sorted(expected))), (what, name)


opened = open_all() if RANK == 0 else ()  # imports take seconds, so before init()
gradbus.init()
if RANK != 0:
    assert train(JobLogger(None)) == []
else:
    board, mlflow, run = opened
    points = train(JobLogger(board, mlflow, run, every_s=0.2))
    run_id = mlflow.active_run().info.run_id
    board.close(), mlflow.end_run(), run.finish()
    sys.modules["wandb"].teardown()  # ends its service, which has this program's output open
    assert len(points) >= 3, points
    last = next(point for point in reversed(points) if point["gradbus/latest_rank"] == 1)  # rank 1 may have left
    # One entry of a hundred is sent, in at most eight bytes.
    assert 40 < last["gradbus/compression_ratio"] <= 200, last
    assert last["gradbus/latest_rank"] == 1 and last["gradbus/lateness_s"] > LATE_S, last
    assert last["gradbus/exposed_ms_per_step"] > 1e3 * LATE_S / 2, points
    assert 0 < points[0]["gradbus/exposed_share"] <= 1, points
    assert 0 < last["gradbus/fidelity_cosine"] <= 1 and 0 < last["gradbus/fidelity_relative_error"], last
    assert last["gradbus/sent_bytes"] > 0
    check(points, of_board(), "TensorBoard")
    check(points, of_mlflow(mlflow, run_id), "MLflow")
    check(points, of_wandb(), "W&B")
    for wrong in (lambda: JobLogger(), lambda: JobLogger(3)):
        try:
            wrong()
        except gradbus.InvalidError as error:
            assert " | next: " in str(error)
        else:
            raise AssertionError(wrong)
print("ok", flush=True)
