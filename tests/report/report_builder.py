"""Builds Findings for the tests of this room: the figures of the recorded H200 sweep, by hand, no analysis.

Replay spans, busy times and the three named families are the recorded ones (microseconds and milliseconds as
in the traces' own table); the rest of a replay's time is divided over further families in fixed proportions.
"""

from wavewise.findings import (
    BucketUse,
    Ceiling,
    DecodeRow,
    EventCounts,
    FamilyRow,
    Findings,
    GapSummary,
    GpuRow,
    Idle,
    KernelRow,
    Lever,
    NextCta,
    Note,
    OperatingPoint,
    Samples,
    StepRow,
    Summary,
    Timeline,
    TraceFindings,
    Warning,
)

H200 = GpuRow(
    name="NVIDIA H200", compute_capability="9.0", sm_count=132, spec="h200", source="trace", reason=None
)

# batch: (span ms, busy ms, operations, window ms, busy in file ms, MoE us, split us, schedule us, step ms)
SWEEP = {
    1: (1.686, 1.635, 336, 57.757, 15.928, 368.0, 126.0, 206.0, 6.9),
    8: (2.277, 2.228, 336, 48.694, 20.750, 910.0, 123.0, 213.0, 6.0),
    16: (2.986, 2.936, 336, 63.502, 26.538, 1556.0, 147.0, 219.0, 7.6),
    32: (4.202, 4.151, 359, 83.149, 36.475, 2633.0, 172.0, 231.0, 10.1),
    64: (5.916, 5.863, 359, 69.853, 50.609, 4207.0, 230.0, 253.0, 8.4),
    80: (6.625, 6.568, 359, 116.386, 56.405, 4748.0, 245.0, 272.0, 14.2),
}

REST = (("dense_gemm", 88, 0.55), ("quant", 43, 0.16), ("residual_mix", 31, 0.13), ("indexer", 12, 0.09),
        ("attention_combine", 8, 0.04), ("memcpy", 3, 0.02), ("other", 5, 0.01))  # fmt: skip

MARLIN = (
    "void marlin_moe_wna16::Marlin<1125899906909960l, 562949953487106l, 1125899906909960l, 128, 1, 8, 4, true>"
    "(int4 const*, int4 const*, int4*, float*, int)"
)
SPLIT = (
    "void sm90::decode::sparse_fp8::flash_fwd_splitkv_mla_fp8_sparse_kernel<sm90::decode::sparse_fp8::"
    "KernelTemplate<(ModelType)1, 64> >(SparseParams)"
)
SCHEDULE = "smxx::decode::get_mla_metadata_kernel(GetDecodeSchedMetaParams)"
GEMM = "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 8192u, 1u>(float*)"
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >"
    "(int, at::native::FillFunctor<int>, std::array<char*, 1ul>)"
)


def summary(median: float, spread: float = 0.01) -> Summary:
    return Summary(median=median, p10=median * (1 - spread), p90=median * (1 + 2 * spread))


def family(name: str, launches: float, sum_us: float, busy_us: float) -> FamilyRow:
    return FamilyRow(
        family=name,
        launches_per_step=launches,
        sum_us_per_step=sum_us,
        busy_us_per_step=sum_us,
        share_of_busy=sum_us / busy_us,
        exclusive_us_per_step=sum_us * 0.95,
    )


def families(batch: int) -> tuple[FamilyRow, ...]:
    _, busy, _, _, _, moe, split, schedule, _ = SWEEP[batch]
    rest = busy * 1000 * 1.02 - moe - split - schedule
    rows = [
        family("moe_gemm", 16, moe, busy * 1000),
        family("attention_split", 8, split, busy * 1000),
        family("attention_schedule", 8, schedule, busy * 1000),
        *(family(name, count, rest * share, busy * 1000) for name, count, share in REST),
    ]
    return tuple(sorted(rows, key=lambda row: -row.sum_us_per_step))


