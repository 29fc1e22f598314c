"""Step time and GPU span against batch size: medians, fitted model, interval, and what is extrapolated."""

import altair as alt

from wavewise.findings import Findings, Prediction, Scaling
from wavewise.report.charts.chart import Picture, Series, color, hidden_parameter, hideable
from wavewise.report.points import PointView, context_words, main_point, points
from wavewise.report.words import ms

STEP, SPAN = "step time", "GPU span (if the host were free)"
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross")
COLORS = ("#d5691c", "#3d7fd9", "#b052c0", "#2b9a63", "#d9485f", "#1496a8")


def step_time(findings: Findings) -> Picture | None:
    """Points, and the model's curve with its interval where there is a fit; None below two batch sizes."""
    views = tuple(view for view in points(findings) if view.figures.batch_size is not None)
    main = main_point(views)
    if main is None or len({view.figures.batch_size for view in views}) < 2:
        return None
    contexts = list(dict.fromkeys(_context(view) for view in views))
    measured = _measured(views, contexts)
    # The fit is of one context; its lines carry the name of that context's points.
    fitted = _suffix(context_words(findings.scaling) or "", contexts) if findings.scaling else ""
    curve = _curve(findings.scaling, fitted) if findings.scaling else []
    labels = list(dict.fromkeys(str(value["series"]) for value in measured))
    series = tuple(Series(label, COLORS[index % len(COLORS)]) for index, label in enumerate(labels))
    largest = max(view.figures.batch_size or 0 for view in views)
    end = max([largest, *(int(str(value["batch"])) for value in curve)])
    lines = _lines(findings.scaling, fitted, curve) if findings.scaling else []
    layers = [
        *_extrapolation(largest, end),
        *_straight(lines, series),
        *_model(curve, series),
        *_points(measured, series),
    ]
    scaling = findings.scaling
    growth = ""
    if scaling is not None and scaling.step.slope_ms_per_request is not None:
        growth = f" The step's line grows by {ms(scaling.step.slope_ms_per_request)} per request."
    return Picture(
        name="step-time",
        title="Step time against batch size",
        alt=(
            f"Medians at {len(views)} operating points; at {main.label} the step takes "
            f"{ms(main.figures.step_ms.median)}, of which the GPU works in a span of "
            f"{ms(main.figures.gpu_span_ms.median)}.{growth}"
        ),
        chart=alt.layer(*layers).properties(height=300).add_params(hidden_parameter()),
        series=series,
        caption=_caption(findings, bool(curve), bool(lines), end > largest),
    )


def _context(view: PointView) -> str:
    return context_words(view.figures) or ""


def _suffix(context: str, contexts: list[str]) -> str:
    return f", {context or 'unknown context'}" if len(contexts) > 1 else ""


def _measured(views: tuple[PointView, ...], contexts: list[str]) -> list[dict[str, object]]:
    values: list[dict[str, object]] = []
    for view in views:
        suffix = _suffix(_context(view), contexts)
        for name, summary in ((STEP, view.figures.step_ms), (SPAN, view.figures.gpu_span_ms)):
            values.append(
                {
                    "batch": view.figures.batch_size,
                    "series": f"{name}{suffix}",
                    "ms": summary.median,
                    "low": summary.p10,
                    "high": summary.p90,
                    "basis": view.basis,
                }
            )
    return values


def _curve(scaling: Scaling, suffix: str) -> list[dict[str, object]]:
    """The model's curve as rows, for the step and for the span."""
    rows: list[dict[str, object]] = []
    for prediction in scaling.curve:
        free = prediction.if_host_free_step_ms
        rows += [
            _curve_row(prediction, STEP + suffix, prediction.step_ms, prediction.step_ms_95),
            _curve_row(prediction, SPAN + suffix, free, prediction.if_host_free_step_ms_95),
        ]
    return [row for row in rows if row["ms"] is not None]


def _curve_row(
    prediction: Prediction, name: str, value: float | None, interval: tuple[float, float] | None
) -> dict[str, object]:
    low, high = interval or (None, None)
    return {
        "batch": prediction.batch_size,
        "series": name,
        "ms": value,
        "low": low,
        "high": high,
        "basis": prediction.basis,
    }


