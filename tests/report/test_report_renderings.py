"""Whole renderings: golden texts, hostile input, what loads what."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import report_builder as build
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from wavewise.findings import Findings
from wavewise.report import render_json, render_markdown, render_terminal
from wavewise.report.markdown import table_markdown
from wavewise.report.section import Cell, Column, Section, Table
from wavewise.report.terminal import print_section

GOLDEN = Path(__file__).parent / "golden"


def terminal(findings: Findings, **console: object) -> str:
    out = io.StringIO()
    render_terminal(findings, Console(file=out, **console))  # type: ignore[arg-type]
    return out.getvalue()


def compare(name: str, text: str) -> None:
    """Whole text against the recorded one; WAVEWISE_UPDATE_GOLDEN=1 records it anew, for review in the diff."""
    path = GOLDEN / name
    if os.environ.get("WAVEWISE_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def sweep_without_outlook() -> Findings:
    """The sweep without ceilings and levers, whose sections have tests of their own."""
    return msgspec.structs.replace(
        build.sweep_findings(), ceilings=None, ceilings_reason="not asked for", levers=None,
        levers_reason="not asked for",
    )  # fmt: skip


CASES = {"sweep": sweep_without_outlook, "no-decode": build.no_decode_findings}


@pytest.mark.parametrize("case", CASES)
def test_the_terminal_report_is_the_recorded_one(case: str) -> None:
    compare(f"{case}.txt", terminal(CASES[case]()))


@pytest.mark.parametrize("case", CASES)
def test_the_markdown_report_is_the_recorded_one(case: str) -> None:
    compare(f"{case}.md", render_markdown(CASES[case](), {"families": "charts/families.svg"}))


def test_a_pipe_gets_100_columns_of_plain_text() -> None:
    text = terminal(build.sweep_findings())
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    assert "\x1b" not in text
    assert set(text) - {"\n"} <= {chr(code) for code in range(32, 127)}


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_terminal_gets_its_own_width_and_colour(width: int) -> None:
    text = terminal(build.sweep_findings(), width=width, force_terminal=True, color_system="standard")
    assert "\x1b[" in text
    bare = re.sub(r"\x1b\[[0-9;]*m", "", text)
    # Below 100 columns a table of numbers may be wider than the terminal, but never sentences.
    sentences = [line for line in bare.split("\n") if line.startswith(("- ", "  "))]
    assert max(map(len, sentences)) <= width
    if width >= 100:
        assert max(map(len, bare.split("\n"))) <= width


def test_numbers_are_never_cut_in_a_terminal_table() -> None:
    rows = tuple(
        (Cell("`a_rather_long_kernel_name_" + "x" * 60 + "`"), Cell("1,234,567.8")) for _ in range(3)
    )
    section = Section("s", "S", tables=(Table("t", "T", (Column("kernel"), Column("n", right=True)), rows),))
    out = io.StringIO()
    print_section(section, Console(file=out))
    lines = out.getvalue().split("\n")
    assert sum("1,234,567.8" in line for line in lines) == 3


def test_json_holds_the_findings_unrounded() -> None:
    findings = build.sweep_findings()
    data = render_json(findings)
    assert data.endswith(b"}\n")
    assert msgspec.json.decode(data, type=Findings) == findings
    value = json.loads(data)
    assert value["schema"] == "wavewise.findings/1"
    assert value["scaling"] is None
    assert value["scaling_reason"]
    assert value["traces"][0]["decode"][0]["gpu_span_ms"]["median"] == 1.686


def test_a_path_that_is_not_utf8_does_not_stop_a_rendering() -> None:
    trace = msgspec.structs.replace(build.falling(), path="run/\udcff.json")
    findings = Findings(traces=(trace,))
    assert json.loads(render_json(findings))["traces"][0]["path"] == "run/?.json"
    render_markdown(findings).encode("utf-8")
    terminal(findings).encode("utf-8")


hostile = st.text(st.characters(exclude_categories=()), max_size=40)


@settings(max_examples=40)
@given(path=hostile, kernel=hostile, gpu=hostile, note=hostile)
def test_hostile_names_break_no_rendering(path: str, kernel: str, gpu: str, note: str) -> None:
    trace = build.trace(64)
    kernels = tuple(msgspec.structs.replace(row, name=kernel) for row in trace.kernels)
    trace = msgspec.structs.replace(
        trace, path=path, kernels=kernels, gpu=msgspec.structs.replace(trace.gpu, name=gpu),
        unexplained_names=((kernel, 0.1),),
    )  # fmt: skip
    falling = msgspec.structs.replace(build.falling(), path=path, decode_reason=note or None)
    findings = Findings(traces=(trace, falling), operating_points=(build.point(64, 0),))
    text = terminal(findings)
    assert (
        max(map(len, text.split("\n"))) <= 110
    )  # wide characters and unbreakable names may poke out a little
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    render_markdown(findings).encode("utf-8")


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=8))
def test_a_markdown_table_keeps_its_shape(rows: list[tuple[str, str]]) -> None:
    table = Table(
        "t", "T", (Column("a|b"), Column("c", right=True)), tuple((Cell(a), Cell(b)) for a, b in rows)
    )
    lines = table_markdown(table)[2:-1]
    assert len(lines) == 2 + len(rows)
    for line in lines:
        assert len(re.split(r"(?<!\\)\|", line)) == 4


def test_a_detail_table_is_folded_away() -> None:
    table = Table("t", "Steps of `a<b`", (Column("a"),), ((Cell("1"),),), detail=True)
    lines = table_markdown(table)
    assert lines[0] == "<details><summary>Steps of <code>a&lt;b</code></summary>"
    assert lines[-2:] == ["</details>", ""]
    assert lines[1] == lines[-3] == ""


def test_a_ragged_table_is_refused() -> None:
    with pytest.raises(ValueError, match="1 rows do not have 2 cells"):
        Table("t", "T", (Column("a"), Column("b")), ((Cell("1"),),))


def test_text_renderings_load_no_chart_library() -> None:
    """Start-up time: altair, vl-convert and jinja2 only for HTML and charts; scipy, torch and triton never."""
    program = """