def kernels(batch: int) -> tuple[KernelRow, ...]:
    _, busy, _, _, _, moe, split, schedule, _ = SWEEP[batch]
    rest = busy * 1000 * 1.02 - moe - split - schedule
    shared = {"batch_size": batch, "recorded_occupancy": 0.0}
    return (
        KernelRow(
            name=MARLIN, family="moe_gemm", launches_per_step=16, median_us=moe / 16, sum_us_per_step=moe,
            grid=(528, 1, 1), block=(128, 1, 1), registers_per_thread=119, shared_memory_bytes=57088,
            ctas_per_sm=4, limiter="registers", warps_per_sm=16, occupancy=0.25, sm_coverage=1.0, waves=1,
            wave_efficiency=1.0, persistent=True,
            next_cta=NextCta(ctas_per_sm=5, shared_memory_bytes=45670, registers_per_thread=96), **shared,
        ),
        KernelRow(
            name=GEMM, family="dense_gemm", launches_per_step=88, median_us=rest * 0.55 / 88,
            sum_us_per_step=rest * 0.55, grid=(132, 1, 1), block=(256, 1, 1), registers_per_thread=248,
            shared_memory_bytes=205312, ctas_per_sm=1, limiter="registers, shared memory", warps_per_sm=8,
            occupancy=0.125, sm_coverage=1.0, waves=1, wave_efficiency=1.0, persistent=True,
            next_cta=NextCta(ctas_per_sm=2, shared_memory_bytes=115712, registers_per_thread=128), **shared,
        ),
        KernelRow(
            name=SCHEDULE, family="attention_schedule", launches_per_step=8, median_us=schedule / 8,
            sum_us_per_step=schedule, grid=(1, 1, 1), block=(32, 1, 1), registers_per_thread=35,
            shared_memory_bytes=1284, ctas_per_sm=32, limiter="slots", warps_per_sm=32, occupancy=0.5,
            sm_coverage=1 / 132, waves=1, wave_efficiency=1 / 4224, tail_ctas=1,
            next_cta=NextCta(ctas_per_sm=33, impossible_reason="an SM has 32 CTA slots"), **shared,
        ),
        KernelRow(
            name=SPLIT, family="attention_split", launches_per_step=8, median_us=split / 8,
            sum_us_per_step=split, grid=(1, 1, 132), block=(384, 1, 1), registers_per_thread=168,
            shared_memory_bytes=208896, ctas_per_sm=1, limiter="shared memory", warps_per_sm=12,
            occupancy=0.1875, sm_coverage=1.0, waves=1, wave_efficiency=1.0, persistent=True,
            next_cta=NextCta(ctas_per_sm=2, shared_memory_bytes=115712, registers_per_thread=80), **shared,
        ),
        KernelRow(
            name="_fused_inv_rope_fp8_quant_per_head", family="quant", launches_per_step=8,
            median_us=rest * 0.16 / 8, sum_us_per_step=rest * 0.16, grid=(300, 1, 1), block=(1024, 1, 1),
            registers_per_thread=64, shared_memory_bytes=0, ctas_per_sm=1, limiter="registers",
            warps_per_sm=32, occupancy=0.5, sm_coverage=1.0, waves=3, wave_efficiency=300 / 396, tail_ctas=36,
            next_cta=NextCta(ctas_per_sm=2, registers_per_thread=32), **shared,
        ),
        KernelRow(
            name=FILL, family="elementwise", launches_per_step=11, median_us=1.6, sum_us_per_step=17.6,
            grid=None, block=None, registers_per_thread=None, shared_memory_bytes=None,
            occupancy_reason="the trace does not record this launch's registers", **shared,
        ),
    )  # fmt: skip


