"""Times the reader on 1 GB of Kineto text, in every layout, beside its peers.

    python benchmarks/reader.py SOURCE.json.gz --maker MAKE_BIG_TRACE.py [--gb 1] [--larger-gb 5] [--runs 5]
                                [--peers PYTHON]

SOURCE is a trace in Kineto's own layout; MAKE_BIG_TRACE replicates it to the wanted size (any program that takes
`IN OUT --gb N` and keeps the layout). Each run is a process of its own, start-up included. Wall seconds are medians;
processor seconds are those of all its processes; memory is the peak of the resident sets of all its processes
together, sampled every few milliseconds (shared pages count in each, so the true figure is lower). Values are
compared before anything is timed: a layout that does not give the same frames as the others is reported as wrong,
not as fast.

A larger text (`--larger-gb`) is read for its memory: `columns_mib` are the frames' own, and what is beside them should
not grow with the text.

Peers run when `--peers` names a Python that has them (HolisticTraceAnalysis, TraceLens), once each on the same plain
and gzipped text.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

READ = """
import sys
from wavewise.trace import read
traces = read(sys.argv[1])
print(len(traces), [len(t.operations) for t in traces])
"""
ANALYZE = """
import sys
from wavewise.cli import main
sys.argv = ["wavewise", "analyze", sys.argv[1], "--json", sys.argv[2]]
main()
"""
DIGEST = """
import hashlib, sys
from wavewise.trace import read
digest = hashlib.sha256()
for trace in read(sys.argv[1]):
    for frame in (trace.operations, trace.rejected, trace.launches, trace.markers):
        digest.update(frame.write_csv().encode())
    columns = sum(frame.estimated_size() for frame in (trace.operations, trace.launches, trace.markers))
print(digest.hexdigest(), columns, [(w.code, w.count) for w in trace.warnings])
"""
HTA = """
import sys, os, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]})
t.get_idle_time_breakdown(visualize=False)
t.get_gpu_kernel_breakdown(visualize=False)
"""
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
t = TreePerfAnalyzer.from_file(sys.argv[1])
t.get_df_gpu_timeline()
"""


