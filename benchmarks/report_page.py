"""Time and size of the rendered reports of a trace with 100,000 GPU operations.

Two shapes of it: many ordinary steps (the shipped trace at batch 64, its steps repeated), and the worst case for
a page, one step that holds all of them in 5,000 launch shapes.

    python benchmarks/report_page.py [--operations 100000] [--repeat 5] [--out FILE]

The first run of each rendering pays for loading its libraries, as a fresh process does, and is shown beside the median.
"""

import argparse
import io
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from wavewise.analysis import analyze
from wavewise.findings import Findings, StepRow, Timeline
from wavewise.report import render_charts, render_html, render_json, render_markdown, render_terminal

SWEEP = Path(__file__).parents[1] / "examples" / "h200-vllm-dsv4" / "context4k"

GOAL_S = 5.0
GOAL_BYTES = 3_000_000


def many_steps(findings: Findings, operations: int) -> Findings:
    """The first trace with its steps repeated until it holds so many operations."""
    trace = findings.traces[0]
    times = operations // (trace.events.kernels + trace.events.memcpys + trace.events.memsets)
    period = trace.window_ns
    steps = tuple(
        _moved(step, copy * len(trace.steps) + index, copy * period)
        for copy in range(times)
        for index, step in enumerate(trace.steps)
    )
    return replace(findings, traces=(replace(trace, steps=steps),))


def _moved(step: StepRow, index: int, by_ns: int) -> StepRow:
    start, end = step.start_ns, step.end_ns
    return replace(
        step,
        index=index,
        start_ns=None if start is None else start + by_ns,
        end_ns=None if end is None else end + by_ns,
    )


def one_step(findings: Findings, operations: int) -> Findings:
    """The timeline of the decode row stretched to so many operations, in 5,000 launch shapes."""
    trace = findings.traces[0]
    row = trace.decode[0]
    assert row.timeline is not None
    kernels = tuple(
        replace(kernel, name=f"{kernel.name} {copy}")
        for copy in range(5000 // len(trace.kernels) + 1)
        for kernel in trace.kernels
    )
    stretched = replace(row, timeline=_stretched(row.timeline, operations))
    return replace(findings, traces=(replace(trace, decode=(stretched,), kernels=kernels),))


def _stretched(timeline: Timeline, operations: int) -> Timeline:
    times = operations // len(timeline.start_ns) + 1
    pitch = max(map(sum, zip(timeline.start_ns, timeline.duration_ns, strict=True))) - min(timeline.start_ns)
    starts = tuple(start + copy * pitch for copy in range(times) for start in timeline.start_ns)
    return replace(
        timeline,
        start_ns=starts[:operations],
        duration_ns=(timeline.duration_ns * times)[:operations],
        stream=(timeline.stream * times)[:operations],
        kernel=(timeline.kernel * times)[:operations],
        in_replay=(timeline.in_replay * times)[:operations],
    )


def terminal(findings: Findings) -> str:
    """The terminal report as text."""
    out = io.StringIO()
    render_terminal(findings, Console(file=out))
    return out.getvalue()


def timed(
    render: Callable[[Findings], str | bytes], findings: Findings, repeat: int
) -> tuple[list[float], int]:
    """(seconds of each run, bytes) of a rendering."""
    seconds: list[float] = []
    size = 0
    for _ in range(repeat):
        start = time.perf_counter()
        text = render(findings)
        seconds.append(time.perf_counter() - start)
        size = len(text if isinstance(text, bytes) else text.encode())
    return seconds, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    base = analyze([SWEEP / "bs064.json.gz"])
    renderings: dict[str, Callable[[Findings], str | bytes]] = {
        "html": render_html,
        "charts": lambda findings: "".join(render_charts(findings).values()),
        "markdown": render_markdown,
        "terminal": terminal,
        "json": render_json,
    }
    results: list[dict[str, object]] = []
    print(f"{'findings':<12} {'rendering':<10} {'first s':>8} {'median s':>9} {'bytes':>11}")
    for shape, make in (("many steps", many_steps), ("one step", one_step)):
        findings = make(base, arguments.operations)
        for name, render in renderings.items():
            seconds, size = timed(render, findings, arguments.repeat)
            median = statistics.median(seconds)
            missed = name == "html" and (max(seconds) > GOAL_S or size > GOAL_BYTES)
            note = "  MISSED" if missed else ""
            print(f"{shape:<12} {name:<10} {seconds[0]:>8.2f} {median:>9.2f} {size:>11,}{note}")
            results.append({"findings": shape, "rendering": name, "seconds": seconds, "bytes": size})
    if arguments.out:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        machine |= {name: version(name) for name in ("altair", "vl-convert-python", "rich", "jinja2")}
        value = {"operations": arguments.operations, "machine": machine, "results": results}
        arguments.out.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
