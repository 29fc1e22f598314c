"""What each tool takes and gives, as records: the JSON schemas that an assistant sees follow from them."""

from typing import Annotated

from msgspec import Meta, Struct

from wavewise.findings import (
    ContextScaling,
    FamilyRow,
    Idle,
    KernelRow,
    LatencyTarget,
    Lever,
    NextCta,
    Note,
    Scaling,
    Summary,
    ThroughputTarget,
    Warning,
)
from wavewise.levers.ledger import Claim, Entry
from wavewise.report.diff import Diff

Named = Annotated[str, Meta(min_length=1)]
"""A path: an empty one would mean the current folder."""

Paths = Annotated[
    tuple[Named, ...],
    Meta(description="Trace files, or folders of them, on the server's machine.", min_length=1),
]
GpuName = Annotated[str, Meta(description="Catalogue id or driver name: h200, rtx-pro-6000, NVIDIA B200.")]
Grid = Annotated[
    str, Meta(description="Launch grid: 64x2x8, 512, or a formula of named values: B, 64, nsplit.")
]


class Analyse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where each millisecond of a decode step goes: verdict, families, kernels, idle time, levers."""

    paths: Paths
    gpu: Annotated[str | None, Meta(description="The GPU, where the traces do not say it or are wrong.")] = (
        None
    )
    contexts: Annotated[
        dict[str, str], Meta(description="Context length of a path, where the trace does not say it: 12k.")
    ] = {}
    max_kernels: Annotated[int, Meta(description="Kernels to list at each batch size.", ge=0, le=500)] = 12


class PointSummary(Struct, frozen=True, kw_only=True):
    """One batch size and context length: medians over clean decode steps, and its families and kernels."""

    batch_size: int | None
    bucket: int | None
    context: str | None
    clean_steps: int
    step_ms: Summary
    gpu_span_ms: Summary
    busy_ms: Summary
    sum_ms: Summary
    boundary_ms: Summary | None
    families: tuple[FamilyRow, ...]
    kernels: tuple[KernelRow, ...]


class TraceSummary(Struct, frozen=True, kw_only=True):
    """One device of one trace: what is in it and how the GPU's time is split."""

    path: str
    device: int
    gpu: str | None
    engine: str
    steps_by_kind: dict[str, int]
    clean_steps: int
    unclean_reasons: dict[str, int]
    window_ns: int
    busy_ns: int
    idle: Idle
    warnings: tuple[Warning, ...]
    unnamed_kernels: tuple[tuple[str, float], ...]


class Analysis(Struct, frozen=True, kw_only=True):
    """The findings in short. `verdict` and `summary` are sentences that hold as they stand."""

    title: str
    notes: tuple[Note, ...]
    verdict: tuple[str, ...]
    summary: tuple[str, ...]
    points: tuple[PointSummary, ...]
    traces: tuple[TraceSummary, ...]
    levers: tuple[Lever, ...] | None
    levers_reason: str | None
    scaling_reason: str | None


class Occupancy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many CTAs of a launch fit on one SM, what limits them, and what one more would take."""

    gpu: GpuName
    threads: Annotated[int, Meta(description="Threads per CTA.", ge=1)]
    registers: Annotated[
        int, Meta(description="Registers per thread, as the compiler assigned them.", ge=0)
    ] = 0
    shared_memory_bytes: Annotated[int, Meta(description="Per CTA, static + dynamic.", ge=0)] = 0
    grid: Grid | None = None
    values: Annotated[dict[str, int], Meta(description="Values of the names in the grid's formula.")] = {}
    cluster_size: Annotated[int, Meta(ge=1)] | None = None


class WaveRow(Struct, frozen=True, kw_only=True):
    """A grid laid out on the slots. Waves are whole numbers; the tail is what the last one lacks."""

    values: dict[str, int]
    ctas: int
    slots: int
    waves: int
    wave_efficiency: float
    tail_ctas: int
    sm_coverage: float


class OccupancyResult(Struct, frozen=True, kw_only=True):
    """Residency of a launch; None with a reason where it cannot be known."""

    gpu: str
    sm_count: int | None
    ctas_per_sm: int | None
    limiter: str | None
    warps_per_sm: int | None
    occupancy: float | None
    ctas_allowed_by: dict[str, int]
    next_cta: NextCta | None
    waves: WaveRow | None
    reason: str | None
    note: str | None


class Waves(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many waves a grid takes, and how full they are, for every combination of the values given."""

    grid: Grid
    values: Annotated[
        dict[str, tuple[int, ...]],
        Meta(description='Values to try for each name in the grid: {"B": [32, 64]}.'),
    ] = {}
    gpu: GpuName | None = None
    sm_count: Annotated[int, Meta(description="SMs, in place of gpu.", ge=1)] | None = None
    ctas_per_sm: Annotated[int, Meta(description="Residency; the tool `occupancy` computes it.", ge=1)] = 1
    cluster_size: Annotated[int, Meta(ge=1)] | None = None


class WavesResult(Struct, frozen=True, kw_only=True):
    """One row for each combination."""

    gpu: str | None
    sm_count: int
    ctas_per_sm: int
    rows: tuple[WaveRow, ...]


