"""Writes what scripts/gpu.sh found: gpu_report.py RESULTS OUT makes OUT.md and OUT.json of the files in RESULTS."""

import json
import pathlib
import subprocess
import sys

QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]


def said(command: list[str]) -> str:
    """What a command prints, or nothing where it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def tests_of(file: pathlib.Path, prefix: str) -> list[dict[str, object]]:
    """Each test of such suites of a GoogleTest report: passed, failed or skipped."""
    if not file.exists():
        return []
    suites = json.loads(file.read_text())["testsuites"]
    rows = [row for one in suites if one["name"].startswith(prefix) for row in one["testsuite"]]
    return [{"test": f"{row['classname']}.{row['name']}",
             "result": "failed" if row.get("failures") else row["result"].lower().replace("completed", "passed"),
             "seconds": float(row["time"].rstrip("s"))} for row in rows]


def collect(results: pathlib.Path) -> dict[str, object]:
    """All that was found."""
    bench, why = results / "bench.json", results / "gpu.log"
    return {"commit": said(["git", "describe", "--always", "--dirty"]),
            "gpus": said(QUERY).splitlines(),
            "no_gpu": why.read_text().strip() if why.exists() else "",
            "processor": tests_of(results / "processor.json", "Cuda"),
            "device": tests_of(results / "device.json", "Cuda"),
            "bench": json.loads(bench.read_text()) if bench.exists() else []}


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


def markdown(found: dict) -> str:
    """The report, for people."""
    lines = [f"# Kernels of codecs on a GPU, commit {found['commit']}", ""]
    lines += found["gpus"] or ["No GPU was used: " + (found["no_gpu"] or "nvidia-smi is not there") + "."]
    for title, key in (("On the processor", "processor"), ("On the GPU", "device")):
        lines += ["", f"## {title}, against the codecs"]
        lines += table(["test", "result", "s"],
                       [[row["test"], row["result"], f"{row['seconds']:.1f}"] for row in found[key]])
    lines += ["", "## Timed", ""]
    if not found["bench"]:
        return "\n".join([*lines, "Nothing was timed.", ""])
    titles = ["codec", "encode GB/s", "of bound", "decode + add GB/s", "of bound", "bits/element", "error"]
    rows = [[row["codec"], f"{row['encode_gbs']:.1f}", f"{row['encode_bound']:.0%}", f"{row['decode_gbs']:.1f}",
             f"{row['decode_bound']:.0%}", f"{row['bits_per_element']:.3f}", f"{row['error']:.4f}"]
            for row in found["bench"]]
    return "\n".join([*lines, f"{found['bench'][0]['elements']} elements of f32; GB/s of input.", "",
                      *table(titles, rows), ""])


def main() -> None:
    """RESULTS OUT."""
    results, out = map(pathlib.Path, sys.argv[1:3])
    found = collect(results)
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    out.with_suffix(".md").write_text(markdown(found))


if __name__ == "__main__":
    main()
