#!/usr/bin/env python3
"""Checks that a wheel needs glibc 2.36 alone, and gives it the tag that says so.

    scripts/wheel_tag.py WHEEL DIRECTORY      writes the wheel with the tag manylinux_2_36_x86_64 to DIRECTORY
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

PLATFORM = "manylinux_2_36_x86_64"
GLIBC_MAX = (2, 36)
BYTES_MAX = 60 << 20
GLIBC = re.compile(r"^(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil)\.so")


def needed(file: pathlib.Path) -> list[str]:
    """Libraries that an ELF file asks for."""
    text = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
    return re.findall(r"NEEDED +(\S+)", text)


def newest_glibc(file: pathlib.Path) -> tuple[int, ...]:
    """The newest version of glibc whose symbols it uses."""
    text = subprocess.run(["objdump", "-T", file], check=False, capture_output=True, text=True).stdout
    versions = [tuple(map(int, found.split("."))) for found in re.findall(r"\(?GLIBC_([0-9.]+)\)?", text)]
    return max(versions, default=(0,))


def problems(root: pathlib.Path) -> list[str]:
    """What keeps the files of a wheel from running on any machine with that glibc."""
    files = [f for f in root.rglob("*") if f.is_file() and f.open("rb").read(4) == b"\x7fELF"]
    inside = {file.name for file in files}
    found = []
    for file in files:
        outside = [name for name in needed(file) if name not in inside and not GLIBC.match(name)]
        found += [f"{file.relative_to(root)} needs {name}, which is not in the wheel" for name in outside]
        if newest_glibc(file) > GLIBC_MAX:
            found.append(f"{file.relative_to(root)} needs glibc {newest_glibc(file)}")
    return found


def wrong_extensions(root: pathlib.Path, wheel: str) -> list[str]:
    """Extensions for one version of CPython in a wheel for many. CMake before 3.26 does not find the stable ABI."""
    if "-abi3-" not in wheel:
        return []
    return [
        f"{file.relative_to(root)} is for one version of CPython, {wheel} for many | next: use cmake 3.26 or newer"
        for file in root.rglob("*.cpython-*.so")
    ]


def record_line(name: str, data: bytes) -> str:
    """Of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def retagged(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The wheel under its new name; WHEEL and RECORD say the same."""
    old = source.stem.rsplit("-", 1)[1]
    target = folder / f"{source.stem.rsplit('-', 1)[0]}-{PLATFORM}.whl"
    with zipfile.ZipFile(source) as old_zip, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        record = next(info for info in old_zip.infolist() if info.filename.endswith(".dist-info/RECORD"))
        lines = old_zip.read(record).decode().splitlines()
        for info in old_zip.infolist():
            if info is record:
                continue
            data = old_zip.read(info)
            if info.filename.endswith(".dist-info/WHEEL"):
                data = data.replace(old.encode(), PLATFORM.encode())
                lines = [record_line(info.filename, data) if x.startswith(info.filename + ",") else x for x in lines]
            new.writestr(info, data, zipfile.ZIP_DEFLATED, 9)
        new.writestr(record, "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED, 9)
    return target


def main() -> int:
    """1: the wheel would not run elsewhere."""
    source, folder = map(pathlib.Path, sys.argv[1:3])
    with tempfile.TemporaryDirectory() as root, zipfile.ZipFile(source) as wheel:
        wheel.extractall(root)
        found = problems(pathlib.Path(root)) + wrong_extensions(pathlib.Path(root), source.name)
    target = retagged(source, folder) if not found else source
    if target.stat().st_size > BYTES_MAX:
        found.append(f"{target.name} has {target.stat().st_size >> 20} MiB; at most {BYTES_MAX >> 20} are allowed")
    for problem in found:
        print(f"wheel_tag.py: {problem}", file=sys.stderr)
    if not found:
        print(target)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
