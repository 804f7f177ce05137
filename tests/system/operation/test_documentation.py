"""Every shell and Python block of README and of the get-started and how-to pages runs; a comment above a block says
why one does not.

    <!-- not run: needs a GPU -->

Shell blocks run in a folder with a train.py, and with short benchmarks. Daemons that a page starts by hand only read
their options (--print-config). Python blocks run as two ranks on two agents with a shard. The reference pages
have everything that the programs themselves list.
"""

import pathlib
import re
import shutil
import socket
import subprocess
import sys

import pytest
import rig as rigs
from conftest import PYTHONS, RANK_DEADLINE_S, assert_all_ok, clean_environment

HERE = pathlib.Path(__file__).parent / "documentation"
sys.path.insert(0, str(HERE))
from blocks import blocks_of  # noqa: E402

DOCS = rigs.REPOSITORY / "docs"
PAGES = {page.stem: page for folder in ("get-started", "how-to") for page in sorted((DOCS / folder).glob("*.md"))}
PAGES["README"] = rigs.REPOSITORY / "README.md"
PYTHON = str(PYTHONS["newest"])
POLICY = '[[rule]]\nname = "*"\ncompression = "fp16"\n'
NOT_RUN_SHARE_MAX = 0.3  # more would say that the pages are not tested
RUN_ELSEWHERE = ("which tests run", "scripts/boot_test.sh runs it")  # words of reasons
pytestmark = pytest.mark.timeout(300)

# Programs by the names that pages use. Benchmarks are cut short, daemons end after they have read their options.
PROGRAMS = {
    "gradbus": 'case "$1 $2" in\n'
               '"bench codec") exec {bin}/gradbus "$@" --elements 65536 -n 1;;\n'
               '"bench machine") exec {bin}/gradbus "$@";;\n'
               'bench*) exec {bin}/gradbus "$@" -n 1 -w 1;;\n'
               'esac\nexec {bin}/gradbus "$@"',
    "gradbus-agent": 'exec {bin}/gradbus-agent "$@" --print-config',
    "gradbus-server": 'exec {bin}/gradbus-server "$@" --print-config',
    "python": 'exec {python} "$@"',
}  # fmt: skip


def runs(page, language):
    return [block.code for block in blocks_of(page) if block.language == language and not block.reason]


