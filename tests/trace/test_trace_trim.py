"""A trimmed trace analyses to the same decode rows, and a scrubbed one tells nothing of where it comes from."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import HEADER, codes, event, kineto, steps, us, values
from typer.testing import CliRunner

from wavewise.cli.app import build
from wavewise.errors import NothingToAnalyzeError, UsageError
from wavewise.trace import Trace, read, trim


def written(trace: Trace, path: Path) -> Trace:
    path.write_bytes(trim.to_kineto(trace))
    (again,) = read(path)
    return again


def load(tmp_path: Path, text: bytes) -> Trace:
    path = tmp_path / "whole.json"
    path.write_bytes(text)
    return read(path)[0]


def test_a_written_trace_reads_back_as_itself(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto(steps()))
    again = written(trace, tmp_path / "again.json")
    for name in ("operations", "launches", "markers"):
        assert getattr(again, name).equals(getattr(trace, name)), name
    assert again.devices == trace.devices
    assert (again.rank, again.metadata["world_size"]) == (trace.rank, trace.metadata["world_size"])
    assert again.warnings == ()


@given(st.floats(0, 1e6, width=32), st.floats(0, 1, width=32))
def test_recorded_shares_survive_writing(blocks: float, share: float) -> None:
    for value, unit in ((blocks, 1.0), (share, 0.01)):
        written = trim._shortest(value, unit)  # pyright: ignore[reportPrivateUsage]
        assert written is not None
        assert np.float32(json.loads(json.dumps(written)) * unit) == np.float32(value)


def test_rejected_records_are_written_so_that_they_are_rejected_again(tmp_path: Path) -> None:
    events = steps()
    events[10] |= {"dur": -5.0}
    del events[12]["dur"]
    trace = load(tmp_path, kineto(events))
    again = written(trace, tmp_path / "again.json")
    assert sorted(again.rejected["reason"].to_list()) == sorted(trace.rejected["reason"].to_list())
    assert codes(again) == codes(trace)


def test_cut_keeps_what_begins_within_the_stretches(tmp_path: Path) -> None:
    trace = load(tmp_path, kineto(steps(6)))
    starts = trace.markers["start_ns"].to_list()
    keep = trace.operations["start_ns"].is_between(starts[1], starts[3], closed="left").to_numpy()
    small = trim.cut(trace, keep, [(starts[1], starts[2]), (starts[2], starts[3])])
    assert small.markers["start_ns"].to_list() == starts[1:3]
    assert small.launches["start_ns"].min() >= starts[1]  # type: ignore[operator]
    assert small.launches["start_ns"].max() < starts[3]  # type: ignore[operator]
    assert len(small.operations) == int(keep.sum())
    nothing = trim.cut(trace, np.zeros(len(trace.operations), bool), [])
    assert (len(nothing.operations), len(nothing.launches), len(nothing.markers)) == (0, 0, 0)


def test_scrubbing_takes_out_what_tells_where_a_trace_comes_from(tmp_path: Path) -> None:
    events = steps()
    events.append(event("user_annotation", "request for bob@corp", 5121164779381_000, 10))
    events.append(
        event("kernel", "triton_/home/bob/models/attn.py_kernel", 5121164779381_500, 9, pid=0, tid=7,
              args={"device": 0, "stream": 7, "correlation": 1})
    )  # fmt: skip
    header = HEADER | {
        "host_name": "node17.corp",
        "trace_id": "SECRETID",
        "traceName": "/home/bob/t.json",
        "username": "bob",
    }
    trace = load(tmp_path, kineto(events, header))
    small = trim.scrub(trace, lambda name: name.startswith("execute_"))
    text = trim.to_kineto(small).decode()
    for secret in ("bob", "corp", "SECRETID", "node17", "/home", "4100", "5121164779", "1790857026"):
        assert secret not in text
    again = written(small, tmp_path / "small.json")
    first = min(frame["start_ns"].min() for frame in (again.operations, again.launches, again.markers))  # type: ignore[type-var]
    assert first == 1_000_000_000
    # Everything keeps its distance from everything else.
    shift = trace.launches["start_ns"][0] - again.launches["start_ns"][0]
    for name in ("operations", "launches"):
        before, after = getattr(trace, name), getattr(again, name)
        assert (before["start_ns"] - shift).to_list() == after["start_ns"].to_list()
        assert before["duration_ns"].to_list() == after["duration_ns"].to_list()
        assert before["correlation"].to_list() == after["correlation"].to_list()
    assert again.markers["name"].unique().to_list() == ["execute_context_0(0)_generation_64(64)"]
    assert "triton_attn.py_kernel" in again.operations["name"].cast(pl.String).to_list()


@given(st.integers(-(10**15), 10**18))
def test_microseconds_are_written_in_digits(ns: int) -> None:
    text = trim._microseconds(ns).decode()  # pyright: ignore[reportPrivateUsage]
    whole, point, rest = text.partition(".")
    assert point
    assert len(rest) == 3
    assert int(whole + rest) == ns
    assert ns < 0 or text == us(ns)


# ---- the command


def decode_rows(path: Path, out: Path) -> list[dict[str, object]]:
    result = CliRunner().invoke(build(), ["analyze", str(path), "--json", str(out), "--force"])
    assert result.exit_code == 0, result.output
    return json.loads(out.read_text())["traces"][0]["decode"]


@pytest.fixture
def decoding(tmp_path: Path) -> Path:
    """Nine decode steps of exactly one length: 5 kernels of one graph launch each."""
    events = []
    for i in range(9):
        at = 5_121_164_779_381_000 + 500_000 * i
        events.append(event("user_annotation", "execute_context_0(0)_generation_64(64)", at, 400_000))
        events.append(event("cuda_runtime", "cudaGraphLaunch", at + 1000, 3000, args={"correlation": 70 + i}))
        for k in range(5):
            args = {
                "device": 0, "stream": 7, "correlation": 70 + i, "graph id": 4, "grid": [64, 1, 1],
                "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.5,
                "est. achieved occupancy %": 12,
            }  # fmt: skip
            events.append(
                event(
                    "kernel", f"void kernel_{k}(int)", at + 20_000 + 3000 * k, 2500, pid=0, tid=7, args=args
                )
            )
    path = tmp_path / "decoding.json"
    path.write_bytes(kineto(events))
    return path


@pytest.mark.parametrize("scrub", [[], ["--scrub"]])
@pytest.mark.parametrize("name", ["small.json", "small.json.gz"])
def test_the_command_keeps_the_decode_rows(
    decoding: Path, tmp_path: Path, scrub: list[str], name: str
) -> None:
    small = tmp_path / name
    result = CliRunner().invoke(build(), ["trim", str(decoding), "--steps", "3", "-o", str(small), *scrub])
    assert result.exit_code == 0, result.output
    (before,) = decode_rows(decoding, tmp_path / "a.json")
    (after,) = decode_rows(small, tmp_path / "b.json")
    before.pop("samples"), after.pop("samples")  # one value a clean step
    assert (before.pop("clean_steps"), after.pop("clean_steps")) == (7, 3)
    assert before == after
    assert len(read(small)[0].operations) == 5 * 5  # three clean steps, and their neighbours


def test_without_out_it_writes_here_after_the_trace(
    decoding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    words = ["trim", str(decoding), "--steps", "3", "--scrub"]
    result = CliRunner().invoke(build(), words)
    assert result.exit_code == 0, result.output
    (small,) = here.iterdir()
    assert small.name == decoding.name.split(".json")[0] + ".trim.json.gz"
    assert len(read(small)[0].operations) == 5 * 5
    assert isinstance(CliRunner().invoke(build(), words).exception, UsageError)  # it is there already


def test_a_range_keeps_just_those_steps(decoding: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    result = CliRunner().invoke(build(), ["trim", str(decoding), "--range", "2:3", "-o", str(small)])
    assert result.exit_code == 0, result.output
    trace = read(small)[0]
    assert len(trace.markers) == 2
    assert trace.operations["correlation"].unique().sort().to_list() == [72, 73]


def test_what_the_command_refuses(decoding: Path, tmp_path: Path) -> None:
    run = lambda *words: CliRunner().invoke(build(), ["trim", str(decoding), *map(str, words)])  # noqa: E731
    small = tmp_path / "small.json"
    small.write_text("mine")
    assert isinstance(run("-o", small).exception, UsageError)
    assert small.read_text() == "mine"
    assert isinstance(run("-o", tmp_path / "small.sqlite").exception, UsageError)
    assert isinstance(run("-o", tmp_path / "new.json", "--range", "x").exception, UsageError)
    assert isinstance(run("-o", tmp_path / "new.json", "--document", "3").exception, UsageError)
    assert isinstance(run("-o", tmp_path / "new.json", "--range", "50:60").exception, NothingToAnalyzeError)
    assert run("-o", small, "--force").exit_code == 0
    assert not list(tmp_path.glob(".small*"))


@settings(max_examples=30)
@given(st.data())
def test_any_cut_of_any_steps_reads_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    trace = load(folder, kineto(steps(4)))
    keep = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(trace.operations), max_size=len(trace.operations)))
    )
    keep[0] = True
    small = trim.cut(trace, keep, [(0, 1 << 62)])
    again = written(small, folder / "again.json")
    assert values(again) == values(replace(small))