def main() -> None:
    """Makes the inputs, checks them against each other, times them, writes the results."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--maker", type=Path, required=True)
    arguments.add_argument("--gb", type=float, default=1.0)
    arguments.add_argument("--larger-gb", type=float, help="text to read for its memory")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--folder", type=Path, default=Path(".big"))
    arguments.add_argument(
        "--layouts", default="json,json.gz,json.zst,one-line,compact,indented,lines,damaged"
    )
    arguments.add_argument("--peers", type=Path, help="a Python that has HTA and TraceLens")
    arguments.add_argument("--out", type=Path, help="results, as JSON")
    given = arguments.parse_args()
    given.folder.mkdir(exist_ok=True)
    wanted = given.layouts.split(",")
    inputs = {name: make(given, name) for name in wanted}
    truth = digest(inputs["json"])[0] if "json" in inputs else None
    rows: list[dict[str, object]] = []
    for name, path in inputs.items():
        found, columns, warnings = digest(path)
        row: dict[str, object] = {
            "layout": name,
            "text_bytes": round(given.gb * 1e9),  # about: as many whole copies of the source as fit
            "file_bytes": path.stat().st_size,
            "same_values": found == truth if name != "damaged" else "all but the damaged events",
            "warnings": warnings,
            "columns_mib": columns >> 20,
            **measure([sys.executable, "-c", READ, str(path)], given.runs),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    if "json" in inputs:
        out = given.folder / "findings.json"
        command = [sys.executable, "-c", ANALYZE, str(inputs["json"]), str(out)]
        row = {"layout": "json", "what": "wavewise analyze", **measure(command, given.runs, remove=out)}
        rows.append(row)
        print(json.dumps(row), flush=True)
        alone = {
            "layout": "nothing",
            "what": "start-up alone",
            **measure([sys.executable, "-c", "import wavewise.trace"], given.runs),
        }
        rows.append(alone)
        print(json.dumps(alone), flush=True)
    if given.larger_gb:
        path = make(argparse.Namespace(**{**vars(given), "gb": given.larger_gb}), "json")
        row = {
            "layout": "json",
            "text_bytes": path.stat().st_size,
            "columns_mib": digest(path)[1] >> 20,
            **measure([sys.executable, "-c", READ, str(path)], 3),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    peers: list[dict[str, object]] = []
    for name, code in (("HolisticTraceAnalysis", HTA), ("TraceLens", TRACELENS)) if given.peers else ():
        for layout in ("json", "json.gz"):
            # Absolute: HolisticTraceAnalysis looks for relative paths in a folder of its own.
            figures = measure([str(given.peers), "-c", code, str(inputs[layout].absolute())], 1)
            peers.append({"peer": name, "layout": layout, **figures})
            print(json.dumps(peers[-1]), flush=True)
    if given.out:
        result = {"machine": machine(), "runs": given.runs, "reader": rows, "peers": peers}
        given.out.write_text(json.dumps(result, indent=1) + "\n")


def make(given: argparse.Namespace, name: str) -> Path:
    """The input in the layout `name`, made unless it is there."""
    suffix = {"json.gz": ".json.gz", "json.zst": ".json.zst"}.get(name, ".json")
    path: Path = given.folder / f"reader-{given.gb:g}gb-{name.replace('.', '-')}{suffix}"
    if path.exists():
        return path
    plain = path if name == "json" else make(given, "json")
    part = path.with_suffix(".part")
    if name == "json":
        subprocess.run(
            [sys.executable, given.maker, given.source, path, "--gb", str(given.gb)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        return path
    if name == "json.gz":
        with part.open("wb") as out:
            subprocess.run(["gzip", "-6", "-n", "-c", plain], check=True, stdout=out)
    elif name == "json.zst":
        import zstandard

        with plain.open("rb") as source, part.open("wb") as out:
            zstandard.ZstdCompressor(level=6).copy_stream(source, out)
    else:
        with part.open("wb") as out:
            for piece in relaid(plain, name):
                out.write(piece)
    part.rename(path)
    return path


def relaid(plain: Path, name: str) -> Iterator[bytes]:
    """The document of `plain` (in Kineto's layout) in another one, without touching a number."""
    separator = {"lines": b",\n", "damaged": b",\n", "indented": b",\n"}.get(
        name, b"," if name == "compact" else b", "
    )
    indent = {"indented": 4, "compact": -1}.get(name, 0)
    whole = plain.open("rb")
    head, _, _ = whole.read(1 << 20).partition(b'"traceEvents": [')
    whole.seek(len(head) + len(b'"traceEvents": ['))
    head = msgspec.json.format(head + b'"traceEvents": []}', indent=indent)
    yield head[: head.rindex(b"[") + 1]
    first, held = True, b""
    damage_every, seen, damaged = 100_000_000, 0, 0
    sound, broken = b'"name": "void ', b'"name": "void "quoted" '
    while piece := whole.read(8 << 20):
        held += piece
        end = held.rfind(b"\n  },\n")
        events, held = held[: end + 4], held[end + 6 :]
        if len(piece) < 8 << 20:
            close = held.index(b"\n  ],")
            events, held = events + b",\n" + held[:close], held[close:]
        seen += len(events)
        if name == "damaged":
            text = events.strip(b"\n")
            if seen // damage_every > damaged and sound in text:
                damaged += 1
                text = text.replace(sound, broken, 1)
            yield (b"\n" if first else b",\n") + text
        else:
            raws = msgspec.json.decode(b"[" + events + b"]", type=list[msgspec.Raw])
            formatted = [msgspec.json.format(raw, indent=indent) for raw in raws]
            yield (
                b"\n" if name in ("lines", "indented") and first else b"" if first else separator
            ) + separator.join(formatted)
        first = False
    yield held.lstrip() if name != "damaged" else held


def digest(path: Path) -> tuple[str, int, str]:
    """A hash over every value the reader gives, the bytes of its frames, and its warnings."""
    ran = subprocess.run(
        [sys.executable, "-c", DIGEST, str(path)], check=True, capture_output=True, text=True
    )
    found, columns, warnings = ran.stdout.strip().split(" ", 2)
    return found, int(columns), warnings


def measure(command: list[str], runs: int, remove: Path | None = None) -> dict[str, object]:
    """Wall seconds and peak memory of `command`, over `runs` runs."""
    walls: list[float] = []
    works: list[float] = []
    peaks: list[float] = []
    for _ in range(runs):
        if remove is not None:
            remove.unlink(missing_ok=True)
        start = time.perf_counter()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)
            peak = 0
            while process.poll() is None:
                peak = max(peak, sum(resident(pid) for pid in family(process.pid)))
                time.sleep(0.005)
            walls.append(time.perf_counter() - start)
            peaks.append(peak / 2**20)
            if process.returncode:
                stderr.seek(0)
                return {"failed": stderr.read().decode(errors="replace").strip()[-300:]}
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        works.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
    return {
        "wall_s_median": round(statistics.median(walls), 3),
        "wall_s_all": [round(wall, 3) for wall in walls],
        "processor_s_median": round(statistics.median(works), 3),
        "peak_mib": round(max(peaks)),
    }


def family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(int(child) for child in children)]


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_average_before": os.getloadavg(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("wavewise", "numpy", "polars", "msgspec", "isal")},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
