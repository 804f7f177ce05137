"""Checks that includes between folders point one way (see ARCHITECTURE.md). Exit status 1 if not.

Each folder lists the folders it may include from, besides itself. Generated headers of proto/ are
included as gradbus/v1/....
"""

import pathlib
import re
import subprocess
import sys

ALLOWED = {
    "common": set(),
    "proto": {"common"},
    "compression": {"common", "proto"},
    "transport": {"common", "proto"},
    "client_lib": {"common", "proto"},
    "server": {"common", "proto", "transport", "compression"},
    "worker_agent": {"common", "proto", "transport", "compression", "client_lib"},
    "cli": {"common", "proto", "transport", "compression", "client_lib", "server", "worker_agent"},
    "examples": {"client_lib"},
    "tests": None,  # may include anything
}
# Finer than folders: the library that trainers load must not grow an include of the services.
CLIENT_PROTO = {"proto/shm_layout.h", "proto/attach.h", "proto/numbers.h", "proto/chunk_plan.h",
                "proto/tensor_ids.h"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def owner(include: str) -> str | None:
    """The folder an include belongs to; None for one inside the same target (no folder)."""
    if include.startswith("gradbus/v1/"):
        return "proto"
    if include == "gradbus/gradbus.h" or include == "gradbus/gradbus.hpp":
        return "client_lib"
    first = include.split("/")[0]
    return first if first in ALLOWED else None


def problems(path: str, text: str) -> list[str]:
    """One line per include of `path` against the arrow."""
    folder = path.split("/")[0]
    allowed = ALLOWED.get(folder)
    found = []
    for include in INCLUDE.findall(text):
        target = owner(include)
        if target is None or target == folder or allowed is None:
            continue
        if target not in allowed:
            found.append(f"{path}: includes {include}, but {folder} may not see {target}")
        elif folder == "client_lib" and target == "proto" and include not in CLIENT_PROTO:
            found.append(f"{path}: includes {include}, which the client library may not see")
    return found


def main() -> int:
    """Checks every tracked C++ file, or the files named."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.cu", "*.hpp"],
        capture_output=True, text=True, check=True,
    ).stdout.split()
    found = []
    for path in sys.argv[1:] or listed:
        found += problems(path, pathlib.Path(path).read_text())
    print("\n".join(found) if found else f"include arrows: {len(listed)} files, all point one way")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
