"""The checks of scripts/check.sh that need no build: format, include arrows, sizes, lint, words, prose and the site."""

import subprocess
import sys

import pytest
import rig as rigs

sys.path.insert(0, str(rigs.REPOSITORY / "scripts/checks"))

import class_sizes  # noqa: E402
import code_sizes  # noqa: E402
import python_imports  # noqa: E402
import shared_names  # noqa: E402


@pytest.mark.timeout(300)
def test_fast_checks():
    command = ["scripts/check.sh", "format", "arrows", "sizes", "python", "words", "prose", "site"]
    done = subprocess.run(command, cwd=rigs.REPOSITORY, text=True, timeout=280, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("back", [
    "from . import first",
    "from .first import f",
    "import package.first",
    "def g():\n    from .first import f",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .first import f",
    "from .room import third",
])  # fmt: skip
def test_every_import_circle_is_found(tmp_path, back):
    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("from .first import f\n")
    (package / "first.py").write_text("from .second import g\n\ndef f(): pass\n")
    (package / "room/__init__.py").write_text("")
    (package / "room/third.py").write_text("from ..first import f\n")
    (package / "second.py").write_text("g = 1\n")
    imports = python_imports.imports_of(python_imports.modules_of(package))
    assert python_imports.problems(imports) == []
    (package / "second.py").write_text(back + "\n")
    imports = python_imports.imports_of(python_imports.modules_of(package))
    first, *places = python_imports.problems(imports)
    assert first.startswith("import circle: package.first -> package.second -> "), first
    assert all(str(package) in place for place in places) and len(places) == (3 if "room" in back else 2), places


def test_a_large_class_is_found():
    size = class_sizes.Size
    small = {"Small": size(25, 15), "Record": size(1, 99)}
    assert class_sizes.complaints(small, {}) == []
    (line,) = class_sizes.complaints({**small, "Large": size(26, 3)}, {})
    assert line.startswith("too large: Large has 26 methods and 3 members, and may have 25 and 15: "), line
    assert class_sizes.complaints({"Large": size(26, 3)}, {"Large": size(26, 3)}) == []
    (line,) = class_sizes.complaints({"Large": size(27, 3)}, {"Large": size(26, 3)})
    assert "may have 26 and 3" in line
    (line,) = class_sizes.complaints(small, {"Small": size(30, 3)})
    assert line.startswith("not large: Small: "), line


def test_a_crowded_folder_is_found():
    one = [f"room/{letter}.{kind}" for letter in "abcdefghijklmnopqrstuvwxy" for kind in ("h", "cc")]
    assert code_sizes.crowded(code_sizes.folder_sizes(one), {}) == []
    (line,) = code_sizes.crowded(code_sizes.folder_sizes([*one, "room/z.py", "room/inner/a.py"]), {})
    assert line.startswith("crowded: 26 sources: room: "), line
    assert code_sizes.crowded({"room": 26}, {"room": "why"}) == []
    (line,) = code_sizes.crowded({"room": 25}, {"room": "why"})
    assert line.startswith("not crowded: room: "), line


@pytest.mark.parametrize("name", ["setup", "test", "quickstart", "wheel", "bundle", "packages", "boot_test", "site"])
def test_scripts_explain_themselves_and_refuse_what_they_do_not_know(name):
    """At once: none of them begins to install or to build."""
    for word, status in (("--help", 0), ("--nope", 2)):
        command = [f"scripts/{name}.sh", word]
        done = subprocess.run(command, cwd=rigs.REPOSITORY, text=True, capture_output=True, check=False, timeout=10)
        assert done.returncode == status
        assert f"scripts/{name}.sh" in done.stdout + done.stderr, done
        assert ("unknown option --nope" in done.stderr) == (status == 2)


def test_names_that_change_their_meaning_beside_other_files_are_found(tmp_path):
    (tmp_path / "public.h").write_text("namespace gradbus { inline constexpr long kSecond = 1000; }")
    for name, text in (("one", "constexpr int kSecond = 1; int half(int x) { return x / 2; }"),
                       ("two", "double half(double x) { return x / 2; }")):  # fmt: skip
        include = f'#include "{tmp_path}/public.h"\n'
        (tmp_path / f"{name}.cc").write_text(f"{include}namespace gradbus {{ namespace {{ {text} }} }}")
    paths = [str(tmp_path / name) for name in ("one.cc", "two.cc", "public.h")]
    hidden, declared = {}, {}
    for path, name, kind, anonymous in shared_names.names(paths):
        (hidden if anonymous else declared).setdefault(path, {})[name] = kind
    found = list(shared_names.hiding("target", set(paths[:2]), hidden, declared))
    assert len(found) == 2 and "kSecond hides that of" in found[0] and "half() is also in" in found[1], found
