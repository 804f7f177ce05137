"""A job of one rank that joins, leaves and exits when the files `begin`, `leave` and `exit` are there."""

import pathlib
import sys
import time

import gradbus


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def main():
    folder = pathlib.Path(sys.argv[1])
    (folder / "ready").touch()
    wait_for(folder / "begin")
    gradbus.init()
    (folder / "joined").touch()
    wait_for(folder / "leave")
    gradbus.shutdown()
    (folder / "left").touch()
    wait_for(folder / "exit")
    print("ok")


main()
