"""Writes what scripts/gpu.sh found: gpu_report.py RESULTS OUT makes OUT.md and OUT.json of the files in RESULTS."""

import json
import pathlib
import subprocess
import sys

STEP_TIMES = ("step_ms_median", "step_ms_alone")
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
            "bench": json.loads(bench.read_text()) if bench.exists() else [],
            "sums": sums_of(results), "steps": steps_of(results)}


def table(titles: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of Markdown."""
    return [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]


def sums_of(results: pathlib.Path) -> list[dict[str, object]]:
    """Rows of `gradbus bench all_reduce --memory cuda`, with the way in which memory was shared."""
    files = sorted(results.glob("sums-*.json"))
    return [{"sharing": file.stem.partition("-")[2], **row} for file in files for row in json.loads(file.read_text())]


def steps_of(results: pathlib.Path) -> list[dict[str, object]]:
    """Results of ResNet-50: who exchanged on how many agents, and what the program printed."""
    rows = []
    for file in sorted(results.glob("step-*.json")):
        _, name, agents = file.stem.split("-")
        rows.append({"exchange": name, "agents": int(agents), **json.loads(file.read_text() or "{}")})
    return rows


def steps_table(rows: list[dict]) -> list[str]:
    """Times of training steps."""
    shown = [[row["exchange"], str(row["agents"]), *(f"{row.get(name, float('nan')):.1f}" for name in STEP_TIMES)]
             for row in rows]
    return table(["gradients", "nodes", "step, ms", "alone, ms"], shown)


def sums_table(rows: list[dict]) -> list[str]:
    """Times of sums between two processes and their agent on one GPU."""
    titles = ["sharing", "MiB", "us, median", "GB/s", "wrong"]
    return table(titles, [[row["sharing"], f"{row['size'] >> 20}", f"{row['time_p50']:.0f}", f"{row['algbw']:.1f}",
                           str(row["#wrong"])] for row in rows])


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
    lines += [f"{found['bench'][0]['elements']} elements of f32; GB/s of input.", "", *table(titles, rows), ""]
    lines += ["## Sums of two ranks on one GPU", "", *sums_table(found["sums"]), ""]
    lines += ["## Training steps: ResNet-50, two ranks on one GPU", "", *steps_table(found["steps"]), ""]
    return "\n".join(lines)


def main() -> None:
    """RESULTS OUT."""
    results, out = map(pathlib.Path, sys.argv[1:3])
    found = collect(results)
    out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    out.with_suffix(".md").write_text(markdown(found))


if __name__ == "__main__":
    main()
