"""Real traces and the case corpus: totals against brute force, and trimming against the whole."""

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from trace_samples import codes, expected, values
from typer.testing import CliRunner

from wavewise.cli.app import build
from wavewise.errors import WavewiseError
from wavewise.trace import Trace, find_traces, read

ROOT = os.environ.get("WAVEWISE_CORPUS")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(ROOT is None, reason="WAVEWISE_CORPUS names no folder with corpus/ and traces/"),
]
FOLDER = Path(ROOT or ".")
PUBLIC = FOLDER / "traces" / "public"
SWEEP = FOLDER / "traces" / "h200-vllm-dsv4"
DEV = FOLDER / "corpus" / "dev"
KINETO = sorted(PUBLIC.glob("*.json.gz")) + sorted(SWEEP.glob("context4k/bs0[06]*.json.gz"))


def union_ns(rows: pl.DataFrame) -> int:
    """Length of the union of the operations' intervals, one at a time."""
    total, reached = 0, -(1 << 62)
    for start, duration in sorted(rows.select("start_ns", "duration_ns").rows()):
        total += max(0, start + duration - max(start, reached))
        reached = max(reached, start + duration)
    return total


def window_ns(rows: pl.DataFrame) -> int:
    end = (rows["start_ns"] + rows["duration_ns"]).to_list()
    return max(end) - min(rows["start_ns"].to_list())


def public(name: str) -> Trace:
    (trace,) = read(PUBLIC / name)
    return trace


@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.name)
def test_every_value_of_a_real_trace(path: Path) -> None:
    (trace,) = read(path)
    assert values(trace) == expected(gzip.decompress(path.read_bytes()))
    assert trace.rejected.is_empty()
    assert not trace.salvaged


def test_v100_is_idle_for_3_7_percent() -> None:
    trace = public("hta-v100-12-graph-launches.json.gz")
    idle = 1 - union_ns(trace.operations) / window_ns(trace.operations)
    assert round(100 * idle, 1) == 3.7
    graphs = trace.launches.filter(pl.col("name").cast(pl.String) == "cudaGraphLaunch")
    own = pl.col("correlation").is_in(graphs["correlation"].implode())
    sizes = trace.operations.filter(pl.col("kind") == "kernel", own)
    counted = sizes.group_by("correlation").len()["len"]
    assert len(counted) == 12
    assert (counted.min(), counted.max()) == (315, 429)
    assert len(trace.operations.filter(pl.col("kind") == "kernel")) == 9876


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("tracelens-mi300x-sglang-decode.json.gz", 544),
        ("tracelens-mi300x-vllm-decode-full-graph.json.gz", 421),
    ],
)
def test_mi300x_graph_launches(name: str, kernels: int) -> None:
    trace = public(name)
    (launch,) = trace.launches.filter(pl.col("name").cast(pl.String) == "hipGraphLaunch")[
        "correlation"
    ].to_list()
    own = trace.operations.filter(pl.col("correlation") == launch, pl.col("kind") == "kernel")
    assert len(own) == kernels
    assert own["grid_x"].null_count() == kernels


def test_b200_overlaps_are_counted_not_lost() -> None:
    operations = public("tracelens-b200-eager.json.gz").operations
    kernels = operations.filter(pl.col("kind") == "kernel").sort("stream", "start_ns")
    assert len(kernels) == 768
    start, end = (kernels["start_ns"].to_numpy(), (kernels["start_ns"] + kernels["duration_ns"]).to_numpy())
    same = kernels["stream"].to_numpy()[1:] == kernels["stream"].to_numpy()[:-1]
    over = (end[:-1] - start[1:])[same]
    assert int((over > 0).sum()) == 74
    assert round(int(over.max()) / 1000, 1) == 3.7
    assert union_ns(operations) < operations["duration_ns"].sum()


def test_h100_kernels_without_a_launch_are_kept() -> None:
    trace = public("tracelens-h100-qwen-eager.json.gz")
    kernels = trace.operations.filter(pl.col("kind") == "kernel")
    known = trace.launches["correlation"].drop_nulls().implode()
    assert len(kernels) == 1465
    assert len(kernels.filter(~pl.col("correlation").is_in(known))) == 436


def test_display_unit_ns_changes_nothing() -> None:
    trace = public("hta-ns-resolution.json.gz")
    first = re.search(
        rb'"cat": "kernel".*?"ts": ([\d.]+)',
        gzip.decompress((PUBLIC / "hta-ns-resolution.json.gz").read_bytes()),
        re.S,
    )
    assert first is not None
    assert int(Decimal(first[1].decode()) * 1000) in set(trace.operations["start_ns"].to_list())


