"""Which operating point after stands for which before, and what has to be said before comparing them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from wavewise.decode.contexts import same_context
from wavewise.errors import UsageError
from wavewise.findings import FamilyRow, Findings, Note, Samples
from wavewise.report.section import listing
from wavewise.report.words import engine_words

_PER_LAYER = (
    "moe_gemm",
    "moe_route",
    "norm",
    "rope",
    "quant",
    "residual_mix",
    "attention_combine",
    "kv_cache",
)
"""Families that launch a fixed number of kernels per layer, besides attention itself."""

_ALIKE = 0.1
"""Launch ratios this close count as one ratio."""


@dataclass(frozen=True, slots=True)
class Spot:
    """An operating point of one side, pooled over its traces; one trace's row where no marker tells the
    batch.

    Attributes:
        batch: None when only structure is known; `bucket` then tells points apart.
        context: label or length as a reader should see it, None when unknown.
        tokens: tokens decoded per step over all requests.
        traces: indices into the findings' traces.
    """

    findings: Findings
    batch: int | None
    bucket: int | None
    context: str | None
    context_length: int | None
    clean_steps: int
    tokens: float | None
    families: tuple[FamilyRow, ...]
    samples: Samples
    traces: tuple[int, ...]

    def recordings(self) -> list[Samples]:
        """The samples of each single recording that is pooled here."""
        return [
            row.samples
            for index in self.traces
            for row in self.findings.traces[index].decode
            if row.batch_size == self.batch and row.bucket == self.bucket and row.samples is not None
        ]

    @property
    def size(self) -> tuple[int | None, int | None]:
        """What has to be equal for two points to be the same size."""
        return (self.batch, None if self.batch is not None else self.bucket)

    @property
    def size_words(self) -> str:
        """The size in a sentence."""
        if self.batch is not None:
            return f"batch {self.batch}"
        return f"bucket {self.bucket}" if self.bucket is not None else "an unknown batch size"


def spots(findings: Findings) -> list[Spot]:
    """The operating points of findings, by size; rows without batch size only where there is nothing else."""
    found = [
        Spot(
            findings=findings,
            batch=point.batch_size,
            bucket=point.bucket,
            context=point.context_label or _length(point.context_length),
            context_length=point.context_length,
            clean_steps=point.clean_steps,
            tokens=point.tokens_per_step,
            families=point.families,
            samples=point.samples,
            traces=point.traces,
        )
        for point in findings.operating_points
    ]
    if found:
        return found
    return [
        Spot(
            findings=findings,
            batch=row.batch_size,
            bucket=row.bucket,
            context=_length(row.context_length),
            context_length=row.context_length,
            clean_steps=row.clean_steps,
            tokens=row.tokens_per_step,
            families=row.families,
            samples=row.samples,
            traces=(index,),
        )
        for index, trace in enumerate(findings.traces)
        for row in trace.decode
        if row.samples is not None
    ]


def pair(before: Findings, after: Findings, *, anyway: bool) -> tuple[list[tuple[Spot, Spot]], list[Note]]:
    """Pairs the operating points that can be compared.

    Args:
        before: findings of one side.
        after: findings of the other.
        anyway: compare other GPUs or other models too, and say so first.

    Raises:
        UsageError: other GPUs or other models, without `anyway`.
    """
    left, right = spots(before), spots(after)
    notes = _unlike(before, after, left, right)
    if notes and not anyway:
        raise UsageError(f"{notes[0].message} --anyway compares them nevertheless")
    notes += _engines(before, after)
    for name, side, spots_of in (("before", before, left), ("after", after, right)):
        if not spots_of:
            why = next((trace.decode_reason for trace in side.traces if trace.decode_reason), None)
            because = f": {why.rstrip('.')}" if why else ""
            notes.append(_note("stop", "no_decode", f"There is no clean decode step {name}{because}."))
    pairs: list[tuple[Spot, Spot]] = []
    sizes = {spot.size for spot in left} & {spot.size for spot in right}
    if not sizes and len(left) == len(right) == 1:
        notes.append(
            _note(
                "caution",
                "different_batches",
                f"The batch sizes differ: {left[0].size_words} before, {right[0].size_words} after. What "
                "follows compares unequal work.",
            )
        )
        pairs.append((left[0], right[0]))
        notes += _contexts(left[0], right[0])
    elif not sizes and left and right:
        notes.append(
            _note(
                "stop",
                "no_common_batch",
                f"No batch size is on both sides: {_sizes(left)} before, {_sizes(right)} after. Nothing is "
                "compared.",
            )
        )
    else:
        for size in sorted(sizes, key=lambda size: (size[0] or 0, size[1] or 0)):
            some, more = _same_size(
                [spot for spot in left if spot.size == size], [spot for spot in right if spot.size == size]
            )
            pairs += some
            notes += more
        for name, side in (("before", left), ("after", right)):
            lonely = [spot for spot in side if spot.size not in sizes]
            if lonely and sizes:
                notes.append(_note("info", "only_one_side", f"Only {name}: {_sizes(lonely)}; not compared."))
    return pairs, notes


def _same_size(left: list[Spot], right: list[Spot]) -> tuple[list[tuple[Spot, Spot]], list[Note]]:
    """Pairs points of one batch size by context; what is left is paired if it is one on each side."""
    pairs: list[tuple[Spot, Spot]] = []
    for one in list(left):
        other = next((spot for spot in right if _same_context(one, spot)), None)
        if other is not None:
            pairs.append((one, other))
            left.remove(one)
            right.remove(other)
    if len(left) == len(right) == 1:
        return [*pairs, (left[0], right[0])], _contexts(left[0], right[0])
    notes = [
        _note(
            "info",
            "only_one_side",
            f"Only {name}: {spot.size_words} at context {spot.context or 'unknown'}; not compared.",
        )
        for name, side in (("before", left), ("after", right))
        for spot in side
    ]
    return pairs, notes


def _same_context(one: Spot, other: Spot) -> bool:
    if one.context_length is not None and other.context_length is not None:
        return same_context(one.context_length, other.context_length)
    return one.context == other.context


def _contexts(one: Spot, other: Spot) -> list[Note]:
    if _same_context(one, other):
        return []
    return [
        _note(
            "caution",
            "different_contexts",
            f"The context lengths differ at {one.size_words}: {one.context or 'unknown'} before, "
            f"{other.context or 'unknown'} after.",
        )
    ]


def _unlike(before: Findings, after: Findings, left: Sequence[Spot], right: Sequence[Spot]) -> list[Note]:
    """Why the two sides must not be compared: another GPU, another model."""
    notes: list[Note] = []
    gpus = [sorted({trace.gpu.name for trace in side.traces if trace.gpu.name}) for side in (before, after)]
    if gpus[0] and gpus[1] and gpus[0] != gpus[1]:
        notes.append(
            _note(
                "stop",
                "different_gpus",
                f"The GPUs differ: {listing(gpus[0])} before, {listing(gpus[1])} after.",
            )
        )
    names = [sorted({trace.model for trace in side.traces if trace.model}) for side in (before, after)]
    if names[0] and names[1] and names[0] != names[1]:
        words = f"{listing(names[0])} before, {listing(names[1])} after"
        notes.append(_note("stop", "different_models", f"The models differ: {words}."))
    elif left and right and (words := _other_model(left, right)):
        notes.append(_note("stop", "different_models", f"The models differ: {words}."))
    return notes


def _other_model(left: Sequence[Spot], right: Sequence[Spot]) -> str | None:
    """How it shows that the two sides ran other models; None where nothing shows it.

    A rewritten kernel changes the launches of one family. Another number of layers changes those of attention
    and of every per-layer family by one and the same ratio.
    """
    old, new = _launches(left), _launches(right)
    if not old.get("attention") or not new.get("attention"):
        return None
    ratio = new["attention"] / old["attention"]
    shared = [family for family in _PER_LAYER if old.get(family) and new.get(family)]
    alike = [family for family in shared if abs(new[family] / old[family] / ratio - 1) <= _ALIKE]
    if abs(ratio - 1) > _ALIKE and len(shared) >= 2 and len(alike) >= (2 * len(shared) + 2) // 3:
        return f"{old['attention']:g} attention launches per step before, {new['attention']:g} after"
    if bool(old.get("moe_gemm")) != bool(new.get("moe_gemm")) and abs(ratio - 1) <= _ALIKE:
        sides = ("with", "without") if old.get("moe_gemm") else ("without", "with")
        return f"{sides[0]} expert GEMMs before, {sides[1]} after"
    return None


def _launches(side: Iterable[Spot]) -> dict[str, float]:
    """Launches per step by family, `attention` being whichever attention there is; medians over points."""
    counts: dict[str, list[float]] = {}
    for spot in side:
        own = {family.family: family.launches_per_step for family in spot.families}
        own["attention"] = own.get("attention_split") or own.get("attention") or 0.0
        for family, launches in own.items():
            counts.setdefault(family, []).append(launches)
    return {family: median(values) for family, values in counts.items()}


def _engines(before: Findings, after: Findings) -> list[Note]:
    engines = [
        sorted({engine_words(trace.engine) for trace in side.traces if trace.engine != "unknown"})
        for side in (before, after)
    ]
    if not engines[0] or not engines[1] or engines[0] == engines[1]:
        return []
    message = f"The engines differ: {listing(engines[0])} before, {listing(engines[1])} after."
    return [_note("caution", "different_engines", message)]


def _note(level: str, code: str, message: str) -> Note:
    return Note(level=level, code=code, message=message)


def _length(tokens: int | None) -> str | None:
    return None if tokens is None else f"{tokens:,} tokens"


def _sizes(side: Sequence[Spot]) -> str:
    return listing(list(dict.fromkeys(spot.size_words for spot in side)))
