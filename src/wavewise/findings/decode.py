"""What one trace says of one device: steps, idle, decode rows, kernels.

Units are in the field names: `_ns` integers in nanoseconds, `_us` and `_ms` floats.
"""

from wavewise.findings.base import Result


class Warning(Result, frozen=True, kw_only=True):
    """Something was left out, repaired or assumed while reading or analysing.

    Attributes:
        code: stable identifier; all codes are listed in docs/warnings.md.
        count: how many records or places it concerns.
        message: one sentence for a person.
        unsafe: which conclusions it makes unsafe ("idle", "steps", "kernels", "occupancy"), if any.
    """

    code: str
    count: int
    message: str
    unsafe: tuple[str, ...] = ()


class GpuRow(Result, frozen=True, kw_only=True):
    """The GPU as the trace or `--gpu` describes it.

    Attributes:
        spec: id in the GPU catalogue, None when it is not there.
        source: where the figures come from: "trace", "catalogue", "argument", "inferred".
    """

    name: str | None
    compute_capability: str | None
    sm_count: int | None
    spec: str | None
    source: str | None = None
    reason: str | None = None


class EventCounts(Result, frozen=True, kw_only=True):
    """Valid records of the whole document that concern this device, and what was left out."""

    read: int
    kernels: int
    memcpys: int
    memsets: int
    salvaged: bool
    warnings: tuple[Warning, ...]


class Idle(Result, frozen=True, kw_only=True):
    """The idle parts of the window. With busy time they add up to the window exactly.

    `safe` is False where a warning makes the split unsafe (under-recorded replays): the figures still add
    up, but renderers then do not draw conclusions from them.
    """

    intra_replay_ns: int
    intra_step_ns: int
    step_boundary_ns: int
    inter_burst_ns: int
    unrecorded_ns: int
    safe: bool = True
    unsafe_reason: str | None = None

    @property
    def total_ns(self) -> int:
        """All idle time."""
        return (
            self.intra_replay_ns
            + self.intra_step_ns
            + self.step_boundary_ns
            + self.inter_burst_ns
            + self.unrecorded_ns
        )


class StepRow(Result, frozen=True, kw_only=True):
    """One engine step.

    Attributes:
        index: position in the trace, from 0.
        kind: "decode", "prefill", "mixed", "capture", "warmup", "idle" or "unknown".
        batch_size: decoding requests by the engine's marker; None when only structure is known.
        context_requests: requests that prefill in this step.
        context_tokens: tokens they prefill; None when no marker says it.
        generation_tokens: tokens decoded or verified; over batch_size with speculative decoding.
        bucket: captured batch size of the replay.
        graph_replays: graph launches that this step owns and whose operations were recorded.
        start_ns, end_ns: first start and last end of the step's GPU operations, None without any.
        step_ns: step time (contract), None where it cannot be known.
        span_ns: GPU span inside the replay(s), None without replay.
        busy_ns: union over all of the step's operations, None where a graph of it was recorded as a whole.
        host_start_ns, host_end_ns: the marker, None without one.
        stall_ns: time between the step's first start and last end in which the GPU ran nothing.
        unclean_reason: why it feeds no statistic; None for a clean step.
    """

    index: int
    kind: str
    batch_size: int | None
    context_requests: int | None = None
    context_tokens: int | None
    generation_tokens: int | None = None
    bucket: int | None
    graph_replays: int
    start_ns: int | None
    end_ns: int | None
    step_ns: int | None = None
    span_ns: int | None = None
    busy_ns: int | None
    operations: int = 0
    host_start_ns: int | None = None
    host_end_ns: int | None = None
    stall_ns: int | None = None
    marker: str | None = None
    clean: bool
    unclean_reason: str | None


class Summary(Result, frozen=True, kw_only=True):
    """A distribution over clean steps; percentiles interpolate linearly."""

    median: float
    p10: float
    p90: float


class GapSummary(Result, frozen=True, kw_only=True):
    """Idle gaps inside replays, pooled over the clean steps."""

    median: float | None
    p90: float | None
    count_per_step: float
    reason: str | None = None


class FamilyRow(Result, frozen=True, kw_only=True):
    """One kernel family in the replay of a clean decode step (medians over clean steps).

    Attributes:
        sum_us_per_step: durations added.
        busy_us_per_step: union of the family's own intervals.
        share_of_busy: of the replay's busy time, overlapped time split equally among the families running.
        exclusive_us_per_step: time in which only this family runs: what vanishes if it were free.
    """

    family: str
    launches_per_step: float
    sum_us_per_step: float
    busy_us_per_step: float
    share_of_busy: float
    exclusive_us_per_step: float = 0.0


class Samples(Result, frozen=True, kw_only=True):
    """Per clean step, in step order: the raw figures behind the medians. All in nanoseconds.

    `families` maps a family to its summed kernel time in each clean step.
    """

    step_ns: tuple[int, ...]
    span_ns: tuple[int, ...]
    busy_ns: tuple[int, ...]
    sum_ns: tuple[int, ...]
    boundary_ns: tuple[int, ...]
    families: dict[str, tuple[int, ...]]


