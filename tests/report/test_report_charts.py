"""Charts: right values, right colours, and pictures that stay small."""

import itertools
import xml.etree.ElementTree as ElementTree

import msgspec
import numpy as np
import pytest
import report_builder as build
from hypothesis import given, settings
from hypothesis import strategies as st

from wavewise.findings import Findings
from wavewise.report import render_charts
from wavewise.report.charts import CHARTS, pictures, svg
from wavewise.report.charts.ceilings import ceilings
from wavewise.report.charts.chart import PALETTE, REST, Picture, spec
from wavewise.report.charts.families import OTHERS, families
from wavewise.report.charts.idle import SERIES, idle
from wavewise.report.charts.step_time import step_time
from wavewise.report.charts.timeline import MOST_BARS, Bars, merged, timeline
from wavewise.report.charts.waves import waves
from wavewise.scaling import fit_scaling

PAGES = {"light": "#f6f7f9", "dark": "#1a2029"}


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("color", [*PALETTE, REST, *(each.color for each in SERIES)])
@pytest.mark.parametrize("page", PAGES)
def test_every_series_can_be_seen_on_light_and_dark(color: str, page: str) -> None:
    assert contrast(color, PAGES[page]) >= 3.0


def values(picture: Picture | None) -> list[dict[str, object]]:
    assert picture is not None
    drawn = spec(picture, None)
    return [row for data in _data(drawn) for row in data]


def _data(value: object) -> list[list[dict[str, object]]]:
    if isinstance(value, dict):
        own = [value["data"]["values"]] if "values" in value.get("data", {}) else []
        return own + [data for each in value.get("layer", []) for data in _data(each)]
    return []


def test_every_chart_becomes_an_svg_file_of_its_own() -> None:
    drawn = render_charts(build.sweep_findings())
    assert set(drawn) == set(CHARTS)
    for text in drawn.values():
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "currentColor" not in text
        assert len(text) < 600_000
    assert "http" not in drawn["idle"].replace("http://www.w3.org/", "")


def test_nothing_to_show_is_no_chart() -> None:
    drawn = pictures(build.no_decode_findings())
    assert set(drawn) == {"idle", "steps"}


def test_stacked_families_add_up_to_each_replay() -> None:
    findings = build.sweep_findings()
    sums: dict[object, float] = {}
    for row in values(families(findings)):
        sums[row["point"]] = sums.get(row["point"], 0.0) + float(str(row["ms"]))
    for batch in build.SWEEP:
        expected = sum(row.sum_us_per_step for row in build.families(batch)) / 1000
        assert sums[f"batch {batch}"] == pytest.approx(expected, rel=1e-12)


def test_families_beyond_the_palette_are_taken_together() -> None:
    point = build.point(64, 0)
    many = tuple(build.family(f"custom_{index}", 1, 100.0 - index, 5000.0) for index in range(20))
    findings = Findings(
        traces=(build.trace(64),), operating_points=(msgspec.structs.replace(point, families=many),)
    )
    picture = families(findings)
    assert picture is not None
    assert [each.label for each in picture.series][-1] == OTHERS
    assert len({each.color for each in picture.series}) == len(picture.series) == 10


def test_idle_parts_fill_each_window() -> None:
    shares: dict[object, float] = {}
    for row in values(idle(build.sweep_findings())):
        shares[row["window"]] = shares.get(row["window"], 0.0) + float(str(row["share"]))
    assert len(shares) == 8
    for share in shares.values():
        assert share == pytest.approx(1.0, abs=1e-9)


def test_the_timeline_draws_every_operation_and_every_gap() -> None:
    findings = build.sweep_findings()
    rows = values(timeline(findings))
    step = build.timeline(80)
    operations = [row for row in rows if row["what"] != "no operation"]
    gaps = [row for row in rows if row["what"] == "no operation"]
    assert len(operations) == len(step.start_ns) == 359
    # Brute force over a byte per nanosecond: where nothing runs.
    running = np.zeros(max(a + b for a, b in zip(step.start_ns, step.duration_ns, strict=True)), bool)
    for start, length in zip(step.start_ns, step.duration_ns, strict=True):
        running[start : start + length] = True
    edges = np.diff(np.concatenate(([1], running.astype(np.int8), [1])))
    lengths = np.flatnonzero(edges == 1) - np.flatnonzero(edges == -1)
    # Rounded to 0.01 us each, so half of that per gap.
    assert sum(float(str(row["us"])) for row in gaps) == pytest.approx(
        lengths.sum() / 1000, abs=0.005 * len(gaps)
    )
    assert len(gaps) == len(lengths)


