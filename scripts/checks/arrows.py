"""Checks that includes between folders point one way (see ARCHITECTURE.md). Exit status 1 if not.

Three rules:

1. A folder includes only from the folders that its row allows, besides itself. A row is for its
   subfolders too, unless they have a row of their own.
2. Folders have no circle, subfolders included. A source file (not a header) of a folder may include
   from the folder's own subfolders: registries and factories do. That is no arrow.
3. Rooms of CLOCKED do not read the machine's clock. They ask their transport, or get `now`, so that
   a test can drive whole nodes (common/clock.h).

Generated headers of proto/ are included as gradbus/v1/....
"""

import collections
import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "common": {"common"},
    "proto": {"common"},
    "compression": {"common", "proto"},
    "transport": {"common", "proto"},
    "shared_memory": {"common", "proto"},
    "client_lib": {"common", "proto", "shared_memory"},
    "data_plane": {"common", "proto", "compression", "transport", "shared_memory"},
    "server": {"common", "proto", "compression", "transport"},
    "server/parameter_server": {"common", "proto", "compression", "transport", "shared_memory",
                                "data_plane"},
    "worker_agent": {"common", "proto", "compression", "transport", "shared_memory", "data_plane",
                     "server/parameter_server", "worker_agent/gpu"},
    "worker_agent/gpu": {"common", "proto", "compression", "shared_memory"},
    "cli": {"common", "proto", "compression", "transport", "shared_memory", "client_lib",
            "server/scheduling", "server/status", "worker_agent/gpu"},
    "examples": {"client_lib"},
    "tests": None,  # may include anything
}
# Finer than folders: the library that trainers load must not grow an include of the services.
CLIENT_PROTO = {"proto/shm_layout.h", "proto/attach.h", "proto/numbers.h", "proto/chunk_plan.h",
                "proto/tensor_ids.h", "proto/tensor_names.h", "proto/trace.h", "proto/budget.h"}
CLOCKED = ("data_plane", "transport", "worker_agent/compressed", "worker_agent/data", "worker_agent/job",
           "server/parameter_server", "server/coordinator/jobs", "server/coordinator/members",
           "server/coordinator/planning", "server/coordinator/questions")
# One measures the machine itself, the other needs any number that differs.
UNCLOCKED = {"data_plane/reduce_rate.cc", "transport/tcp/hello.cc"}
READS_CLOCK = re.compile(r"\bmonotonic_now\(|\bclock_gettime\(|\bsteady_clock::now\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
Arrows = dict[tuple[str, str], str]  # (from folder, to folder) -> an include that makes it


def folder_of(path: str) -> str:
    """The folder of a file."""
    return path.rpartition("/")[0]


def owner(include: str) -> str | None:
    """The folder an include belongs to; None for one inside the same target (no folder)."""
    if include.startswith("gradbus/v1/"):
        return "proto"
    if include in ("gradbus/gradbus.h", "gradbus/gradbus.hpp"):
        return "client_lib"
    return folder_of(include) if include.split("/")[0] in ALLOWED else None


def row(folder: str) -> str:
    """The longest key of ALLOWED that `folder` is in."""
    while folder not in ALLOWED:
        folder = folder_of(folder)
    return folder


def inside(folder: str, parent: str) -> bool:
    """Whether it is that folder, or one below it."""
    return folder == parent or folder.startswith(parent + "/")


def problems(path: str, text: str) -> list[str]:
    """One line per include of `path` against rule 1."""
    own = row(folder_of(path))
    allowed = ALLOWED[own]
    found = []
    for include in INCLUDE.findall(text):
        target = owner(include)
        if target is None or allowed is None or row(target) == own:
            continue
        if not any(inside(target, other) for other in allowed):
            found.append(f"{path}: includes {include}, but {own} may not see {row(target)}")
        elif own in ("client_lib", "shared_memory") and target == "proto" and include not in CLIENT_PROTO:
            found.append(f"{path}: includes {include}, which the client library may not see")
    return found


def clock_reads(path: str, text: str) -> list[str]:
    """One line if `path` is against rule 3."""
    clocked = path not in UNCLOCKED and any(inside(folder_of(path), room) for room in CLOCKED)
    if clocked and READS_CLOCK.search(text):
        return [f"{path}: reads the machine's clock; call now() of the transport, or take `now` as an argument"]
    return []


def arrows(path: str, text: str) -> Arrows:
    """The arrows of `path` for rule 2."""
    own = folder_of(path)
    found = {}
    for include in INCLUDE.findall(text):
        target = owner(include)
        down = target is not None and inside(target, own) and not path.endswith(".h")
        if target is not None and target != own and not down:
            found[own, target] = f"{path} includes {include}"
    return found


def circles(of: Arrows) -> list[str]:
    """One line per arrow of a circle of folders: the arrows whose ends reach each other."""
    onward = collections.defaultdict(set)
    for one, other in of:
        onward[one].add(other)

    def reached(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            for folder in onward[left.pop()] - seen:
                seen.add(folder)
                left.append(folder)
        return seen

    every = {folder: reached(folder) for folder in sorted({end for ends in of for end in ends})}
    return [f"{why}: an arrow of a circle of folders, {one} and {other}"
            for (one, other), why in sorted(of.items()) if one in every[other]]


def main() -> int:
    """Checks every tracked C++ file; or, of the files named, the first rule alone."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.cu", "*.hpp"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    found, all_arrows = [], {}
    for path in sys.argv[1:] or [path for path in listed if pathlib.Path(path).exists()]:
        text = pathlib.Path(path).read_text()
        found += problems(path, text) + clock_reads(path, text)
        if not path.startswith("tests/"):
            all_arrows |= arrows(path, text)
    found += circles(all_arrows)
    print("\n".join(found) if found else f"include arrows: {len(listed)} files, all point one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