class Audit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compile a Triton kernel without a GPU: registers, spills, shared memory, residency, ranked by GPU.

    This imports the kernel's Python file on the server's machine.
    """

    kernel: Annotated[str, Meta(description="path/to/module.py:kernel, or a .cubin or library.")]
    gpus: Annotated[tuple[str, ...], Meta(description="GPUs to compile for.", min_length=1)]
    signature: Annotated[
        str, Meta(description="Types of the parameters that are no constants: '*bf16, *i32, i32'.")
    ] = ""
    constants: Annotated[
        dict[str, tuple[int | float | bool | str, ...]], Meta(description="Values to try for each constexpr.")
    ] = {}
    num_warps: tuple[int, ...] = (4,)
    num_stages: tuple[int, ...] = (3,)
    grid: Grid | None = None
    values: Annotated[dict[str, int], Meta(description="Values of the names in the grid's formula.")] = {}


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to launch split-KV sparse-MLA decode attention: kernel, splits, waves, predicted time."""

    gpu: GpuName
    batch: Annotated[int, Meta(ge=1)]
    heads: Annotated[int, Meta(description="Query heads per GPU: 8, 16, 32, 64 or 128.")] = 64
    topk: Annotated[int, Meta(description="Keys that the indexer picks for each query.", ge=0)] = 512
    window: Annotated[
        int, Meta(description="Keys of the sliding window, attended beside them; 0 for none.", ge=0)
    ] = 128
    queries: Annotated[
        int, Meta(description="Queries per request: 2 to 4 for speculative verification.", ge=1, le=4)
    ] = 1
    num_splits: (
        Annotated[int, Meta(description="Fixes the split count; searched if absent.", ge=1)] | None
    ) = None


class PlanResult(Struct, frozen=True, kw_only=True):
    """The cheapest launch by the model; times are predictions."""

    gpu: str
    kernel: str
    num_splits: int
    grid: tuple[int, int, int]
    ctas_per_sm: int
    limiter: str
    waves: int
    wave_efficiency: float
    predicted_us: float
    body_us: float
    combine_us: float
    model: str
    """Where the time model's coefficients were measured."""


class Scale(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How step time grows with the batch size, and whether a latency or throughput can be reached."""

    paths: Paths
    gpu: Annotated[str | None, Meta(description="The GPU, where the traces do not say it.")] = None
    contexts: Annotated[dict[str, str], Meta(description="Context length of a path: 12k.")] = {}
    latency_target_ms: (
        Annotated[float, Meta(description="Largest batch whose step meets it.", gt=0)] | None
    ) = None
    throughput_target: Annotated[float, Meta(description="Tokens per second wanted.", gt=0)] | None = None
    experts: Annotated[
        tuple[int, int] | None, Meta(description="Routed experts, and active ones per token: [256, 6].")
    ] = None
    extrapolate: Annotated[tuple[int, ...], Meta(description="Batch sizes to predict.")] = ()


class ScaleResult(Struct, frozen=True, kw_only=True):
    """Floors, slopes and targets; null with a reason where the traces cannot tell."""

    notes: tuple[Note, ...]
    scaling: Scaling | None
    scaling_reason: str | None
    context_scaling: tuple[ContextScaling, ...]
    latency_target: LatencyTarget | None
    throughput_target: ThroughputTarget | None
    targets_reason: str | None


class AskLedger(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was tried before: verdicts on a lever, where they hold, and which contradict one another."""

    lever: Annotated[str | None, Meta(description="Lever by id or any of its names; all if absent.")] = None
    gpu: Annotated[str | None, Meta(description="Only what holds on this GPU.")] = None
    folder: Annotated[
        Named | None, Meta(description="A team's ledger folder; the shipped one takes part too.")
    ] = None


class Contradiction(Struct, frozen=True, kw_only=True):
    """Statements that cannot all be right, by id."""

    subject: str
    ids: tuple[str, ...]
    why: str


class LedgerResult(Struct, frozen=True, kw_only=True):
    """Statements with their sources. A draft counts for nothing until a person confirms it."""

    entries: tuple[Entry, ...]
    claims: tuple[Claim, ...]
    contradictions: tuple[Contradiction, ...]


class Compare(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changed in a decode step between two recordings, and which of it is only noise."""

    before: Annotated[str, Meta(description="findings.json, a trace, or a folder of traces.", min_length=1)]
    after: Annotated[str, Meta(description="The same of the other side.", min_length=1)]
    limits: Annotated[
        tuple[str, ...], Meta(description="Conditions that must not come true: 'decode.64.step_ms > +3%'.")
    ] = ()
    noise: Annotated[
        float, Meta(description="Share by which recordings of equal work differ.", ge=0, lt=1)
    ] = 0.01
    anyway: Annotated[bool, Meta(description="Compare other GPUs or models too.")] = False


class Comparison(Struct, frozen=True, kw_only=True):
    """The diff with its sentences; of the kernels only those that changed."""

    verdict: tuple[str, ...]
    summary: tuple[str, ...]
    failed: bool
    diff: Diff
