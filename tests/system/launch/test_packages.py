"""Debian packages of scripts/packages.sh: the same bytes each time, and clean for lintian. Manual pages, completions
and the SBOM agree with the programs and with dpkg. In two booted systems they are installed, used, upgraded and purged.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import bare
import pytest
import rig as rigs
import shells

sys.path.insert(0, str(rigs.REPOSITORY / "tests/boot"))
import page_commands

NAMES = ("gradbus", "gradbus-agent", "gradbus-server", "libgradbus0", "libgradbus-dev", "python3-gradbus")
SHELLS = {"bash": "usr/share/bash-completion/completions/gradbus", "zsh": "usr/share/zsh/vendor-completions/_gradbus",
          "fish": "usr/share/fish/vendor_completions.d/gradbus.fish"}  # fmt: skip

pytestmark = pytest.mark.timeout(600)


def run(*words, **more) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **more)
    assert done.returncode == 0, (words, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def build(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """{name: file} of one run."""
    run(rigs.REPOSITORY / "scripts/packages.sh", "--no-build")
    made = rigs.REPOSITORY / "build/packages"
    copies = {file.name.split("_")[0]: pathlib.Path(shutil.copy(file, folder)) for file in made.glob("*.deb")}
    copies["sbom"] = pathlib.Path(shutil.copy(made / "gradbus.spdx.json", folder))
    return copies


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "patchelf"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing")
    if not (rigs.REPOSITORY / "build/release/bin/gradbus-nccl").exists():
        pytest.skip("build/release is not built")
    return build(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def tree(packages, tmp_path_factory):
    """All packages, unpacked into one folder."""
    folder = tmp_path_factory.mktemp("root")
    for name in NAMES:
        run("dpkg-deb", "--extract", packages[name], folder)
    return folder


def test_two_builds_give_the_same_bytes(packages, tmp_path):
    again = build(tmp_path)
    assert set(packages) == {*NAMES, "sbom"} == set(again)
    assert [name for name in again if again[name].read_bytes() != packages[name].read_bytes()] == []


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is missing")
def test_lintian_has_nothing_to_say(packages):
    said = subprocess.run(["lintian", "--fail-on", "error,warning", *(packages[name] for name in NAMES)],
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert (said.returncode, said.stdout) == (0, ""), said.stderr


def test_fields_settings_and_scripts(packages):
    depends = {name: run("dpkg-deb", "-f", packages[name], "Depends") for name in NAMES}
    version = run("dpkg-deb", "-f", packages["gradbus"], "Version").strip()
    for name in ("gradbus", "libgradbus-dev", "python3-gradbus"):
        assert f"libgradbus0 (= {version})" in depends[name], depends[name]
    assert re.fullmatch(r"libc6 \(>= [\d.]+\)\n", depends["libgradbus0"])
    assert "libgrpc++1.51" in depends["gradbus-agent"] and "libgrpc" not in depends["python3-gradbus"]
    for name, files in (("gradbus-agent", ["agent"]), ("gradbus-server", ["server", "shard"])):
        listed = run("dpkg-deb", "--info", packages[name], "conffiles").split()
        assert listed == [f"/etc/gradbus/{file}.toml" for file in files]


def test_scripts_are_understood(packages, tmp_path):
    for name in NAMES:
        run("dpkg-deb", "--control", packages[name], tmp_path / name)
        for script in ("postinst", "prerm", "postrm"):
            if (tmp_path / name / script).exists():
                run("sh", "-n", tmp_path / name / script)
    assert not (tmp_path / "libgradbus0/postinst").exists(), "ldconfig is a trigger"
    assert (tmp_path / "libgradbus0/triggers").read_text() == "activate-noawait ldconfig\n"


@pytest.mark.parametrize("program", ["gradbus-agent", "gradbus-server"])
def test_settings_are_taken_by_the_packed_programs(tree, program):
    """The files of /etc/gradbus have no unknown key; programs run with the libraries of the system."""
    of_server = [("server", []), ("shard", ["--role=shard"])]
    for file, words in [("agent", [])] if program == "gradbus-agent" else of_server:
        said = run(tree / "usr/bin" / program, *words, "--config", tree / f"etc/gradbus/{file}.toml", "--print-config")
        assert f"{file}.toml" in said, said


def test_the_python_module_uses_the_library_of_its_package(tree):
    module = next((tree / "usr/lib/python3/dist-packages/gradbus").glob("_core.*.so"))
    headers = run("objdump", "-p", module)
    assert "NEEDED               libgradbus.so.0" in headers and "PATH" not in headers
    assert not list(module.parent.glob("libgradbus*"))
    if shutil.which("/usr/bin/python3.11"):
        env = {**os.environ, "LD_LIBRARY_PATH": str(tree / "usr/lib"), "PYTHONPATH": str(module.parents[1])}
        code = "import gradbus; gradbus.init(); print(gradbus.rank(), gradbus.size(), gradbus.__file__)"
        said = run("/usr/bin/python3.11", "-c", code, env=env, cwd=tree).split()
        assert said == ["0", "1", str(module.parent / "__init__.py")]


# ---- manual pages and completions: compared with what the programs say of themselves


def shown_options(program: pathlib.Path, *words: str) -> set[str]:
    """Long options that begin a line of --help. Those that only horovodrun's users know are not completed."""
    own = run(program, *words, "--help").partition("Options of horovodrun:")[0]
    return set(re.findall(r"(?m)^  (?:-\w,)?(--[a-z][\w-]*)", own))