def test_nsight_export_of_two_processes() -> None:
    traces = read(PUBLIC / "nsysai-h100-2gpu-1s.sqlite")
    assert [trace.device_ids() for trace in traces] == [[0], [1]]
    assert sum(len(trace.operations) for trace in traces) == 3442 + 904 + 22
    for trace in traces:
        assert trace.operations["graph_id"].null_count() == len(trace.operations)
        joined = trace.operations.join(trace.launches, on="correlation", how="inner")
        assert len(joined) > 1000  # the fixture is a cut: many launches lie before it
        # Work begins after the call that launched it, by the clock of one process.
        assert (joined["start_ns"] >= joined["start_ns_right"]).mean() > 0.99  # type: ignore[operator]


@pytest.mark.parametrize("case", sorted(DEV.iterdir()) if DEV.is_dir() else [], ids=lambda case: case.name)
def test_corpus_case_as_far_as_the_reader_goes(case: Path) -> None:
    """Exit status, totals by brute force, counts and salvage; check_case.py judges the whole analysis."""
    want: dict[str, Any] = json.loads((case / "expected.json").read_text())
    given = want["input"] if isinstance(want["input"], list) else [want["input"]]
    accepted = want["exit"] if isinstance(want["exit"], list) else [want["exit"]]
    traces: list[Trace] = []
    try:
        for file in find_traces([case / name for name in given]):
            traces += read(file)
    except WavewiseError as error:
        refused, said = error.exit_status, str(error)
    else:
        refused, said = 0, ""
    assert refused in accepted
    assert "\n" not in said
    rows = [(trace, device) for trace in traces for device in trace.device_ids()]
    for i, (trace, device) in enumerate(rows):
        own = trace.operations.filter(pl.col("device") == device)
        extents = pl.concat(
            frame.select("start_ns", "duration_ns")
            for frame in (own, trace.whole_graphs.filter(pl.col("device") == device))
        )
        kinds = dict(own["kind"].cast(pl.String).value_counts().rows())
        got = {
            "window_ns": window_ns(extents), "busy_ns": union_ns(own), "sum_ns": own["duration_ns"].sum(),
            "events.kernels": kinds.get("kernel", 0), "events.memcpys": kinds.get("memcpy", 0),
            "events.memsets": kinds.get("memset", 0), "events.salvaged": trace.salvaged,
        }  # fmt: skip
        for name, value in got.items():
            judge(value, want["expect"].get(f"traces[{i}].{name}"), f"traces[{i}].{name}")
        counts = want["expect"].get(f"traces[{i}].events.warnings[*].count")
        assert counts is None or counts["contains"] in codes(trace).values()


def judge(value: object, want: Any, name: str) -> None:
    if isinstance(want, dict):
        assert want.get("min", value) <= value <= want.get("max", value), name  # type: ignore[operator]
    elif want is not None:
        assert value == want, name


@pytest.mark.parametrize("name", ["context4k/bs064.json.gz", "context4k/bs001.json.gz", "mixed.json.gz"])
def test_a_trimmed_recording_keeps_its_decode_rows(tmp_path: Path, name: str) -> None:
    def rows(path: Path) -> dict[int, dict[str, Any]]:
        out = tmp_path / "findings.json"
        done = CliRunner().invoke(build(), ["analyze", str(path), "--json", str(out), "--force"])
        assert done.exit_code == 0, done.output
        return {row["batch_size"]: row for row in json.loads(out.read_text())["traces"][0]["decode"]}

    small = tmp_path / "small.json.gz"
    done = CliRunner().invoke(
        build(), ["trim", str(SWEEP / name), "--steps", "3", "--scrub", "-o", str(small)]
    )
    assert done.exit_code == 0, done.output
    whole, part = rows(SWEEP / name), rows(small)
    assert list(whole) == list(part)
    for size, row in whole.items():
        kept = part[size]
        assert kept["clean_steps"] == min(3, row["clean_steps"])
        for field in ("bucket", "operations_per_step", "replay_operations_per_step"):
            assert kept[field] == row[field]
        # The very same steps: each one's times are among those of the whole.
        for field in ("step_ns", "span_ns", "busy_ns", "sum_ns"):
            assert set(kept["samples"][field]) <= set(row["samples"][field])
        assert [f["family"] for f in kept["families"]] == [f["family"] for f in row["families"]]
        for one, other in zip(kept["families"], row["families"], strict=True):
            assert one["launches_per_step"] == other["launches_per_step"]
            assert np.isclose(one["sum_us_per_step"], other["sum_us_per_step"], rtol=0.1)
    assert small.stat().st_size < 250_000
