"""A throw-away virtual machine whose kernel has what a container's host may lack: RDMA over Ethernet
(soft-RoCE, rdma_rxe) and netem.

    python3 tests/vm/machine.py [--seconds N] [--count-instructions] -- COMMAND...

QEMU emulates the processor, so it runs wherever QEMU does (and some ten times slower). The kernel is
Debian's. The root file system is this machine's own, read-only. Inside, /tmp, /run and /dev/shm are new
and writable. The current folder and the repository are visible at their usual paths, also below those
three. A file written to /run/out is there afterwards. guest.sh describes the network. The command runs in
the current folder; its exit status is this program's, 124 when it took too long.

With --count-instructions it has one processor, whose clock goes on by a nanosecond with each instruction,
and jumps to the next event where there are none: every CPU time in there, of the kernel's counting, is a
number of instructions.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing

HERE = pathlib.Path(__file__).resolve().parent
BUSYBOX = pathlib.Path("/bin/busybox")
QEMU = "qemu-system-x86_64"
TOOLS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# In the order of need; modprobe adds what each depends on. rdma_rxe asks for its checksum by name,
# so crc32_generic is nobody's dependency.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "veth", "sch_netem", "crc32_generic", "rdma_rxe", "ib_uverbs")
TIMED_OUT = 124
# The emulated kernel may stand still before its first line; that was seen once, and it takes 20 s on a busy host.
START_SECONDS = 120.0
STARTS = 3
# init.sh mounts new file systems over these folders of the host.
HIDDEN = ("/tmp", "/run", "/dev")


@dataclasses.dataclass
class Outcome:
    """How a command in the machine ended."""

    status: int
    output: str
    console: str


def kernel() -> pathlib.Path | None:
    """The newest kernel that is installed."""
    found = sorted(pathlib.Path("/boot").glob("vmlinuz-*"))
    return found[-1] if found else None


def why_not() -> str:
    """What is missing here to start the machine; empty when nothing is."""
    if shutil.which(QEMU) is None:
        return "qemu-system-x86 is not installed"
    if kernel() is None:
        return "linux-image-amd64 is not installed"
    if not BUSYBOX.exists():
        return "busybox-static is not installed"
    return "" if shutil.which("modprobe", path=TOOLS) else "kmod is not installed"


def module_files(version: str) -> list[pathlib.Path]:
    """The files of MODULES and of all that they depend on, in the order in which to load them."""
    files: dict[pathlib.Path, None] = {}
    for module in MODULES:
        command = [shutil.which("modprobe", path=TOOLS), "--set-version", version, "--show-depends", module]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            if line.startswith("insmod "):
                files[pathlib.Path(line.split()[1])] = None
    return list(files)


def archive(entries: dict[str, tuple[int, bytes]]) -> bytes:
    """A cpio archive ("newc") of {path: (mode, content)}."""
    parts = []
    for number, (path, (mode, content)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))], 1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        parts += [head, b"\0" * (-len(head) % 4), content, b"\0" * (-len(content) % 4)]
    return b"".join(parts)


def initial_files(version: str) -> bytes:
    """What the kernel starts with: busybox, the modules and init.sh."""
    folder, program, plain = 0o040755, 0o100755, 0o100644
    entries = {name: (folder, b"") for name in ("bin", "modules", "proc", "sys", "dev", "host", "root")}
    entries["bin/busybox"] = (program, BUSYBOX.read_bytes())
    entries["init"] = (program, (HERE / "init.sh").read_bytes())
    modules = module_files(version)
    for path in modules:
        entries[f"modules/{path.name}"] = (plain, path.read_bytes())
    entries["modules/order"] = (plain, "\n".join(path.name for path in modules).encode() + b"\n")
    return gzip.compress(archive(entries), compresslevel=1)


def qemu_command(image: pathlib.Path, initial: pathlib.Path, out: pathlib.Path, counting: bool) -> list[str]:
    """Two processors, 3 GiB, no network card, two shared folders, the console on stdout."""
    processors = (["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"] if counting else
                  ["-accel", "tcg,thread=multi", "-smp", "2"])
    # no_timer_check: on a busy host the timer that the kernel tries at its start may come too late, and it panics.
    words = [QEMU, *processors, "-cpu", "max,la57=off", "-m", "3072", "-nodefaults",
             "-nographic", "-serial", "stdio", "-no-reboot", "-kernel", str(image), "-initrd", str(initial),
             "-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check"]
    for tag, path, options in (("hostroot", pathlib.Path("/"), ",readonly=on,multidevs=remap"), ("out", out, "")):
        escaped = str(path).replace(",", ",,")
        words += ["-fsdev", f"local,id={tag},path={escaped},security_model=none{options}",
                  "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    return words


def run_once(words: list[str], console: typing.IO[str], begun: pathlib.Path, seconds: float) -> bool:
    """Runs a machine to its end, or for `seconds`. False: its guest.sh has not begun, in START_SECONDS at most."""
    begun.unlink(missing_ok=True)
    start = min(START_SECONDS, seconds)
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT) as process:
        for limit in (start, seconds - start):
            try:
                process.wait(limit)
                return begun.exists()
            except subprocess.TimeoutExpired:
                if not begun.exists():
                    break
        process.kill()
    print(f"\nnot done after {seconds:g} s" if begun.exists() else "\nnot started", file=console, flush=True)
    return begun.exists()


def hidden_folders(folders: typing.Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """The folders that the machine has to mount again, because they are below one of HIDDEN."""
    resolved = {folder.resolve() for folder in folders}
    return sorted(folder for folder in resolved if any(folder.is_relative_to(top) for top in HIDDEN))


def run(command: list[str], out: pathlib.Path, seconds: float, counting: bool = False,
        folders: typing.Iterable[pathlib.Path] = ()) -> Outcome:
    """Runs `command` in a new machine; what it wrote to /run/out is in `out`. `counting`: instructions.
    `folders`: what the command needs besides the current folder and the repository."""
    image = kernel()
    here = pathlib.Path.cwd()
    (out / "command").write_text(f"cd {shlex.quote(str(here))} || exit\n{shlex.join(command)}\n")
    shown = hidden_folders([here, HERE.parents[1], *folders])
    (out / "folders").write_text("".join(f"{folder}\n" for folder in shown))
    shutil.copy(HERE / "guest.sh", out / "guest.sh")
    status = out / "status"
    status.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="gradbus-vm-") as scratch:
        initial = pathlib.Path(scratch) / "initial.gz"
        initial.write_bytes(initial_files(image.name.removeprefix("vmlinuz-")))
        console = pathlib.Path(scratch) / "console"
        words = qemu_command(image, initial, out, counting)
        with console.open("w") as file:
            any(run_once(words, file, out / "begun", seconds) for _ in range(STARTS))
        said = console.read_text(errors="replace")
    output = out / "output"
    return Outcome(int(status.read_text()) if status.exists() else TIMED_OUT,
                   output.read_text(errors="replace") if output.exists() else "", said)


def main() -> int:
    """The command line above."""
    parser = argparse.ArgumentParser(description="Runs a command in a virtual machine with soft-RoCE.")
    parser.add_argument("--seconds", type=float, default=300, help="until it is given up")
    parser.add_argument("--count-instructions", action="store_true", help="a nanosecond in there is an instruction")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if missing := why_not():
        print(f"no virtual machine: {missing}; scripts/setup.sh installs it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gradbus-vm-out-") as out:
        outcome = run(options.command, pathlib.Path(out), options.seconds, options.count_instructions)
    print(outcome.output, end="")
    if outcome.status != 0:
        print(outcome.console, file=sys.stderr)
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