def commands() -> list[str]:
    help_text = run(rigs.BIN / "gradbus", "--help")
    return re.findall(r"(?m)^  ([a-z]+) {2,}", help_text[help_text.index("ubcommands") :])


def manual(tree: pathlib.Path, name: str, section: int) -> str:
    text = run("gzip", "-dc", tree / f"usr/share/man/man{section}/{name}.{section}.gz")
    return text.replace("\\-", "-")


def test_manual_pages_have_all_options(tree):
    for program in ("gradbus-agent", "gradbus-server"):
        missing = shown_options(rigs.BIN / program) - set(re.findall(r"\\fB(--[\w-]+)", manual(tree, program, 8)))
        assert missing == set(), program
    names = commands()
    assert {"run", "status", "doctor"} <= set(names)
    for name in names:
        page = manual(tree, f"gradbus-{name}", 1)
        missing = shown_options(rigs.BIN / "gradbus", name) - set(re.findall(r"\\fB(--[\w-]+)", page))
        assert missing - {"--np"} == set(), name  # that one is written -np


def complete_bash(file: pathlib.Path, *words: str) -> list[str]:
    script = f'source {file}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradbus; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return run("bash", "-c", script, "bash", *words).split()


def test_bash_completes_commands_and_options(tree):
    file = tree / SHELLS["bash"]
    assert sorted(complete_bash(file, "gradbus", "")) == sorted([*commands(), "--help", "--version"])
    assert complete_bash(file, "gradbus", "st") == ["status", "stop"]
    assert complete_bash(file, "gradbus", "run", "--sched") == ["--schedule"]
    assert complete_bash(file, "gradbus-agent", "--coord") == ["--coordinator"]
    assert set(complete_bash(file, "gradbus", "doctor", "--")) == {"--json", "--help"}
    assert complete_bash(file, "gradbus", "run", "--", "--sched") == []


def long_options(program: str) -> set[str]:
    """Of a daemon or "gradbus COMMAND"; that one is written -np."""
    name, *words = program.split()
    return shown_options(rigs.BIN / name, *words) - {"--np"}


def programs() -> list[str]:
    return ["gradbus-agent", "gradbus-server", *(f"gradbus {name}" for name in commands())]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is missing")
def test_zsh_completes_commands_and_options(tree):
    """In a terminal, with the Tab key."""
    with shells.zsh((tree / SHELLS["zsh"]).parent) as zsh:
        assert zsh.completed("gradbus dr") == "gradbus drain"
        assert zsh.completed("gradbus run --sched") == "gradbus run --schedule"
        assert zsh.completed("gradbus-agent --coord") == "gradbus-agent --coordinator"
        assert zsh.completed("gradbus run -- --sched") == "gradbus run -- --sched"
        assert re.findall(r"(?m)^(\w+) +-- ", zsh.offered("gradbus st")) == ["status", "stop"]
        for program in programs():
            offered = zsh.offered(f"{program} --")
            assert "_arguments:" not in offered, offered
            missing = long_options(program) - set(re.findall(r"--[a-z][\w-]*", offered))
            assert missing == set(), program


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is missing")
def test_fish_completes_commands_and_options(tree):
    def completed(*lines: str) -> list[list[str]]:
        """The words that fish offers for each command line."""
        asks = "; ".join(f"complete -C '{line}'; echo ==" for line in lines)
        said = run("fish", "--no-config", "-c", f"source {tree / SHELLS['fish']}; {asks}", cwd=tree / "etc")
        return [[row.split("\t")[0] for row in part.splitlines() if row] for part in said.split("==\n")[:-1]]

    assert completed("gradbus dr", "gradbus run --sched", "gradbus-agent --coord", "gradbus run -- --sched") == [
        ["drain"], ["--schedule"], ["--coordinator"], []]  # fmt: skip
    assert sorted(completed("gradbus ")[0]) == sorted(commands())
    for program, offered in zip(programs(), completed(*(f"{program} --" for program in programs()))):
        assert long_options(program) - set(offered) == set(), program


# ---- the list of libraries


def test_the_sbom_agrees_with_dpkg(packages):
    text = json.loads(packages["sbom"].read_text())
    versions = {package["name"]: package["versionInfo"] for package in text["packages"]}
    assert text["spdxVersion"] == "SPDX-2.3" and {"gradbus", "libgrpc++1.51", "libssl3", "libc6"} <= set(versions)
    for name in ("libgrpc++1.51", "libssl3", "libprotobuf32"):
        assert versions[name] == run("dpkg-query", "-W", "-f", "${Version}", name)
    ids = [package["SPDXID"] for package in text["packages"]]
    assert len(ids) == len(set(ids))
    related = {relation["relatedSpdxElement"] for relation in text["relationships"]}
    assert related == set(ids)
    needed = run("ldd", rigs.BIN / "gradbus-agent")
    assert "libgrpc++" in needed