def pages_with(language):
    return [name for name, page in PAGES.items() if runs(page, language)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder for PATH."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text.format(bin=rigs.BIN, python=PYTHON)}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """Two agents and a shard."""
    with rigs.cluster(2) as running:
        running.start_shard("shard-0")
        yield running


@pytest.mark.parametrize("name", pages_with("sh"))
def test_shell_blocks(name, programs, tmp_path, run_program):
    (tmp_path / "policy.toml").write_text("\n".join(runs(PAGES[name], "toml")) or POLICY)
    program = next((code for code in runs(PAGES[name], "python") if "gradbus.init()" in code), "")
    (tmp_path / "train.py").write_text(program if name == "first-program" else (HERE / "train.py").read_text())
    environment = clean_environment(HOME=str(tmp_path), PATH=f"{programs}:/usr/local/bin:/usr/sbin:/usr/bin:/bin",
                                    GRADBUS_TOKEN_FILE=str(rigs.TOKEN_FILE), XDG_RUNTIME_DIR=str(tmp_path))  # fmt: skip
    for code in runs(PAGES[name], "sh"):
        if "jq" in code and shutil.which("jq") is None:
            continue
        command = ["bash", "-euo", "pipefail", "-c", f"cd {tmp_path}\n{code}"]
        status, output = run_program(command, environment)
        assert status == 0, f"{code}\n{output}"


@pytest.mark.parametrize("name", pages_with("python"))
def test_python_blocks(name, cluster, tmp_path):
    command = [PYTHON, str(HERE / "run_page.py"), str(PAGES[name]), str(tmp_path)]
    with socket.socket() as free:  # for torch.distributed
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = cluster.start_job(2, program=command, job=name, env={"OMP_NUM_THREADS": "1", "MASTER_PORT": port})
    assert_all_ok([rank.finish(RANK_DEADLINE_S) for rank in ranks])


def test_few_blocks_do_not_run():
    blocks = [block for page in PAGES.values() for block in blocks_of(page)]
    found = [b for b in blocks if b.reason and not any(words in b.reason for words in RUN_ELSEWHERE)]
    assert len(found) <= NOT_RUN_SHARE_MAX * len(blocks), [block.reason for block in found]


def test_every_block_is_seen():
    """A block that the pattern misses, such as an indented one, would be tested by nobody."""
    for page in PAGES.values():
        fences = re.findall(r"^\s*```", page.read_text(), re.MULTILINE)
        assert len(fences) == 2 * len(blocks_of(page)), page


# ---- the reference


@pytest.fixture(scope="module")
def reference():
    """{page: text}, written now."""
    subprocess.run([sys.executable, "scripts/reference.py"], cwd=rigs.REPOSITORY, check=True, timeout=60)
    return {page.stem: page.read_text() for page in (DOCS / "reference").glob("*.md")}


def said(*words):
    return subprocess.run([rigs.BIN / words[0], *words[1:]], capture_output=True, text=True, timeout=60,
                          check=True).stdout  # fmt: skip


@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_reference_has_the_options_of_daemons(program, reference):
    flags = set(re.findall(r"--[a-z][a-z-]+", said(program, "--help")))
    missing = {flag for flag in flags if f"| `{flag}` |" not in reference["options"]}
    assert missing <= {"--help", "--version", "--config", "--print-config"}


@pytest.mark.parametrize("command", ["run", "bench", "status", "stop", "mode", "trace", "timeline", "doctor"])
def test_reference_has_the_options_of_commands(command, reference):
    section = reference["options"].split(f"## gradbus {command}\n")[1].split("\n## ")[0]
    own = said("gradbus", command, "--help").partition("Options of horovodrun:")[0]  # these are in run-jobs.md
    flags = set(re.findall(r"^  (?:-\w[, ]+)?(--[a-z][a-z-]+)", own, re.MULTILINE))
    assert len(flags) > 1
    assert {flag for flag in flags if not re.search(rf"{flag}\b", section)} <= {"--help"}


def test_reference_has_all_errors(reference):
    numbers = re.findall(r"^(GB-[A-Z]\d{3} \w+)", said("gradbus", "explain"), re.MULTILINE)
    assert len(numbers) > 50
    assert numbers and all(f"\n## {number}\n" in reference["errors"] for number in numbers)
    assert reference["errors"].count("**Cause.**") == len(numbers)


def test_reference_has_all_codecs_and_options(reference):
    """Names, options and defaults of `gradbus bench codec --list`, each under its codec."""
    sections = re.split(r"^## ", reference["codecs"], flags=re.MULTILINE)
    of = {section.split("\n")[0]: section for section in sections[1:]}
    listed = said("gradbus", "bench", "codec", "--list").replace("of every codec", "Options_of_every_codec")
    codecs = re.findall(r"^(\w+).*\n((?: +.*\n)*)", listed, re.MULTILINE)
    assert len(codecs) == len(of) > 15
    for name, options in codecs:
        rows = re.findall(r"^ +(\w+)=(\S+)", options, re.MULTILINE)
        missing = [row for row in rows if "| `{}` | `{}` |".format(*row) not in of[name.replace("_", " ")]]
        assert missing == [], name
        assert of[name.replace("_", " ")].count("\n| `") == len(rows), name


def test_reference_counts_the_lines_of_front_ends(reference):
    """Every file belongs to one row, and the shared part is the rest."""
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", reference["front-ends"], re.MULTILINE)
    counts = {name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in rows}
    package = rigs.REPOSITORY / "client_lib/python/gradbus"
    files = list(package.rglob("*.py"))
    whole = [name for name in counts if not name.startswith("of it")]
    assert sum(counts[name][0] for name in whole) == len(files)
    assert sum(counts[name][1] for name in whole) == sum(len(file.read_text().splitlines()) for file in files)
    assert counts["JAX"][0] == len(list((package / "jax").glob("*.py")))
    assert all(0 < code < lines for _, lines, code in counts.values())


def test_reference_has_python_and_c(reference):
    for name in ("### allreduce", "### DistributedOptimizer", "### ElasticState", "named_parameters"):
        assert f"\n{name}" in reference["python"] or name in reference["python"]
    header = (rigs.REPOSITORY / "client_lib/include/gradbus/gradbus.h").read_text()
    functions = set(re.findall(r"GRADBUS_API[^;(]*?(gradbus_\w+)\(", header))
    assert len(functions) > 50
    assert {name for name in functions if f"{name}(" not in reference["c"]} == set()