import io, sys
import report_builder as build
from rich.console import Console
from wavewise.report import render_json, render_markdown, render_terminal
findings = build.sweep_findings()
render_terminal(findings, Console(file=io.StringIO()))
render_markdown(findings)
render_json(findings)
heavy = {"altair", "vl_convert", "jinja2", "scipy", "torch", "triton", "pandas", "polars", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": folder},
    )
    assert done.stdout.strip() == "[]"


def test_names_to_type_are_whole_and_rows_are_level_at_their_first_line() -> None:
    table = Table(
        "t",
        "A table",
        (Column("lever", whole=True), Column("why"), Column("a long heading over a number", right=True)),
        ((Cell("`a-lever-with-a-name-of-its-own`"), Cell("many words " * 12), Cell("1")),),
    )
    out = io.StringIO()
    print_section(
        Section("s", "S", tables=(table,)), Console(file=out, width=70, force_terminal=True, no_color=True)
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    first = next(line for line in text.splitlines() if "many words" in line)
    assert first.startswith("a-lever-with-a-name-of-its-own  many words")
    assert first.rstrip().endswith(" 1")


@pytest.mark.parametrize("width", [30, 45, 60, 80])
def test_a_narrow_terminal_loses_columns_rather_than_digits(width: int) -> None:
    numbers = ("1,234.567", "0.0895", "12,345,678")
    table = Table(
        "t",
        "A table",
        (Column("quantity"), *(Column(f"figure {n}", right=True) for n in "abc"), Column("law")),
        ((Cell("a quantity of some length"), *map(Cell, numbers), Cell("expert activation")),),
    )
    out = io.StringIO()
    print_section(
        Section("s", "S", tables=(table,)), Console(file=out, width=width, force_terminal=True, no_color=True)
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, text.splitlines())) <= width
    shown = [n for n in "abc" if re.search(rf"(figure )?\b{n}\b", text.split("---")[0].split("A table")[1])]
    found = [number for number in numbers if number in text]
    assert found == list(numbers[: len(shown)])
    assert found