# ---- the life of the packages, in two systems that systemd boots

STEPS = ("the second system is up", "packages are installed", "a user, and nothing enabled",
         "coordinator and agent start", "the token belongs to the daemons", "they keep running",
         "the socket is closed to others",
         "two ranks train the digits", "a user outside the group is refused",
         "a hung agent comes back, on the second node", "two nodes with one token",
         "four ranks on two nodes train the digits", "metrics",
         "job, rank and code are fields of the journal", "commands of pages for operators",
         "a reload applies settings under a job", "a reload takes a new token under a job",
         "commands of the runbook", "drop-ins for GPUs and RDMA", "a shard starts", "a killed agent comes back",
         "two ranks train after it",
         "a drained node is upgraded, and takes jobs again", "the node goes back to the older packages",
         "an upgrade of everything restarts what runs and keeps settings",
         "four ranks train after the upgrade", "removal stops the daemons and keeps settings",
         "purging leaves nothing")  # fmt: skip


def why_no_boot() -> str:
    if os.getuid() != 0:
        return "not root"
    if shutil.which("systemd-nspawn") is None:
        return "systemd-container is not installed"
    if not (rigs.REPOSITORY / "build/sshd/usr/sbin/sshd").exists():
        return "sshd is missing: run scripts/setup.sh --frameworks"
    return "" if pathlib.Path("/usr/lib/python3/dist-packages/torch").exists() else "python3-torch is not installed"


@pytest.mark.skipif(why_no_boot() != "", reason=why_no_boot())
def test_install_use_upgrade_and_purge_in_booted_systems(packages):
    done = subprocess.run([rigs.REPOSITORY / "scripts/boot_test.sh"], capture_output=True, text=True, timeout=570,
                          check=False)  # fmt: skip
    passed = re.findall(r"^ok: (.*) \(\d+ s\)$", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert [step for step in STEPS if step not in passed] == [], done.stdout


ON_A_BARE_ROOT = """
set -eu
for tool in cc gcc cmake; do ! command -v $tool; done
find / -xdev -not -path "/tmp/*" | sort >/tmp/before
apt-get -qq update
apt-get -qq install --yes --no-install-recommends /packages/*.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
echo installed
gradbus-agent --version && gradbus-server --version && zcat /usr/share/man/man8/gradbus-agent.8.gz | head -1
gradbus run -np 2 --agents 2 --embedded --no-prefix -- python3 -c '
import gradbus, array
gradbus.init()
values = array.array("d", [gradbus.rank() + 1.0])
gradbus.allreduce_(values, op=gradbus.Sum)
print("sum", values[0])'
apt-get -qq purge --yes gradbus gradbus-agent gradbus-server libgradbus0 libgradbus-dev python3-gradbus >/tmp/log 2>&1
find / -xdev -name "*gradbus*" -not -path "/tmp/*" -not -path "/var/lib/apt/*"
echo purged
"""


def test_a_bare_root_installs_and_purges_them(packages):
    """Debian's smallest system, by debootstrap: apt finds all that they need, and they run."""
    command = ["systemd-nspawn", "--quiet", "--volatile=overlay", "--register=no", "--keep-unit", "--link-journal=no",
               "--pipe", f"--bind-ro={packages['gradbus'].parent}:/packages", f"--directory={bare.root()}",
               "sh", "-c", ON_A_BARE_ROOT]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
    if "installed" not in done.stdout and "Temporary failure resolving" in done.stdout + done.stderr:
        pytest.skip("no network for apt")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines.count("sum 3.0") == 2 and lines[-1] == "purged", done.stdout
    assert not [line for line in lines if line.startswith("/")], done.stdout


def test_blocks_left_to_the_booted_systems_are_run_there():
    """Each heading with such blocks is named in the steps: as a whole, or each block by its number."""
    steps = "".join(file.read_text() for file in (rigs.REPOSITORY / "tests/boot").glob("*.sh"))
    found = 0
    for page in (rigs.REPOSITORY / "docs").rglob("*.md"):
        text = page.read_text()
        sections = re.split(r"(?m)^## ", text)
        for part in sections[1:]:
            blocks = page_commands.left_to_boot(part)
            found += len(blocks)
            heading = part.splitlines()[0]
            numbered = [f'{page.stem} "{heading}#{number}"' for number in range(1, len(blocks) + 1)]
            assert f'{page.stem} "{heading}"' in steps or all(words in steps for words in numbered), (page, heading)
        assert not page_commands.left_to_boot(sections[0]), page
        assert text.count("scripts/boot_test.sh runs it") == len(page_commands.left_to_boot(text)), page
    assert found >= 16