def test_a_hundred_thousand_operations_are_merged_to_what_can_be_seen() -> None:
    picture = timeline(build.sweep_findings(operations=100_000))
    rows = values(picture)
    assert len([row for row in rows if row["what"] != "no operation"]) <= MOST_BARS
    assert picture is not None
    assert "100,000 operations" in (picture.caption or "")
    assert "merged" in (picture.caption or "")


bars = st.lists(
    st.tuples(st.integers(0, 500), st.integers(1, 40), st.integers(0, 2), st.integers(0, 3)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200)
@given(bars, st.integers(1, 60))
def test_merging_keeps_count_streams_and_extent(
    rows: list[tuple[int, int, int, int]], resolution: int
) -> None:
    start, length, stream, kernel = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    whole = Bars(start, start + length, stream, kernel, np.ones(start.size, np.int64))
    family_of = np.asarray([0, 0, 1, 2], np.int64)
    one = merged(whole, family_of, resolution)
    assert one.count.sum() == start.size
    assert one.start.size <= start.size
    for lane in set(stream.tolist()):
        ours, theirs = one.stream == lane, stream == lane
        assert one.start[ours].min() == start[theirs].min()
        assert one.end[ours].max() == (start + length)[theirs].max()
        assert one.count[ours].sum() == theirs.sum()
    # A run's kernel is one of its members'.
    for first, last, lane, shown in zip(one.start, one.end, one.stream, one.kernel, strict=True):
        inside = (stream == lane) & (start >= first) & (start + length <= last)
        assert shown in kernel[inside]


def test_the_waterfall_ends_where_the_families_end() -> None:
    rows = {str(row["what"]): row for row in values(ceilings(build.sweep_findings())) if "what" in row}
    exclusive = sum(row.exclusive_us_per_step for row in build.families(80)) / 1000
    assert rows["now"]["to"] == 14.2
    assert rows["left"]["to"] == pytest.approx(14.2 - exclusive, rel=1e-12)
    for row in rows.values():
        assert float(str(row["from"])) <= float(str(row["to"]))


def test_wave_lanes_hold_every_cta() -> None:
    rows = [row for row in values(waves(build.sweep_findings())) if "ctas" in row]
    placed: dict[object, int] = {}
    for row in rows:
        placed[row["kernel"]] = placed.get(row["kernel"], 0) + int(str(row["ctas"]))
    assert sorted(placed.values()) == [1, 132, 300, 528]
    tails = [row for row in rows if str(row["wave"]).startswith("3 of 3")]
    assert [row["ctas"] for row in tails] == [300 - 2 * 132]


def test_waves_are_drawn_by_sm_as_a_brute_force_placement_says() -> None:
    """The picture's own arithmetic, evaluated by Vega, against dealing CTAs out one by one."""
    picture = waves(build.sweep_findings())
    assert picture is not None
    text = svg(picture)
    full, partly = "#3d7fd9", "#d5691c"
    expected = {full: 0, partly: 0}
    for ctas, slots in ((528, 4), (132, 1), (1, 32), (132, 1), (132, 1), (36, 1)):
        resident = [0] * 132
        for _, sm in zip(range(ctas), itertools.cycle(range(132)), strict=False):
            resident[sm] += 1
        expected[full] += sum(count == slots for count in resident)
        expected[partly] += sum(0 < count < slots for count in resident)
    for color, cells in expected.items():
        # Each color is used once more, by its legend symbol.
        assert text.count(f'fill="{color}"') - 1 == cells


def test_the_fit_is_drawn_over_the_points_of_its_context() -> None:
    long = msgspec.structs.replace(build.point(64, 4), context_length=12_288, context_label="12k")
    findings = build.sweep_findings()
    points = (*findings.operating_points, long)
    fit = fit_scaling(findings.operating_points)[0]
    assert fit is not None
    for several, suffix in ((points, ", 4,096 tokens of context"), (findings.operating_points, "")):
        picture = step_time(msgspec.structs.replace(findings, operating_points=several, scaling=fit))
        assert picture is not None
        drawn = {row["series"] for row in values(picture) if row.get("basis") in ("between", "beyond")}
        assert drawn <= {each.label for each in picture.series}
        assert f"GPU span (if the host were free){suffix}" in drawn
