"""Findings built by hand, with figures whose right savings can be worked out on paper."""

from wavewise.findings import (
    BucketUse,
    DecodeRow,
    EventCounts,
    FamilyRow,
    Findings,
    Fit,
    GapSummary,
    GpuRow,
    Idle,
    KernelRow,
    NextCta,
    OperatingPoint,
    Point,
    Samples,
    Scaling,
    StepRow,
    Summary,
    Timeline,
    TraceFindings,
)

PRO_6000 = GpuRow(
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    compute_capability="12.0",
    sm_count=188,
    spec="rtx-pro-6000",
    source="trace",
)
H200 = GpuRow(name="NVIDIA H200", compute_capability="9.0", sm_count=132, spec="h200", source="trace")


def summary(value: float) -> Summary:
    return Summary(median=value, p10=value, p90=value)


def kernel(
    family: str,
    total_us: float,
    launches: float = 1.0,
    *,
    batch: int | None = 64,
    name: str | None = None,
    grid: tuple[int, int, int] | None = (64, 2, 2),
    ctas_per_sm: int | None = 1,
    **more: object,
) -> KernelRow:
    return KernelRow(
        name=name or f"{family}_kernel",
        family=family,
        batch_size=batch,
        launches_per_step=launches,
        median_us=total_us / launches,
        sum_us_per_step=total_us,
        grid=grid,
        block=(128, 1, 1),
        registers_per_thread=255,
        shared_memory_bytes=80_000,
        ctas_per_sm=ctas_per_sm,
        **more,  # type: ignore[arg-type]
    )


def next_cta(ctas: int = 2, shared: int | None = 50_176) -> NextCta:
    return NextCta(ctas_per_sm=ctas, shared_memory_bytes=shared)


def point(
    batch: int,
    families: dict[str, float],
    *,
    bucket: int | None = None,
    boundary_us: float | None = 100.0,
    launches: dict[str, float] | None = None,
    extra_step_us: float = 0.0,
    launch_us: float | None = None,
    trace: int = 0,
    context: int | None = None,
    exclusive: dict[str, float] | None = None,
) -> OperatingPoint:
    """An operating point whose families run one after another: span = busy = sum."""
    busy = sum(families.values())
    rows = tuple(
        FamilyRow(
            family=name,
            launches_per_step=(launches or {}).get(name, 1.0),
            sum_us_per_step=value,
            busy_us_per_step=value,
            share_of_busy=value / busy,
            exclusive_us_per_step=(exclusive or {}).get(name, value),
        )
        for name, value in families.items()
    )
    step = busy + (boundary_us or 0.0) + extra_step_us
    return OperatingPoint(
        batch_size=batch,
        bucket=batch if bucket is None else bucket,
        context_length=context,
        gpu=None,
        engine="vllm",
        device=0,
        traces=(trace,),
        clean_steps=6,
        step_ms=summary(step / 1e3),
        gpu_span_ms=summary(busy / 1e3),
        busy_ms=summary(busy / 1e3),
        sum_ms=summary(busy / 1e3),
        boundary_ms=None if boundary_us is None else summary(boundary_us / 1e3),
        launch_ms=None if launch_us is None else launch_us / 1e3,
        families=rows,
        samples=Samples(step_ns=(), span_ns=(), busy_ns=(), sum_ns=(), boundary_ns=(), families={}),
    )


def decode_row(made: OperatingPoint, timeline: Timeline | None = None) -> DecodeRow:
    return DecodeRow(
        batch_size=made.batch_size,
        bucket=made.bucket,
        clean_steps=made.clean_steps,
        step_ms=made.step_ms,
        gpu_span_ms=made.gpu_span_ms,
        busy_ms=made.busy_ms,
        sum_ms=made.sum_ms,
        boundary_ms=made.boundary_ms,
        launch_ms=made.launch_ms,
        intra_replay_gap_us=GapSummary(median=0.1, p90=0.2, count_per_step=1.0),
        operations_per_step=10.0,
        replay_operations_per_step=10.0,
        families=made.families,
        overlap_us_per_step=0.0,
        timeline=timeline,
    )


