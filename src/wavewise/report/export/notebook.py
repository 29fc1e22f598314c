"""A ready Jupyter notebook over exported tables: it reads them with polars and draws with altair."""

import msgspec

from wavewise.findings import Findings
from wavewise.report.compose import title
from wavewise.report.section import plain

_FORMAT = (4, 5)
"""nbformat version, https://nbformat.readthedocs.io/en/latest/format_description.html."""


def notebook(findings: Findings, folder: str, suffix: str) -> bytes:
    """The notebook as JSON.

    Args:
        findings: what the tables were made of; its title heads the notebook.
        folder: where the tables lie, relative to the notebook.
        suffix: "parquet" or "csv".
    """
    cells = [
        _text(f"# {plain(title(findings))}\n\n{_ABOUT}"),
        _code(_READ.format(folder=folder, suffix=suffix)),
    ]
    for heading, code in _PARTS:
        cells += [_text(heading), _code(code)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    document = {
        "nbformat": _FORMAT[0],
        "nbformat_minor": _FORMAT[1],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "cells": cells,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _text(source: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "metadata": {},
        "source": source,
        "execution_count": None,
        "outputs": [],
    }


_ABOUT = """\
Tables exported by `wavewise export`. Times end in their unit; figures of a step are medians over clean decode steps.
Needs `polars` and `altair`."""

_READ = """\
from pathlib import Path

import altair as alt
import polars as pl

folder = Path("{folder}")
tables = {{path.stem: pl.read_{suffix}(path) for path in sorted(folder.glob("*.{suffix}"))}}
{{name: frame.shape for name, frame in tables.items()}}"""

_PARTS = (
    (
        "## Decode steps by batch size",
        """\
decode = tables["decode"].select(
    "path", "batch_size", "bucket", "clean_steps", "step_ms_median", "gpu_span_ms_median", "busy_ms_median",
    "sum_ms_median", "boundary_ms_median",
)
decode""",
    ),
    (
        "## Step time and GPU span against batch size",
        """\
points = decode.unpivot(
    ["step_ms_median", "gpu_span_ms_median"], index=["path", "batch_size"], variable_name="quantity", value_name="ms"
).drop_nulls()
alt.Chart(points).mark_line(point=True).encode(
    x=alt.X("batch_size:Q", title="batch size"), y=alt.Y("ms:Q"), color="quantity:N",
    tooltip=["path", "batch_size", "ms"],
)""",
    ),
    (
        "## Where the time goes: summed kernel time by family",
        """\
families = tables["decode_families"].select("path", "batch_size", "family", "sum_us_per_step", "share_of_busy")
alt.Chart(families).mark_bar().encode(
    x=alt.X("sum(sum_us_per_step):Q", title="summed kernel time per step, us"), y=alt.Y("path:N", title=None),
    color="family:N", tooltip=["family", "sum_us_per_step", "share_of_busy"],
)""",
    ),
    (
        "## The kernels that take the time, and how they fill the GPU",
        """\
kernels = tables["kernels"].sort("sum_us_per_step", descending=True).select(
    pl.col("name").str.slice(0, 60), "family", "batch_size", "launches_per_step", "sum_us_per_step", "grid_x", "grid_y",
    "grid_z", "ctas_per_sm", "limiter", "occupancy", "waves", "wave_efficiency",
)
kernels.head(20)""",
    ),
    (
        "## How steps scatter",
        """\
samples = tables["samples"].with_columns(step_ms=pl.col("step_ns") / 1e6, span_ms=pl.col("span_ns") / 1e6)
alt.Chart(samples).mark_tick().encode(
    x=alt.X("step_ms:Q", scale=alt.Scale(zero=False)), y=alt.Y("batch_size:O"),
    tooltip=["path", "step", "step_ms", "span_ms"],
)""",
    ),
    (
        "## Every step, and why some feed no statistic",
        """\
steps = tables["steps"]
steps.group_by("path", "kind", "clean", "unclean_reason").len().sort("path", "kind", "clean")""",
    ),
    (
        "## Idle time of each window",
        """\
idle = [name for name in tables["traces"].columns if name.startswith("idle_") and name.endswith("_ns")]
tables["traces"].select("path", "window_ns", "busy_ns", *idle)""",
    ),
)
