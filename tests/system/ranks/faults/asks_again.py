"""A rank whose question to the coordinator is not answered in time, and that asks again: asks_again.py FOLDER.

Waits for FOLDER/asleep, makes FOLDER/asked when it has given up, and waits for FOLDER/awake.
"""

import pathlib
import sys
import time

import gradbus
from gradbus._session import current

DEADLINE_S = 60
folder = pathlib.Path(sys.argv[1])


def wait_for(file):
    while not (folder / file).exists():
        time.sleep(0.01)


def ask():
    """The refusal: the coordinator does not understand the question."""
    try:
        return current().ask_coordinator('{"kind": "of no use"}' + " " * 3000)  # in several parts
    except gradbus.GradbusError as error:
        return str(error)


gradbus.init()
if gradbus.rank() == 0:
    wait_for("asleep")
    first, second = ask(), ask()
    assert "GB-P110" in first and "answer of the coordinator" in first, first
    assert "GB-O905" in second and "ask again later" in second, second
    (folder / "asked").touch()
    wait_for("awake")
    until = time.monotonic() + DEADLINE_S
    while "GB-O905" in (answer := ask()):
        assert time.monotonic() < until, answer
        time.sleep(0.05)
    assert "GB-F102" in answer, answer
    assert ask() == answer
gradbus.barrier()
gradbus.shutdown()
print("ok")