class Timeline(Result, frozen=True, kw_only=True):
    """The operations of one representative clean step (the one nearest the median span), as columns.

    Attributes:
        step_index: which step it is.
        start_ns: from the step's first replay operation; negative before it.
        kernel: index into `names` (and `families`).
        in_replay: whether the operation belongs to a graph replay.
    """

    step_index: int
    names: tuple[str, ...]
    families: tuple[str, ...]
    start_ns: tuple[int, ...]
    duration_ns: tuple[int, ...]
    stream: tuple[int, ...]
    kernel: tuple[int, ...]
    in_replay: tuple[bool, ...]


class DecodeRow(Result, frozen=True, kw_only=True):
    """All clean decode steps of one batch size in one trace.

    `busy_ms` and `sum_ms` are the replay's, `gpu_span_ms` runs from its first start to its last end; where there
    is no replay, all three are the whole step's.

    Attributes:
        bucket: the captured batch size that was replayed.
        context_length: key/value tokens per request, None where nothing tells it.
        tokens_per_step: tokens that a step is sure to yield over all requests: one for each. None where no marker
            tells the batch size.
        verified_tokens_per_step: tokens run through the model in a step; more than tokens_per_step with
            speculative decoding. How many of the surplus are accepted is not in a trace.
        boundary_ms: step time less GPU span.
        launch_ms: median time in the graph launch calls of a step, None where they are not recorded.
        coverage: share of busy time in a named family.
        overlap_us_per_step: the families' busy times less the replay's.
    """

    batch_size: int | None
    bucket: int | None
    context_length: int | None = None
    tokens_per_step: float | None = None
    verified_tokens_per_step: float | None = None
    clean_steps: int
    step_ms: Summary
    gpu_span_ms: Summary
    busy_ms: Summary
    sum_ms: Summary
    boundary_ms: Summary | None = None
    launch_ms: float | None = None
    intra_replay_gap_us: GapSummary
    operations_per_step: float
    replay_operations_per_step: float
    families: tuple[FamilyRow, ...]
    overlap_us_per_step: float
    coverage: float | None = None
    samples: Samples | None = None
    timeline: Timeline | None = None


class NextCta(Result, frozen=True, kw_only=True):
    """What one more resident CTA per SM would take: every limit that has to be met, None if it is met already."""

    ctas_per_sm: int
    shared_memory_bytes: int | None = None
    registers_per_thread: int | None = None
    threads_per_cta: int | None = None
    impossible_reason: str | None = None


class KernelRow(Result, frozen=True, kw_only=True):
    """One launch shape inside clean decode steps of one batch size, eager work of the step included.

    Attributes:
        launches_per_step, sum_us_per_step: medians over the clean steps; a step without it counts as 0.
        mean_launches_per_step, mean_us_per_step: means, which add up over kernels where medians do not.
        median_us: of one launch.
        in_replay: whether it runs inside the replay.
        persistent: the grid is exactly the slots, or one CTA per SM: one wave by design.
        recorded_occupancy: the profiler's own estimate (0 to 1), which reads 0 above 48 KB of shared memory.

    The occupancy fields are None with `occupancy_reason` where the launch or the GPU is not fully known.
    """

    name: str
    family: str
    batch_size: int | None
    launches_per_step: float
    median_us: float
    sum_us_per_step: float
    sum_us_per_step_p10: float | None = None
    sum_us_per_step_p90: float | None = None
    kind: str = "kernel"
    bucket: int | None = None
    in_replay: bool = True
    mean_launches_per_step: float | None = None
    mean_us_per_step: float | None = None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    ctas_per_sm: int | None = None
    limiter: str | None = None
    warps_per_sm: int | None = None
    occupancy: float | None = None
    sm_coverage: float | None = None
    waves: int | None = None
    wave_efficiency: float | None = None
    tail_ctas: int | None = None
    persistent: bool | None = None
    next_cta: NextCta | None = None
    occupancy_reason: str | None = None
    recorded_occupancy: float | None = None


class BucketUse(Result, frozen=True, kw_only=True):
    """How often a captured batch size was replayed for a batch size: the data for choosing buckets."""

    batch_size: int
    bucket: int | None
    steps: int


class TraceFindings(Result, frozen=True, kw_only=True):
    """One device of one document of one file.

    Attributes:
        device: device id in the trace.
        rank, world_size: of the distributed run, None when the trace does not say.
        document: index of the document in its file.
        context_length: key/value tokens per request of the decode steps, where known, with its source.
        model: its name, where the recording's run.json or a label tells it.
        segmentation: "markers", "structure" or "profiler_steps": on what the steps rest.
        unexplained_names: the ten largest kernel names left in family `other`, with their share of busy time.
    """

    path: str
    source: str
    engine: str
    gpu: GpuRow
    events: EventCounts
    window_ns: int
    busy_ns: int
    sum_ns: int
    device: int
    rank: int | None
    world_size: int | None = None
    document: int = 0
    context_length: int | None = None
    context_length_source: str | None = None
    model: str | None = None
    segmentation: str = "unknown"
    idle: Idle
    steps: tuple[StepRow, ...]
    decode: tuple[DecodeRow, ...]
    decode_reason: str | None = None
    kernels: tuple[KernelRow, ...]
    unexplained_names: tuple[tuple[str, float], ...] = ()
    bucket_use: tuple[BucketUse, ...] = ()