def timeline(batch: int, operations: int | None = None) -> Timeline:
    span, _, count, *_ = SWEEP[batch]
    count = operations or count
    names = (MARLIN, GEMM, SCHEDULE, SPLIT, "_fused_inv_rope_fp8_quant_per_head", FILL)
    its_family = ("moe_gemm", "dense_gemm", "attention_schedule", "attention_split", "quant", "elementwise")
    pitch = span * 1e6 / count
    starts = tuple(round(index * pitch) for index in range(count))
    return Timeline(
        step_index=3,
        names=names,
        families=its_family,
        start_ns=starts,
        duration_ns=tuple(max(100, round(pitch * (0.98 if index % 7 else 0.8))) for index in range(count)),
        stream=tuple(7 if index % 5 else 482 for index in range(count)),
        kernel=tuple((index * index) % len(names) for index in range(count)),
        in_replay=(True,) * count,
    )


def decode_row(batch: int, operations: int | None = None) -> DecodeRow:
    span, busy, count, _, _, _, _, _, step = SWEEP[batch]
    rows = families(batch)
    total = sum(row.sum_us_per_step for row in rows)
    return DecodeRow(
        batch_size=batch, bucket=batch, clean_steps=6,
        step_ms=summary(step), gpu_span_ms=summary(span, 0.001), busy_ms=summary(busy, 0.001),
        sum_ms=summary(total / 1000, 0.001), boundary_ms=summary(step - span, 0.02), launch_ms=0.4,
        intra_replay_gap_us=GapSummary(median=0.9, p90=1.4, count_per_step=52.0),
        operations_per_step=count + 72.0, replay_operations_per_step=float(count),
        families=rows, overlap_us_per_step=total - busy * 1000, coverage=0.991,
        samples=samples(batch), timeline=timeline(batch, operations),
    )  # fmt: skip


def samples(batch: int) -> Samples:
    span, busy, _, _, _, _, _, _, step = SWEEP[batch]
    wobble = (-0.004, -0.002, -0.001, 0.001, 0.003, 0.008)
    each = lambda ms: tuple(round(ms * 1e6 * (1 + w)) for w in wobble)  # noqa: E731
    return Samples(
        step_ns=each(step), span_ns=each(span), busy_ns=each(busy), sum_ns=each(busy * 1.02),
        boundary_ns=each(step - span),
        families={row.family: each(row.sum_us_per_step / 1000) for row in families(batch)},
    )  # fmt: skip


def steps(batch: int) -> tuple[StepRow, ...]:
    span, busy, count, _, _, _, _, _, step = SWEEP[batch]
    return tuple(
        StepRow(
            index=index, kind="decode", batch_size=batch, context_tokens=0, context_requests=0,
            generation_tokens=batch, bucket=batch, graph_replays=1, start_ns=round(index * step * 1e6),
            end_ns=round((index * step + span) * 1e6), step_ns=round(step * 1e6) if index < 7 else None,
            span_ns=round(span * 1e6), busy_ns=round(busy * 1e6), operations=count + 72, stall_ns=1_400,
            marker=f"execute_context_0(0)_generation_{batch}({batch})", clean=0 < index < 7,
            unclean_reason=None if 0 < index < 7 else "edge of the recording",
        )
        for index in range(8)
    )  # fmt: skip


def trace(batch: int, operations: int | None = None) -> TraceFindings:
    span, busy, _, window, file_busy, *_ = SWEEP[batch]
    inside = round((span - busy) * 1e6) * 8
    window_ns, busy_ns = round(window * 1e6), round(file_busy * 1e6)
    return TraceFindings(
        path=f"sweep/context4k/bs{batch:03d}.json.gz", source="kineto", engine="vllm", gpu=H200,
        events=EventCounts(read=9000, kernels=3300, memcpys=120, memsets=20, salvaged=False, warnings=()),
        window_ns=window_ns, busy_ns=busy_ns, sum_ns=round(busy_ns * 1.02), device=0, rank=None,
        context_length=4096, context_length_source="run.json", segmentation="markers",
        idle=Idle(intra_replay_ns=inside, intra_step_ns=0, step_boundary_ns=window_ns - busy_ns - inside,
                  inter_burst_ns=0, unrecorded_ns=0),
        steps=steps(batch), decode=(decode_row(batch, operations),), kernels=kernels(batch),
        unexplained_names=(("memcpy32_post", 0.002), ("_save_partial_states_kernel", 0.001)),
        bucket_use=(BucketUse(batch_size=batch, bucket=batch, steps=8),),
    )  # fmt: skip