def _lines(scaling: Scaling, suffix: str, curve: list[dict[str, object]]) -> list[dict[str, object]]:
    """The least-squares line, over the measured sizes only, of a quantity whose law predicts nothing."""
    predicted = {str(row["series"]) for row in curve}
    rows: list[dict[str, object]] = []
    for name, fit in ((STEP + suffix, scaling.step), (SPAN + suffix, scaling.span)):
        if fit is None or name in predicted or fit.floor_ms is None or fit.slope_ms_per_request is None:
            continue
        sizes = [point.batch_size for point in fit.points]
        rows += [
            {"batch": size, "series": name, "ms": fit.floor_ms + fit.slope_ms_per_request * size}
            for size in (min(sizes), max(sizes))
        ]
    return rows


def _straight(lines: list[dict[str, object]], series: tuple[Series, ...]) -> list[alt.Chart]:
    if not lines:
        return []
    base = hideable(alt.Chart(alt.Data(values=lines)), "series")
    return [
        base.mark_line(strokeDash=[6, 5], strokeWidth=1.5).encode(
            x="batch:Q", y="ms:Q", color=color("series", series)
        )
    ]


def _extrapolation(largest: int, end: int) -> list[alt.Chart]:
    if end <= largest:
        return []
    return [
        alt.Chart(alt.Data(values=[{"from": largest, "to": end}]))
        .mark_rect(color="currentColor", opacity=0.07)
        .encode(x=alt.X("from:Q"), x2="to:Q")
    ]


def _model(curve: list[dict[str, object]], series: tuple[Series, ...]) -> list[alt.Chart]:
    if not curve:
        return []
    base = hideable(alt.Chart(alt.Data(values=curve)), "series")
    band = (
        base.transform_filter("isValid(datum.low)")
        .mark_area(opacity=0.18)
        .encode(x="batch:Q", y="low:Q", y2="high:Q", color=color("series", series))
    )
    line = base.mark_line(strokeWidth=2).encode(
        x="batch:Q",
        y="ms:Q",
        color=color("series", series),
        tooltip=[
            alt.Tooltip("series:N", title="model of"),
            alt.Tooltip("batch:Q", title="batch size"),
            alt.Tooltip("ms:Q", title="predicted, ms", format=",.3f"),
            alt.Tooltip("basis:N"),
        ],
    )
    return [band, line]


def _points(measured: list[dict[str, object]], series: tuple[Series, ...]) -> list[alt.Chart]:
    base = hideable(alt.Chart(alt.Data(values=measured)), "series")
    x = alt.X("batch:Q", title="batch size (decoding requests)", scale=alt.Scale(zero=True, nice=False))
    spread = base.mark_rule(strokeWidth=2).encode(
        x=x, y=alt.Y("low:Q", title="ms"), y2="high:Q", color=color("series", series)
    )
    # Two series to a context: points of different contexts that coincide still show.
    shapes = [SHAPES[index // 2 % len(SHAPES)] for index in range(len(series))]
    scale = alt.Scale(domain=[each.label for each in series], range=shapes)
    dots = base.mark_point(filled=True, size=70, opacity=0.9).encode(
        x=x,
        y=alt.Y("ms:Q", title="ms"),
        color=color("series", series),
        shape=alt.Shape("series:N", scale=scale, legend=None),
        tooltip=[
            alt.Tooltip("series:N", title="measured"),
            alt.Tooltip("batch:Q", title="batch size"),
            alt.Tooltip("ms:Q", title="median, ms", format=",.3f"),
            alt.Tooltip("low:Q", title="p10, ms", format=",.3f"),
            alt.Tooltip("high:Q", title="p90, ms", format=",.3f"),
            alt.Tooltip("basis:N"),
        ],
    )
    return [spread, dots]


def _caption(findings: Findings, curve: bool, lines: bool, beyond: bool) -> str:
    parts = ["Points are medians over clean steps, bars run from p10 to p90."]
    scaling = findings.scaling
    if curve and scaling is not None:
        parts.append("Solid lines are the fitted laws, bands their 95 % intervals.")
    if lines:
        parts.append("Dashed: a least-squares line that misses the medians by too much to predict from.")
    if scaling is None and findings.scaling_reason:
        parts.append(f"No model: {findings.scaling_reason.rstrip('.')}.")
    if beyond:
        parts.append("Shaded: extrapolated.")
    return " ".join(parts)
