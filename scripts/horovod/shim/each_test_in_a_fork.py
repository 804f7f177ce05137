"""A pytest plugin: each test runs in a fork of this rank, in a Gradbus job with a name of its own.

So a test that fails on one rank cannot disturb the next one. All ranks run the same tests in the same order.
"""

import json
import os
import select
import signal
import sys
import time

import pytest
from _pytest.runner import runtestprotocol

SECONDS_MAX = 180


def pytest_configure(config):
    """Horovod's tests try every optimizer of torch on vectors. Muon is newer than they, and takes matrices only."""
    try:
        import torch
    except ImportError:
        return
    muon = getattr(torch.optim, "Muon", None)
    if muon is not None:
        muon.__module__ = f"not.{muon.__module__}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Instead of pytest's own."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports_of_fork(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports_of_fork(item, nextitem):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_end(item, nextitem, writing)
    os.close(writing)
    text = _read_until(reading, time.monotonic() + SECONDS_MAX)
    if text is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    try:
        dumped = json.loads(text or b"")
    except ValueError:
        return [_crashed(item, status)]
    from_dump = item.config.hook.pytest_report_from_serializable
    return [from_dump(config=item.config, data=data) for data in dumped]


def _run_and_end(item, nextitem, writing):
    import gradbus

    os.environ["GRADBUS_JOB"] = f"{os.environ.get('GRADBUS_JOB', 'suite')}-{item.name}"[:120]
    dump = item.config.hook.pytest_report_to_serializable
    subtests = _Subtests()
    item.config.pluginmanager.register(subtests)
    whole = runtestprotocol(item, nextitem=nextitem, log=False)
    reports = [dump(config=item.config, report=one) for one in [*subtests.reports, *whole]]
    with os.fdopen(writing, "w") as pipe:
        json.dump(reports, pipe, default=str)
    sys.stdout.flush()
    if gradbus.is_initialized():
        gradbus.shutdown()
    os._exit(0)


class _Subtests:
    """pytest logs the reports of subtests when they end, so here in the fork."""

    def __init__(self):
        self.reports = []

    def pytest_runtest_logreport(self, report):
        self.reports.append(report)


def _read_until(reading, deadline):
    """What the child has written; None: it has not ended in time."""
    text = b""
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = pipe.read(1 << 16)
            if not piece:
                return text
            text += piece
    return None


def _crashed(item, status):
    def fail():
        pytest.fail(f"the test ended with wait status {status}", pytrace=False)

    return pytest.TestReport.from_item_and_call(item, pytest.CallInfo.from_call(fail, "call"))