def falling() -> TraceFindings:
    sizes = (94, 93, 91, 89, 87, 85, 83, 81)
    return TraceFindings(
        path="sweep/context4k/falling-bucket096.json.gz", source="kineto", engine="vllm", gpu=H200,
        events=EventCounts(read=9000, kernels=3500, memcpys=90, memsets=10, salvaged=False, warnings=()),
        window_ns=130_874_000, busy_ns=60_256_000, sum_ns=61_000_000, device=0, rank=None,
        segmentation="markers",
        idle=Idle(intra_replay_ns=456_000, intra_step_ns=0, step_boundary_ns=70_162_000, inter_burst_ns=0,
                  unrecorded_ns=0),
        steps=tuple(
            StepRow(index=index, kind="decode", batch_size=size, context_tokens=0, bucket=96, graph_replays=1,
                    start_ns=index * 16_000_000, end_ns=index * 16_000_000 + 7_100_000, busy_ns=7_043_000,
                    clean=False, unclean_reason="a neighbour has another batch size")
            for index, size in enumerate(sizes)
        ),
        decode=(),
        decode_reason="the batch size falls at every one of its 8 decode steps (94 to 81), so no step has "
        "neighbours of its own size",
        kernels=(),
        bucket_use=tuple(BucketUse(batch_size=size, bucket=96, steps=1) for size in sizes),
    )  # fmt: skip


def mixed() -> TraceFindings:
    def step(index: int, kind: str, batch: int | None, start_ms: float, span_ms: float, stall_ms: float,
             tokens: int, bucket: int | None) -> StepRow:  # fmt: skip
        return StepRow(
            index=index, kind=kind, batch_size=batch, context_requests=2 if tokens else 0,
            context_tokens=tokens, generation_tokens=batch, bucket=bucket, graph_replays=1 if bucket else 0,
            start_ns=round(start_ms * 1e6) if span_ms else None,
            end_ns=round((start_ms + span_ms) * 1e6) if span_ms else None,
            step_ns=round((span_ms + 4) * 1e6) if span_ms else None,
            busy_ns=round(max(0.0, span_ms - stall_ms) * 1e6), stall_ns=round(stall_ms * 1e6),
            clean=False,
            unclean_reason="an engine step without GPU work" if not span_ms else "not a decode step"
            if kind != "decode" else "a neighbour has another batch size",
        )  # fmt: skip

    rows = (
        step(0, "prefill", 0, 0, 80, 0.4, 16384, None),
        step(1, "mixed", 8, 90, 41_060, 41_012.0, 8192, None),
        step(2, "decode", 24, 41_160, 4, 0.01, 0, 32),
        step(3, "decode", 22, 41_170, 4, 0.01, 0, 32),
        step(4, "idle", 0, 41_180, 0, 0.0, 0, None),
        step(5, "decode", 16, 41_400, 3, 0.01, 0, 16),
    )
    return TraceFindings(
        path="sweep/mixed.json.gz", source="kineto", engine="vllm", gpu=H200,
        events=EventCounts(
            read=60_000, kernels=14_000, memcpys=400, memsets=90, salvaged=True,
            warnings=(Warning(code="truncated", count=1, message="The file ends inside an event; what stands "
                              "before it was read.", unsafe=()),),
        ),
        window_ns=41_700_000_000, busy_ns=390_000_000, sum_ns=400_000_000, device=0, rank=None,
        segmentation="markers",
        idle=Idle(intra_replay_ns=2_000_000, intra_step_ns=41_030_000_000, step_boundary_ns=128_000_000,
                  inter_burst_ns=150_000_000, unrecorded_ns=0),
        steps=rows, decode=(),
        decode_reason="no decode step has neighbours of its own batch size", kernels=(),
        bucket_use=(BucketUse(batch_size=24, bucket=32, steps=1), BucketUse(batch_size=22, bucket=32, steps=1),
                    BucketUse(batch_size=16, bucket=16, steps=1)),
    )  # fmt: skip


