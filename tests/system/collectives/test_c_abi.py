"""The promise of gradbus.h: a client that was compiled with an older or a newer header works with this library.

Older and newer headers are made of the one there is: the last field of each struct that grows is taken out, or one
more is put behind it. Ranks of all three kinds meet in one job.
"""

import pathlib
import re
import shutil
import subprocess

import pytest
import rig as rigs

HEADER = rigs.REPOSITORY / "client_lib/include/gradbus/gradbus.h"
SYMBOLS = rigs.REPOSITORY / "client_lib/abi_symbols.txt"
SOURCE = pathlib.Path(__file__).parents[1] / "abi_client.c"
STRUCTS = ("options", "mode", "mode_change", "tensor_spec", "operation")
LIBRARY = next(iter(sorted(rigs.BIN.parent.glob("**/libgradbus.so"))), None)


def body_of(text, struct):
    """Where the fields of the struct are."""
    name = f"gradbus_{struct}"
    begin = text.index(f"typedef struct {name} {{") + len(f"typedef struct {name} {{")
    return begin, text.index(f"}} {name};", begin)


def older(text):
    """Without the last field of each struct."""
    for struct in STRUCTS:
        begin, end = body_of(text, struct)
        fields = re.sub(r"/\*.*?\*/", "", text[begin:end], flags=re.S).strip().split(";")
        assert len(fields) > 3, struct
        text = text[:begin] + ";".join(fields[:-2]) + ";\n" + text[end:]
    return text


def newer(text):
    """With one more, and one more dtype."""
    begin = text.index("typedef enum gradbus_dtype {")
    last = max(int(number) for number in re.findall(r" = (\d+),", text[begin : text.index("} gradbus_dtype;")]))
    text = text.replace("  GRADBUS_DTYPE_WIDTH_", f"  GRADBUS_FUTURE = {last + 1},\n  GRADBUS_DTYPE_WIDTH_")
    for struct in STRUCTS:
        _, end = body_of(text, struct)
        text = text[:end] + "  uint64_t future;\n" + text[end:]
    return text


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """One program for each form of the header."""
    compiler = shutil.which("cc")
    if compiler is None or LIBRARY is None:
        pytest.skip("there is no C compiler, or no libgradbus.so")
    made = []
    for kind, change, flags in (("older", older, ["-DOLDER"]), ("same", str, []), ("newer", newer, ["-DFUTURE"])):
        folder = tmp_path_factory.mktemp(kind)
        shutil.copytree(HEADER.parent, folder / "gradbus")
        (folder / "gradbus/gradbus.h").write_text(change(HEADER.read_text()))
        subprocess.run(
            [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", *flags, f"-I{folder}", SOURCE, "-o",
             folder / "client", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"],
            check=True)  # fmt: skip
        made.append(folder / "client")
    return made


@pytest.mark.parametrize("agents", [1, 2])
def test_clients_of_three_versions_in_one_job(clients, agents):
    with rigs.cluster(agents) as rig:
        ranks = [rig.start_rank(rank, 3, program=[str(client)]) for rank, client in enumerate(clients)]
        for rank in ranks:
            status, output = rank.finish()
            assert (status, output) == (0, "ok\n"), (rank.number, output)


def test_exported_names_are_those_of_the_list():
    """A name is added to the list when it is new; none is ever taken out of it."""
    nm = shutil.which("nm")
    if nm is None or LIBRARY is None:
        pytest.skip("there is no nm, or no libgradbus.so")
    output = subprocess.run([nm, "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1].split("@")[0] for line in output.splitlines() if " T gradbus_" in line}
    listed = set(SYMBOLS.read_text().split())
    assert listed - exported == set(), "the library has lost names that programs link"
    assert exported - listed == set(), f"new names: add them to {SYMBOLS.name}"


@pytest.mark.skipif(shutil.which("abidw") is None, reason="abigail-tools is missing")
def test_the_binary_interface_is_that_of_the_baseline():
    """Functions, structs and the places of their fields, from the debug information (scripts/abi.sh)."""
    if LIBRARY is None:
        pytest.skip("there is no libgradbus.so")
    done = subprocess.run([rigs.REPOSITORY / "scripts/abi.sh", LIBRARY], capture_output=True, text=True, timeout=300,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