def decode_step(index: int, batch: int, bucket: int, span_us: float) -> StepRow:
    return StepRow(
        index=index,
        kind="decode",
        batch_size=batch,
        context_tokens=0,
        bucket=bucket,
        graph_replays=1,
        start_ns=0,
        end_ns=int(span_us * 1e3),
        span_ns=int(span_us * 1e3),
        busy_ns=int(span_us * 1e3),
        clean=False,
        unclean_reason="batch size changes",
    )


def findings(
    points: tuple[OperatingPoint, ...],
    kernels: tuple[KernelRow, ...] = (),
    *,
    gpu: GpuRow = H200,
    engine: str = "vllm",
    timelines: dict[int, Timeline] | None = None,
    bucket_use: tuple[BucketUse, ...] = (),
    steps: tuple[StepRow, ...] = (),
    fits: tuple[Fit, ...] = (),
) -> Findings:
    """One trace that holds all the points."""
    trace = TraceFindings(
        path="built.json",
        source="kineto",
        engine=engine,
        gpu=gpu,
        events=EventCounts(read=0, kernels=0, memcpys=0, memsets=0, salvaged=False, warnings=()),
        window_ns=0,
        busy_ns=0,
        sum_ns=0,
        device=0,
        rank=None,
        idle=Idle(intra_replay_ns=0, intra_step_ns=0, step_boundary_ns=0, inter_burst_ns=0, unrecorded_ns=0),
        steps=steps,
        decode=tuple(decode_row(p, (timelines or {}).get(p.batch_size)) for p in points),
        kernels=kernels,
        bucket_use=bucket_use,
    )
    scaling = None
    if fits:
        scaling = Scaling(
            step=line_fit("step"),
            span=None,
            families=fits,
            unattributed_slope_ms_per_request=None,
            overlap_slope_ms_per_request=None,
            throughput=(),
            asymptote_tokens_per_s=None,
            asymptote_if_host_free_tokens_per_s=None,
        )
    return Findings(traces=(trace,), operating_points=points, scaling=scaling)


def line_fit(family: str) -> Fit:
    return fit(family, "linear", {"floor_ms": 1.0, "slope_ms_per_request": 0.01})


def fit(family: str, model: str, parameters: dict[str, float]) -> Fit:
    return Fit(
        family=family,
        floor_ms=1.0,
        slope_ms_per_request=0.01,
        floor_ms_95=None,
        slope_ms_per_request_95=None,
        model=model,
        parameters=parameters,
        max_abs_residual_ms=0.0,
        reference={},
        points=(Point(batch_size=1, value_ms=1.0, samples=6),),
    )


def expert_fit(each_us: float = 20.0, experts: int = 256, active: int = 6) -> Fit:
    return fit(
        "moe_gemm",
        "expert_activation",
        {
            "fixed_ms": 0.3,
            "per_distinct_expert_ms": each_us / 1e3,
            "per_request_ms": 0.001,
            "experts": float(experts),
            "active_experts": float(active),
        },
    )


def timeline(rows: list[tuple[str, float, int]], *, in_replay: bool = True) -> Timeline:
    """A timeline of (family, us, stream), one after another."""
    starts = [0.0]
    for _, us, _ in rows:
        starts.append(starts[-1] + us)
    names = tuple(dict.fromkeys(family for family, _, _ in rows))
    return Timeline(
        step_index=3,
        names=names,
        families=names,
        start_ns=tuple(int(s * 1e3) for s in starts[:-1]),
        duration_ns=tuple(int(us * 1e3) for _, us, _ in rows),
        stream=tuple(stream for _, _, stream in rows),
        kernel=tuple(names.index(family) for family, _, _ in rows),
        in_replay=tuple(in_replay for _ in rows),
    )