def point(batch: int, index: int) -> OperatingPoint:
    row = decode_row(batch)
    assert row.samples is not None
    return OperatingPoint(
        batch_size=batch, bucket=batch, context_length=4096, gpu="NVIDIA H200", engine="vllm", device=0,
        traces=(index,), clean_steps=6, step_ms=row.step_ms, gpu_span_ms=row.gpu_span_ms, busy_ms=row.busy_ms,
        sum_ms=row.sum_ms, boundary_ms=row.boundary_ms, launch_ms=row.launch_ms, families=row.families,
        samples=row.samples,
    )  # fmt: skip


def sweep_findings(operations: int | None = None) -> Findings:
    """The whole sweep, a window with a falling batch and a mixed one; scaling and levers not filled."""
    batches = tuple(SWEEP)
    return Findings(
        wavewise="0.1.0",
        traces=(*(trace(batch, operations) for batch in batches), falling(), mixed()),
        notes=(
            Note(level="info", code="pooled", message="Rows of known contexts are never pooled."),
            Note(level="caution", code="unknown_context",
                 message="The context length of 2 traces is not known; one context is assumed."),
        ),
        operating_points=tuple(point(batch, index) for index, batch in enumerate(batches)),
        scaling_reason="this build of the test fixture does not fit",
        ceilings=ceilings(),
        levers=levers(),
    )  # fmt: skip


def ceilings() -> tuple[Ceiling, ...]:
    found: list[Ceiling] = []
    for basis in ("kernel_sum", "busy", "step"):
        for row in families(80):
            total = sum(each.sum_us_per_step for each in families(80))
            found.append(
                Ceiling(family=row.family, batch_size=80, basis=basis,
                        speedup_if_free=total / (total - row.sum_us_per_step),
                        basis_ms=14.2 if basis == "step" else 6.568 if basis == "busy" else total / 1000,
                        removable_ms=(row.sum_us_per_step if basis == "kernel_sum"
                                      else row.exclusive_us_per_step) / 1000,
                        host_floor_ms=7.4 if basis == "step" else None,
                        speedup_if_2x=total / (total - row.sum_us_per_step / 2),
                        tokens_per_s_if_free=80 / 14.2e-3 if basis == "step" else None,
                        binding="host" if basis == "step" else None)
            )  # fmt: skip
    return tuple(found)


def levers() -> tuple[Lever, ...]:
    return (
        Lever(id="reuse-schedule", title="Compute the attention schedule once per step", risk="low",
              family="attention_schedule", batch_size=80, predicted_saving_us_per_step=238.0,
              basis="272 us in 8 launches, 7 of which repeat the first", verdict_in_ledger=None, confidence="high",
              evidence="get_mla_metadata_kernel runs 8 times per step"),
        Lever(id="expert-parallel", title="Expert parallelism", risk="high", family="moe_gemm", batch_size=80,
              predicted_saving_us_per_step=None, basis="needs a second GPU", verdict_in_ledger="contradicted",
              evidence="ledger: worse at small batch over PCIe; needs several nodes",
              needs="a trace of two ranks"),
    )  # fmt: skip


def no_decode_findings() -> Findings:
    return Findings(
        wavewise="0.1.0", traces=(falling(),), operating_points=(),
        scaling_reason="no clean decode step", ceilings_reason="no clean decode step",
        levers_reason="no clean decode step",
    )  # fmt: skip
