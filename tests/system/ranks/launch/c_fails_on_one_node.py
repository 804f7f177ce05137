"""A rank of torchrun that becomes a program in C++. That of rank 1 fails once, before it joins the job or after.

    c_fails_on_one_node.py FOLDER before|after PROGRAM
"""

import os
import pathlib
import sys

folder, place, program = sys.argv[1:]
failed = pathlib.Path(folder) / "failed"
steps = ["red:x:10:i64:sum", "barrier"]
if os.environ["RANK"] == "1" and not failed.exists():
    failed.touch()
    if place == "before":
        sys.exit("this attempt fails on purpose")
    steps = ["red:x:10:i64:sum", "exit:1"]
os.execv(program, [program, *steps])
