"""The root of the findings: every trace, and what they say together."""

from wavewise.findings.base import Result
from wavewise.findings.ceilings import Ceiling, Signature, WhatIf
from wavewise.findings.decode import FamilyRow, Samples, Summary, TraceFindings
from wavewise.findings.levers import Lever
from wavewise.findings.ranks import RankComparison
from wavewise.findings.recording import RecordedPoint, Recording
from wavewise.findings.scaling import ContextScaling, LatencyTarget, Premise, Scaling, ThroughputTarget

SCHEMA = "wavewise.findings/1"


class Note(Result, frozen=True, kw_only=True):
    """Something a reader must know before the numbers: mixed inputs, pooled repeats, assumptions.

    Attributes:
        level: "info", "caution" or "stop" (a comparison that was refused).
    """

    level: str
    code: str
    message: str


class OperatingPoint(Result, frozen=True, kw_only=True):
    """Clean decode steps of one batch size and one context length, pooled over the traces that hold it."""

    batch_size: int
    bucket: int | None
    context_length: int | None
    context_label: str | None = None
    gpu: str | None
    engine: str
    device: int
    traces: tuple[int, ...]
    clean_steps: int
    tokens_per_step: float | None = None
    verified_tokens_per_step: float | None = None
    step_ms: Summary
    gpu_span_ms: Summary
    busy_ms: Summary
    sum_ms: Summary
    boundary_ms: Summary | None = None
    launch_ms: float | None = None
    families: tuple[FamilyRow, ...]
    samples: Samples


class Findings(Result, frozen=True, kw_only=True):
    """Everything `analyze` computed, once; every report is a rendering of it."""

    schema: str = SCHEMA
    wavewise: str = ""
    traces: tuple[TraceFindings, ...]
    notes: tuple[Note, ...] = ()
    ranks: RankComparison | None = None
    recorded: tuple[RecordedPoint, ...] = ()
    recordings: tuple[Recording, ...] = ()
    operating_points: tuple[OperatingPoint, ...] = ()
    scaling: Scaling | None = None
    scaling_reason: str | None = None
    premise: Premise | None = None
    latency_target: LatencyTarget | None = None
    throughput_target: ThroughputTarget | None = None
    targets_reason: str | None = None
    context_scaling: tuple[ContextScaling, ...] = ()
    ceilings: tuple[Ceiling, ...] | None = None
    ceilings_reason: str | None = None
    what_ifs: tuple[WhatIf, ...] | None = None
    signature: Signature | None = None
    levers: tuple[Lever, ...] | None = None
    levers_reason: str | None = None
