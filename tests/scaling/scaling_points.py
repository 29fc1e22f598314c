"""Operating points with known samples."""

from collections.abc import Mapping, Sequence

import numpy as np

from wavewise.findings import FamilyRow, OperatingPoint, Samples, Summary

MISSION_MOE = (15.1, 15.9)
MISSION_ATTENTION = (13.1, 51.2)
"""Milliseconds at batch 32 and 80."""


def summary(values_ns: Sequence[float]) -> Summary:
    ms = np.asarray(values_ns, dtype=float) / 1e6
    return Summary(
        median=float(np.median(ms)), p10=float(np.percentile(ms, 10)), p90=float(np.percentile(ms, 90))
    )


def point(
    batch_size: int,
    families: Mapping[str, Sequence[float]],
    step: Sequence[float],
    *,
    span: Sequence[float] | None = None,
    busy: Sequence[float] | None = None,
    bucket: int | None = None,
    context: int | None = None,
    label: str | None = None,
    tokens: float | None = None,
    gpu: str = "NVIDIA H200",
    engine: str = "vllm",
    device: int = 0,
    exclusive: Mapping[str, float] | None = None,
    launch_ms: float | None = None,
) -> OperatingPoint:
    """An operating point from per-step milliseconds; span and busy are the families' sum where not given."""
    n = len(step)
    total = [sum(values[i] for values in families.values()) for i in range(n)]

    def ns(values: Sequence[float]) -> tuple[int, ...]:
        return tuple(round(value * 1e6) for value in values)

    step_ns, span_ns, busy_ns, sum_ns = ns(step), ns(span or total), ns(busy or total), ns(total)
    rows = tuple(
        FamilyRow(
            family=family,
            launches_per_step=1.0,
            sum_us_per_step=float(np.median(values)) * 1e3,
            busy_us_per_step=float(np.median(values)) * 1e3,
            share_of_busy=float(np.median(values) / (np.median(busy or total) or 1.0)),
            exclusive_us_per_step=1e3 * (exclusive or {}).get(family, float(np.median(values))),
        )
        for family, values in families.items()
    )
    boundary_ns = tuple(a - b for a, b in zip(step_ns, span_ns, strict=True))
    return OperatingPoint(
        batch_size=batch_size,
        bucket=bucket or batch_size,
        context_length=context,
        context_label=label,
        gpu=gpu,
        engine=engine,
        device=device,
        traces=(0,),
        clean_steps=n,
        tokens_per_step=tokens,
        step_ms=summary(step_ns),
        gpu_span_ms=summary(span_ns),
        busy_ms=summary(busy_ns),
        sum_ms=summary(sum_ns),
        boundary_ms=summary(boundary_ns),
        launch_ms=launch_ms,
        families=rows,
        samples=Samples(
            step_ns=step_ns,
            span_ns=span_ns,
            busy_ns=busy_ns,
            sum_ns=sum_ns,
            boundary_ns=boundary_ns,
            families={family: ns(values) for family, values in families.items()},
        ),
    )


def mission_figures(batch_size: int) -> tuple[float, float, float]:
    """(step, MoE, attention) in ms on the mission's lines: 18 + 1.05 B, and the two measured ends."""

    def line(ends: tuple[float, float]) -> float:
        return ends[0] + (ends[1] - ends[0]) / 48 * (batch_size - 32)

    return 18.0 + 1.05 * batch_size, line(MISSION_MOE), line(MISSION_ATTENTION)


def mission(sizes: Sequence[int] = (32, 80), steps: int = 6) -> list[OperatingPoint]:
    """The mission's sweep: step 18 + 1.05 B; MoE 15.1 to 15.9 and attention 13.1 to 51.2 ms."""
    points: list[OperatingPoint] = []
    for size in sizes:
        step, moe, attention = mission_figures(size)
        families = {"moe_gemm": [moe] * steps, "attention_split": [attention] * steps}
        points.append(point(size, families, [step] * steps))
    return points


def single(x: Mapping[int, Sequence[float]], family: str = "moe_gemm") -> list[OperatingPoint]:
    """A sweep of one family that is the whole step."""
    return [point(size, {family: values}, values) for size, values in x.items()]
