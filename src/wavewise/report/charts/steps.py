"""Every step of the most varied window: how long each took, by kind."""

import altair as alt

from wavewise.findings import Findings, StepRow, TraceFindings
from wavewise.report.charts.chart import Picture, color, hidden_parameter, hideable, palette
from wavewise.report.words import ms, short_path
from wavewise.units import NS_PER_MS

MOST_STEPS = 2000
KINDS = ("decode", "mixed", "prefill", "idle", "capture", "warmup", "unknown")


def steps(findings: Findings) -> Picture | None:
    """Step time by step of the window with the most kinds of step, on a logarithmic scale."""
    varied = [trace for trace in findings.traces if len({_kind(step) for step in _timed(trace)}) > 1]
    if not varied:
        return None
    trace = max(varied, key=lambda each: (len({step.kind for step in each.steps}), len(each.steps)))
    timed = _timed(trace)[:MOST_STEPS]
    values = [
        {
            "index": step.index,
            "ms": _length_ns(step) / NS_PER_MS,
            "kind": step.kind,
            "requests": step.batch_size,
            "clean": "clean" if step.clean else step.unclean_reason or "not clean",
            "stall": None if step.stall_ns is None else step.stall_ns / NS_PER_MS,
        }
        for step in timed
    ]
    series = palette([kind for kind in KINDS if any(value["kind"] == kind for value in values)])
    chart = (
        hideable(alt.Chart(alt.Data(values=values)), "kind")
        .mark_point(filled=True, size=46, opacity=0.9)
        .encode(
            x=alt.X("index:Q", title="step", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(nice=False)),
            y=alt.Y("ms:Q", title="step time, ms", scale=alt.Scale(type="log")),
            color=color("kind", series),
            shape=alt.Shape(
                "kind:N",
                scale=alt.Scale(
                    domain=[each.label for each in series],
                    range=["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "stroke"][
                        : len(series)
                    ],
                ),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
            tooltip=[
                alt.Tooltip("index:Q", title="step"),
                alt.Tooltip("kind:N"),
                alt.Tooltip("requests:Q", title="decoding requests"),
                alt.Tooltip("ms:Q", title="step time, ms", format=",.3f"),
                alt.Tooltip("stall:Q", title="longest stall, ms", format=",.3f"),
                alt.Tooltip("clean:N", title="statistics"),
            ],
        )
        .properties(height=240)
        .add_params(hidden_parameter())
    )
    longest = max(timed, key=_length_ns)
    return Picture(
        name="steps",
        title=f"Steps of {short_path(trace.path)}",
        alt=(
            f"Step times of {len(timed)} steps on a logarithmic scale. The longest is step {longest.index} "
            f"({longest.kind}), {ms(_length_ns(longest) / NS_PER_MS)}."
        ),
        chart=chart,
        series=series,
        caption="Logarithmic scale; steps without GPU work are left out. Busy time stands in where the step "
        "time cannot be known.",
    )


def _timed(trace: TraceFindings) -> list[StepRow]:
    return [step for step in trace.steps if _length_ns(step) > 0]


def _length_ns(step: StepRow) -> int:
    return step.step_ns or step.busy_ns or 0


def _kind(step: StepRow) -> tuple[str, int | None]:
    return step.kind, step.batch_size
