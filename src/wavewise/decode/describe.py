"""One device of one trace, described: the composition of this room."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wavewise.decode.cleanliness import AS_A_WHOLE
from wavewise.decode.families import FAMILIES, FamilyRules
from wavewise.decode.inventory import StepTimes, decode_row, points, step_times
from wavewise.decode.kernels import kernel_rows
from wavewise.decode.steps import Segmentation, segment
from wavewise.decode.warnings import warnings_of
from wavewise.findings import (
    BucketUse,
    DecodeRow,
    EventCounts,
    GpuRow,
    KernelRow,
    StepRow,
    TraceFindings,
)
from wavewise.hardware import Catalogue, GpuSpec
from wavewise.trace import Trace
from wavewise.units import format_ns

_NAMES = tuple(FAMILIES)
_TOP_UNEXPLAINED = 10


@dataclass(frozen=True, slots=True)
class Described:
    """What a trace says of one device, and the per-step figures behind its decode rows.

    Attributes:
        times: one entry per decode row, in the same order.
    """

    findings: TraceFindings
    times: tuple[StepTimes, ...]


def describe(
    trace: Trace,
    device: int,
    *,
    rules: FamilyRules,
    gpus: Catalogue,
    gpu: GpuSpec | None = None,
    context_length: int | None = None,
    context_source: str | None = None,
) -> Described:
    """Describes one device of a trace.

    Args:
        trace, device: what to describe.
        rules: families of kernels.
        gpus: the catalogue that the trace's GPU is looked up in.
        gpu: what the user says the GPU is; overrides the trace.
        context_length, context_source: key/value tokens per request and who says so, where the caller knows;
            a marker that tells it goes first.
    """
    row, spec = resolve_gpu(trace, device, gpus, gpu)
    found = segment(trace, device, sm_count=row.sm_count)
    family = _classify(found, rules)
    marked = _context_of(found)
    if marked is not None:
        context_length, context_source = marked, "marker"
    decode: list[DecodeRow] = []
    kernels: list[KernelRow] = []
    times: list[StepTimes] = []
    for point in points(found):
        figures = step_times(found, point, _NAMES, family)
        times.append(figures)
        decode.append(decode_row(found, point, figures, family, context_length))
        kernels.extend(kernel_rows(found, point, _NAMES, family, spec))
    kinds = dict(found.operations.frame["kind"].value_counts().iter_rows())
    idle = found.idle
    return Described(
        findings=TraceFindings(
            path=trace.path,
            source=trace.source,
            engine=found.engine,
            gpu=row,
            events=EventCounts(
                read=trace.events_read,
                kernels=kinds.get("kernel", 0),
                memcpys=kinds.get("memcpy", 0),
                memsets=kinds.get("memset", 0),
                salvaged=trace.salvaged,
                warnings=warnings_of(trace, device, found),
            ),
            window_ns=idle.window_ns,
            busy_ns=idle.busy_ns,
            sum_ns=idle.sum_ns,
            device=device,
            rank=trace.rank,
            world_size=_world_size(trace),
            document=trace.document,
            context_length=context_length,
            context_length_source=context_source,
            segmentation=found.source,
            idle=idle.idle,
            steps=found.rows,
            decode=tuple(decode),
            decode_reason=None if decode else why_no_row(found),
            kernels=tuple(sorted(kernels, key=lambda k: -k.sum_us_per_step)),
            unexplained_names=_unexplained(found, family),
            bucket_use=_bucket_use(found),
        ),
        times=tuple(times),
    )


def _bucket_use(found: Segmentation) -> tuple[BucketUse, ...]:
    """How often each batch size replayed each bucket, over all decode steps."""
    uses = Counter(
        (step.batch_size, step.bucket) for step in found.rows if step.kind == "decode" and step.batch_size
    )
    rows = [BucketUse(batch_size=size, bucket=bucket, steps=steps) for (size, bucket), steps in uses.items()]
    return tuple(sorted(rows, key=lambda use: (use.batch_size, use.bucket or 0)))


def resolve_gpu(
    trace: Trace, device: int, gpus: Catalogue, gpu: GpuSpec | None
) -> tuple[GpuRow, GpuSpec | str]:
    """What the GPU is and who says so; in place of a spec the reason why it is unknown."""
    if gpu is not None:
        return (
            GpuRow(
                name=gpu.name,
                compute_capability=gpu.compute_capability,
                sm_count=gpu.sm_count,
                spec=gpu.id,
                source="argument",
            ),
            gpu,
        )
    own = trace.properties_of(device)
    if own is None:
        reason = "the trace does not describe its GPU; name it with --gpu"
        return GpuRow(name=None, compute_capability=None, sm_count=None, spec=None, reason=reason), reason
    spec = gpus.match(own.name, own.compute_capability, own.sm_count, own.memory_bytes)
    row = GpuRow(
        name=own.name,
        compute_capability=own.compute_capability,
        sm_count=own.sm_count if own.sm_count is not None else (spec.sm_count if spec else None),
        spec=spec.id if spec else None,
        source="trace" if own.name or own.compute_capability else "inferred",
        reason=None if spec else "not in the GPU catalogue: the trace's own figures are used",
    )
    if spec is not None:
        return row, spec
    figures = {
        name: getattr(own, name)
        for name in (
            "name",
            "compute_capability",
            "sm_count",
            "warp_size",
            "max_threads_per_cta",
            "max_threads_per_sm",
            "registers_per_sm",
            "shared_memory_per_sm",
            "shared_memory_per_cta",
            "shared_memory_per_cta_optin",
            "memory_bytes",
        )
    }
    return row, gpus.from_figures(**figures)


def _classify(found: Segmentation, rules: FamilyRules) -> np.ndarray:
    """Index into the families for each operation, decided once per distinct name and kind."""
    frame = found.operations.frame.select("name", "kind")
    distinct = frame.unique()
    families = rules.classify(
        distinct["name"].cast(pl.String).to_list(), distinct["kind"].cast(pl.String).to_list()
    )
    position = {name: i for i, name in enumerate(_NAMES)}
    table = distinct.with_columns(family=pl.Series([position[f] for f in families], dtype=pl.Int64))
    return frame.join(table, on=["name", "kind"], how="left", maintain_order="left")["family"].to_numpy()


def _context_of(found: Segmentation) -> int | None:
    """Key/value tokens per request over the clean decode steps, from markers that tell them."""
    values = [
        facts.kv_tokens / facts.batch_size
        for row, facts in zip(found.rows, found.facts, strict=True)
        if row.kind == "decode" and facts and facts.kv_tokens and facts.batch_size
    ]
    return round(float(np.median(values))) if values else None


def _unexplained(found: Segmentation, family: np.ndarray) -> tuple[tuple[str, float], ...]:
    """The largest names in `other` with their share of summed kernel time, inside replays where there are any."""
    operations = found.operations
    inside = operations.replay >= 0
    chosen = inside if inside.any() else np.ones(len(family), bool)
    length = np.where(chosen, operations.end_ns - operations.start_ns, 0)
    total = int(length.sum())
    mine = chosen & (family == _NAMES.index("other"))
    if not total or not mine.any():
        return ()
    named = (
        pl.DataFrame(
            {"name": operations.frame["name"].filter(pl.Series(mine)).cast(pl.String), "ns": length[mine]}
        )
        .group_by("name")
        .agg(pl.col("ns").sum())
        .sort(["ns", "name"], descending=[True, False])
        .head(_TOP_UNEXPLAINED)
    )
    return tuple((name, ns / total) for name, ns in named.iter_rows())


def _world_size(trace: Trace) -> int | None:
    size = trace.metadata.get("world_size")
    return size if isinstance(size, int) and size > 0 else None


def why_no_row(found: Segmentation) -> str:
    """Why a trace has no decode row, in one sentence."""
    decode = [row for row in found.rows if row.kind == "decode"]
    if not decode:
        if not found.rows:
            return "No decode step was found: the trace has neither engine step markers nor graph replays."
        kinds = Counter(row.kind for row in found.rows)
        listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        steps = "step" if len(found.rows) == 1 else "steps"
        return f"No decode step was found: the recording holds {listed} {steps}."
    sizes = [row.batch_size for row in decode]
    count = (
        f"None of the {len(decode)} decode steps is clean"
        if len(decode) > 1
        else "The one decode step is not clean"
    )
    changing = sum("requests, this one" in (row.unclean_reason or "") for row in decode)
    if changing > len(decode) / 2:
        shown = ", ".join(str(size) for size in sizes[:12]) + (", ..." if len(sizes) > 12 else "")
        bucket = {row.bucket for row in decode}
        replayed = f", all replaying bucket {bucket.pop()}" if len(bucket) == 1 and None not in bucket else ""
        return (
            f"{count}: the batch size changes from step to step ({shown} requests{replayed}), and a step counts "
            "only between two of its own size. Record while the batch is held."
        )
    if len(decode) == 1:
        return f"{count}: {decode[0].unclean_reason}."
    reasons = Counter(row.unclean_reason or "" for row in decode)
    if reasons[AS_A_WHOLE]:
        return f"{count}: {AS_A_WHOLE} ({reasons[AS_A_WHOLE]}). {_whole_step_times(decode)}"
    worst = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common(3))
    return f"{count}: {worst}."


def _whole_step_times(decode: Sequence[StepRow]) -> str:
    """What graphs recorded as wholes do tell: when each replay began and ended."""
    sizes: dict[int, list[StepRow]] = {}
    for row in decode:
        if row.unclean_reason == AS_A_WHOLE and row.step_ns is not None and row.span_ns is not None:
            sizes.setdefault(row.batch_size or 0, []).append(row)
    told = [
        f"{f'batch {size}' if size else 'unknown batch size'}: {_median_ns(row.step_ns for row in rows)} from one "
        f"replay's start to the next, {_median_ns(row.span_ns for row in rows)} of it in the replay ({len(rows)} steps)"
        for size, rows in sorted(sizes.items())
    ]
    kernels = "What ran inside is unknown: record again with `nsys profile --cuda-graph-trace=node`."
    return f"Medians of all such steps, {'; '.join(told)}. {kernels}" if told else kernels


def _median_ns(values: Iterable[int | None]) -> str:
    return format_ns(int(np.median([value for value in values if value is not None])))
