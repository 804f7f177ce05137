"""Refuses words that this project has replaced by those of the field (docs/concepts/glossary.md).

    scripts/checks/words.py             every tracked source and page; exit status 1 when one has a retired word
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

# What is refused, what to say instead, and the files that are looked at: all, or those that match.
_CODE = r"\.(cc|h|hpp|cu|c|proto|py|pyi)$"
_CPP = r"\.(cc|h|hpp|cu|c|proto)$"
_ALL = r"\.(cc|h|hpp|cu|c|proto|py|pyi|md|txt|sh|toml)$|\.service$"
RETIRED = [
    (r"\bHeld[A-Z]\w*|\bheld_\b|\b\w*held_by\w*|\bchunks_held\b", "deferred; AsyncPs for modes of parameters", _CPP),
    (r"\b(Held|Pushed|Gathered|Owned|Summed|Merged)(Device)?Units?\b",
     "AsyncPs, PsSync, AllGather, OwnerReduce, AllReduce, SparseAllReduce", _ALL),
    (r"\b(Compressed|Device)Units?\b|\bUnitPlan\b|\bunit_(elements|plan|seed|shape)\b|kUnitElementsMax",
     "partition", _ALL),
    (r"\bExchangeMode\b|\bexchange_mode\b", "SyncMode", _ALL),
    (r"\bExchange(Memory|Id|Starts?)\b|\bclass Exchange\b", "CollectiveOperation", _ALL),
    (r"\bCell(Header|Shape|Place)?\b|\b\w*cell_offset\b|\bmake_cell\w*", "LocalReduction", _CPP),
    (r"\b(rank|first|device|shared|result|nccl)_areas?\b|\b\w*RankArea\w*|\bDeviceArea\b|\bareas_\b",
     "rank buffer", _CODE),
    (r"\b(rank's|ranks'|first|all|shared|other|local) areas?\b", "rank buffer", _ALL),
    (r"\bgradbus_(tensor_lane|lane_data)\b|\bclass Lanes\b|client_lib/src/lanes\.", "DelayedTensor with slots", _ALL),
    (r"\bMemory(Part|Kind|Options)\b|\bk(Read|Write)Memory\b(?!\()|\bmemory_(scale|part|options)_?\b|\bclass Memory\b",
     "ErrorFeedback, or residual state", _ALL),
    (r"\bcompression/memory\.|\bgradbus_(start_(read|write)|scale)_memory\b", "ErrorFeedback, or residual state", _ALL),
    (r"\b_shard_memory\b|\w*kept_parts\b|\bk(Read|Write)Kept\b|\b(reads|writes)_kept\b|\bKept(Chunk|Part)\b",
     "optimizer state", _ALL),
    (r"\b_cuda_memory\b", "cuda_ipc", r"\.(py|pyi|md)$"),
    (r"\bPullKind\b", "PsRequest; the field is ps_request", _ALL),
    (r"\b_moves\b", "data movement", r"\.(py|pyi|md)$"),
    (r"\bcome_over\b", "fail_over", _ALL),
    (r"(?<!-W)\bshadows?_?\b|\b(is|begin_as)_shadow\b", "backup replica", r"^[^/]+/.*\.(cc|h|md)$"),
    (r"\bShardRing\b|\brings_from\b", "ShardSet", _ALL),
    (r"\b(Hosted|Engine|Node|Shard)Job\b|\bShardDuty\b|\bshard_duty\w*|\b(hosted|engine|node|shard)_job(_\w+)?\.(cc|h)\b",
     "DataJob, WorkerDataJob, WorkerControlJob, PsDataJob, PsControlJobs", _ALL),
    (r"\b[Ll]obby\w*|\b\w*[Gg]uests?_?\b(?!\.sh)", "pending connection", _ALL),
    (r"\b[Ss]trangers?\w*|\w+_[Ss]trangers?\b", "pending connection; in tests intruder", _ALL),
    (r"\bclass Roll\b|\broll\(\)|\broll_\b|\bAgentCards?\b", "Membership, AgentInfo", _ALL),
    (r"\bperson\(", "describe_rank", _CPP),
    (r"\bcall_up\b|\bcalls_up\b|\bk?CallsUp\b|\bcall(s|ed)? up\b", "prefetch", _ALL),
    (r"\bTakenAhead\b|\btaken_ahead\b", "next-block statistics", _ALL),
    (r"\b[Dd]epartures?\b|\.bring\(|\bdef bring\b", "pending copy, copy_back", _ALL),
    (r"\bset_(before|after)\(0|\b(spec|reduction|packet)\.(before|after)\b", "prescale, postscale", _CPP),
]
RETIRED_FILES = re.compile(r"(^|/)(life|lobby|roll|cell|exchange)\.(cc|h)$|(^|/)_(moves|memory|shard_memory)\.py$")
SKIPPED = ("LICENSE", "scripts/checks/words.py")


def check(path: str, text: str) -> list[str]:
    """One line for each place where the file has a retired word."""
    found = [f"{path}: the file's name is retired"] if RETIRED_FILES.search(path) else []
    rules = [(re.compile(word), say) for word, say, files in RETIRED if re.search(files, path)]
    for number, line in enumerate(text.splitlines(), 1):
        for word, say in rules:
            if match := word.search(line):
                found.append(f"{path}:{number}: \"{match[0]}\" is retired; say {say}")
    return found


def main() -> int:
    """The exit status."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [name for name in names if re.search(_ALL, name) and name not in SKIPPED and Path(name).is_file()]
    found = [line for path in paths for line in check(path, Path(path).read_text(encoding="utf-8"))]
    print("\n".join(found) if found else f"words: {len(paths)} files, none has a retired word")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
