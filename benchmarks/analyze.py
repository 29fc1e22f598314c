"""How long `wavewise` takes to answer, start-up included: the sweep, the mixed trace, and --help.

    python benchmarks/analyze.py [--runs 7] [--out benchmarks/results/DATE-cpu-analyze.json]

Each figure is the wall time of a fresh process; medians of the runs, every sample kept. A bare pandas script over
the same files (load, one group-by) is timed beside it where pandas is installed.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "examples" / "h200-vllm-dsv4"
WAVEWISE = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'wavewise'; from wavewise.cli import main; main()",
]

PANDAS = """
import gzip, json, sys
import pandas as pd
for path in sys.argv[1:]:
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    frame = pd.DataFrame([e for e in events if e.get("cat") == "kernel"])
    frame.groupby("name")["dur"].agg(["count", "sum"]).sort_values("sum").to_string()
"""


def time_command(command: list[str], runs: int) -> list[float]:
    """Wall seconds of each run after one that fills the file cache."""
    samples: list[float] = []
    for run in range(runs + 1):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        if run:
            samples.append(time.perf_counter() - begun)
    return samples


def main() -> None:
    """Times every case and prints the table last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    sweep = sorted(map(str, (SWEEP / "context4k").glob("*.json.gz")))
    mixed = str(SWEEP / "mixed.json.gz")
    with tempfile.TemporaryDirectory() as folder:
        target = ["--json", f"{folder}/findings.json", "--force"]
        cases = {
            "wavewise analyze, seven-file sweep": [*WAVEWISE, "analyze", *sweep, *target],
            "wavewise analyze, mixed": [*WAVEWISE, "analyze", mixed, *target],
            "wavewise --help": [*WAVEWISE, "--help"],
        }
        try:
            version("pandas")
            cases["pandas script, seven-file sweep"] = [sys.executable, "-c", PANDAS, *sweep]
            cases["pandas script, mixed"] = [sys.executable, "-c", PANDAS, mixed]
        except ImportError:
            print("pandas is not installed: its script is left out", file=sys.stderr)
        samples = {name: time_command(command, arguments.runs) for name, command in cases.items()}
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    result = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("wavewise", "polars", "numpy", "msgspec")},
        "commit": commit,
        "load_average_before": os.getloadavg()[1],
        "rows": [
            {"case": name, "median_s": statistics.median(times), "samples_s": times}
            for name, times in samples.items()
        ],
    }
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["rows"]:
        print(f"{row['case']:40} {row['median_s']:6.2f} s")


if __name__ == "__main__":
    main()
