"""A diff as a report: what must be known first, the verdict, then the tables."""

from collections.abc import Sequence

from wavewise.report.diff.result import Change, Diff, FamilyChange, KernelChange, LimitResult, PointDiff
from wavewise.report.section import MISSING, Cell, Column, Report, Section, Table, code, listing, number
from wavewise.report.words import (
    amount,
    engine_words,
    family_words,
    grid_text,
    ms,
    percent,
    plural,
    short_kernel,
    short_path,
    us,
)

_MOSTLY = 0.8
"""From this share on, one part of a change explains it."""

_LARGE = 0.05
"""A family over this share of the summed kernel time is named when it stays as it is."""

_NAMED = 4
"""How many families, or kernels, one sentence names."""

_FOLLOWS_CONTEXT = frozenset({"attention", "attention_split", "attention_combine", "indexer", "kv_compress"})
"""Families whose work grows with the context length."""

_KERNEL_ROWS = 40

_KERNEL_MATTERS = 2e-4
"""Single kernels are listed from this share of the summed kernel time on: among a hundred kernels that nothing
changed, a few move by a fraction of a microsecond beyond their usual range."""

STEP_WORDS = {
    "step_ms": "step time",
    "span_ms": "GPU span",
    "busy_ms": "busy time",
    "sum_ms": "sum of kernel time",
    "boundary_ms": "step boundary",
    "tokens_per_s": "throughput",
}


def report(diff: Diff) -> Report:
    """The report of a diff."""
    levels = {"stop": "Stop", "caution": "Caution", "info": "Note"}
    ranked = sorted(diff.notes, key=lambda note: list(levels).index(note.level))
    return Report(
        title=_title(diff),
        notes=tuple(f"{levels[note.level]}: {note.message}" for note in ranked),
        verdict=verdict(diff),
        summary=(*limit_sentences(diff.limits), *(line for point in diff.points for line in summary(point))),
        sections=()
        if diff.empty
        else tuple(section for point in diff.points for section in _sections(point)),
    )


def _title(diff: Diff) -> str:
    gpus = dict.fromkeys(
        "an unknown GPU" if gpu == "unknown" else gpu for gpu in [*diff.before.gpus, *diff.after.gpus]
    )
    engines = dict.fromkeys(engine_words(engine) for engine in [*diff.before.engines, *diff.after.engines])
    sides = f"{short_path(diff.before.path)} -> {short_path(diff.after.path)}"
    return f"{sides}: {listing(list(engines))} on {listing(list(gpus))}"


def verdict(diff: Diff) -> tuple[str, ...]:
    """One sentence for each operating point; one for all when nothing differs."""
    if not diff.points:
        return ("Nothing could be compared.",)
    if diff.empty:
        points = listing([point.name for point in diff.points])
        return (f"No difference: at {points} not one figure differs.",)
    return tuple(step_sentence(point) for point in diff.points)


def step_sentence(point: PointDiff) -> str:
    """What became of step time, and whether the host or the GPU did it."""
    step, span = point.step("step_ms"), point.step("span_ms")
    if step is None:
        return f"At {point.name} there is no step time on both sides."
    start = f"At {point.name} "
    basis = f"(medians of {point.clean_steps_before} and {plural(point.clean_steps_after, 'clean step')})"
    if step.verdict not in ("up", "down"):
        said = f"{start}step time {_unchanged(step)}: {_values(step)} {basis}"
        return f"{said}; {_span_clause(span)}." if span is not None else f"{said}."
    word = "longer" if step.verdict == "up" else "shorter"
    said = f"{start}a step is {_size(step)} {word}: {_values(step)} {basis}"
    return f"{said}. {_cause(point, span)}"


def _cause(point: PointDiff, span: Change | None) -> str:
    share = point.host_share
    if share is None or span is None:
        return ""
    boundary = point.step("boundary_ms")
    assert boundary is not None
    where = "All of it" if share >= 0.985 else f"{percent(share)} of it"
    if share >= _MOSTLY and span.verdict not in ("up", "down"):
        return (
            f"{where} is host time at step boundaries ({_values(boundary)}), host noise or a change on the host, "
            f"not GPU work: {_span_clause(span)}."
        )
    if share <= 1 - _MOSTLY:
        return f"It is GPU work: {_span_clause(span)}."
    return f"{where} is host time at step boundaries ({_values(boundary)}); {_span_clause(span)}."


def _span_clause(span: Change) -> str:
    if span.verdict in ("up", "down"):
        return f"the replay's GPU span went {span.verdict} by {_size(span)} ({_values(span)})"
    return f"the replay's GPU span {_unchanged(span)} ({_values(span)}, {_relative(span)})"


def _unchanged(change: Change) -> str:
    if change.verdict == "same":
        return "is the same"
    if change.verdict == "unclear":
        return f"cannot be judged ({change.reason})"
    return "did not change beyond noise"


def summary(point: PointDiff) -> tuple[str, ...]:
    """Families that went up, down or stayed, kernels that came or went."""
    if all(change.verdict == "same" for change in [*point.steps, *(f.sum_us for f in point.families)]):
        return ()
    lines: list[str] = []
    for word, verdicts in (("Up", ("up", "added")), ("Down", ("down", "vanished"))):
        moved = [family for family in point.families if family.sum_us.verdict in verdicts]
        if moved:
            lines.append(f"{word} at {point.name}: {listing([_family(family) for family in moved])}.")
    flat = _flat(point)
    if flat:
        lines.append(f"Flat at {point.name}: {listing([_family(family) for family in flat])}; within noise.")
    unclear = [family for family in point.families if family.sum_us.verdict == "unclear"]
    if unclear:
        names = listing([family_words(family.family) for family in unclear])
        lines.append(f"Not judged at {point.name}: {names}: {unclear[0].sum_us.reason}.")
    lines += _context_hint(point)
    lines += _kernel_sentences(point)
    return tuple(lines)


def _flat(point: PointDiff) -> list[FamilyChange]:
    """The large families that did not change, largest first."""
    total = sum(family.sum_us.before or 0.0 for family in point.families)
    flat = [
        family
        for family in point.families
        if family.sum_us.verdict in ("noise", "same") and (family.sum_us.before or 0) >= _LARGE * total
    ]
    return sorted(flat, key=lambda family: -(family.sum_us.before or 0))


def _context_hint(point: PointDiff) -> list[str]:
    """Nothing but what the context length drives went up, and nobody said the context length."""
    moved = {family.family for family in point.families if family.sum_us.verdict not in ("noise", "same")}
    attention = moved & {"attention", "attention_split"}
    known = point.context_before is not None and point.context_after is not None
    if known or point.batch_before != point.batch_after or not attention or moved - _FOLLOWS_CONTEXT:
        return []
    return [
        f"Only families whose work follows the context length changed at {point.name}, as between recordings "
        "of different context lengths; the traces do not say theirs (--label context=12k PATH does)."
    ]


def _kernel_sentences(point: PointDiff) -> list[str]:
    lines: list[str] = []
    for match, word in (("added", "New"), ("vanished", "Gone")):
        kernels = [kernel for kernel in point.kernels if kernel.match == match]
        if not kernels:
            continue
        named = [
            f"{code(short_kernel((kernel.names_after or kernel.names_before)[0]))} "
            f"({us(kernel.sum_us.after or kernel.sum_us.before or 0)})"
            for kernel in kernels[:_NAMED]
        ]
        rest = [f"{len(kernels) - len(named)} more"] if len(kernels) > len(named) else []
        lines.append(f"{word} at {point.name}: {plural(len(kernels), 'kernel')}: {listing([*named, *rest])}.")
    return lines


def _family(family: FamilyChange) -> str:
    change = family.sum_us
    name = family_words(family.family)
    if change.change is None:
        one = change.after if change.before is None else change.before
        return f"{name} ({'new' if change.before is None else 'gone'}, {us(one or 0)})"
    sign = "+" if change.change >= 0 else "-"
    return f"{name} {sign}{us(abs(change.change))} ({_relative(change)}, {us(change.before or 0)} before)"


def limit_sentences(limits: Sequence[LimitResult]) -> tuple[str, ...]:
    """The judged conditions, those that failed first; of a pattern's many kept ones only the count."""
    words = {"exceeded": "FAILED", "unclear": "NOT JUDGED", "within noise": "kept (what exceeds it is noise)"}
    said = [
        f"Limit {code(result.limit)} {word}: {result.message}."
        for outcome, word in words.items()
        for result in limits
        if result.outcome == outcome
    ]
    kept: dict[str, list[LimitResult]] = {}
    for result in limits:
        if result.outcome == "kept":
            kept.setdefault(result.limit, []).append(result)
    for limit, results in kept.items():
        whole = results[0].message if len(results) == 1 else f"{len(results)} quantities"
        said.append(f"Limit {code(limit)} kept: {whole}.")
    return tuple(said)


# ---------------------------------------------------------------- tables


def _slug(point: PointDiff) -> str:
    """A name for this point's tables and charts."""
    parts = [
        *(point.batch_before or point.bucket_before or "x", point.batch_after or point.bucket_after or "x"),
        *(point.context_before, point.context_after),
    ]
    words = [
        "".join(char for char in str(part).lower() if char.isalnum()) for part in parts if part is not None
    ]
    return "-".join(words)


def _sections(point: PointDiff) -> list[Section]:
    slug = _slug(point)
    return [
        Section(
            name=f"point-{slug}",
            title=f"What changed at {point.name}",
            tables=(_step_table(point, slug), _family_table(point, slug), *_kernel_table(point, slug)),
            charts=(f"changes-{slug}",),
        )
    ]


_NUMBERS = (
    Column("before", right=True),
    Column("after", right=True),
    Column("change", right=True),
    Column("change, %", right=True),
)


def _step_table(point: PointDiff, slug: str) -> Table:
    return Table(
        name=f"step-{slug}",
        title=f"A step at {point.name} (medians of {point.clean_steps_before} and "
        f"{plural(point.clean_steps_after, 'clean step')}; 95 % interval by bootstrap)",
        columns=(
            Column("quantity"),
            *_NUMBERS,
            Column("95 % interval", right=True, essential=False),
            Column("verdict"),
        ),
        rows=tuple(
            (
                Cell(f"{STEP_WORDS[change.quantity]}, {change.unit}"),
                *_figures(change),
                _interval(change),
                _verdict_cell(change),
            )
            for change in point.steps
        ),
    )


def _family_table(point: PointDiff, slug: str) -> Table:
    return Table(
        name=f"families-{slug}",
        title=f"Summed kernel time per step at {point.name} by family, in us",
        columns=(
            Column("family"),
            *_NUMBERS,
            Column("95 % interval", right=True, essential=False),
            Column("launches", right=True, essential=False),
            Column("verdict"),
        ),
        rows=tuple(
            (
                Cell(family_words(family.family)),
                *_figures(family.sum_us),
                _interval(family.sum_us),
                Cell(_launches(family.launches_before, family.launches_after), family.launches_after),
                _verdict_cell(family.sum_us),
            )
            for family in point.families
        ),
        brief=len(point.families),
    )


def _kernel_table(point: PointDiff, slug: str) -> list[Table]:
    """Only kernels that changed; the rest is in the JSON."""
    least = _KERNEL_MATTERS * sum(family.sum_us.before or 0.0 for family in point.families)
    changed = [
        kernel
        for kernel in point.kernels
        if kernel.sum_us.verdict not in ("noise", "same")
        and abs((kernel.sum_us.after or 0.0) - (kernel.sum_us.before or 0.0)) >= least
    ]
    if not changed:
        return []
    shown = changed[:_KERNEL_ROWS]
    count = f"{len(shown)} largest of {len(changed)}" if len(shown) < len(changed) else f"{len(changed)}"
    return [
        Table(
            name=f"kernels-{slug}",
            title=f"Kernels that changed at {point.name}, in us per step ({count})",
            columns=(
                Column("kernel"),
                Column("family", essential=False),
                *_NUMBERS,
                Column("launches", right=True, essential=False),
                Column("grid", essential=False),
                Column("verdict"),
            ),
            rows=tuple(_kernel_row(kernel) for kernel in shown),
            brief=len(shown),
            filterable=True,
        )
    ]


def _kernel_row(kernel: KernelChange) -> tuple[Cell, ...]:
    names = kernel.names_after or kernel.names_before
    grids = [
        ", ".join(grid_text(grid) for grid in side) for side in (kernel.grids_before, kernel.grids_after)
    ]
    grid = grids[0] if grids[0] == grids[1] else " -> ".join(text for text in grids if text)
    told = {"reshaped": ", other grid", "retuned": ", other template"}.get(kernel.match, "")
    return (
        Cell(code(short_kernel(names[0])), hover=" | ".join(names)),
        Cell(family_words(kernel.family)),
        *_figures(kernel.sum_us),
        Cell(_launches(kernel.launches_before, kernel.launches_after), kernel.launches_after),
        Cell(grid or "-"),
        Cell(_VERDICT_WORDS[kernel.sum_us.verdict] + told),
    )


def _figures(change: Change) -> tuple[Cell, ...]:
    return (
        number(change.before, None if change.before is None else amount(change.before)),
        number(change.after, None if change.after is None else amount(change.after)),
        MISSING if change.change is None else number(change.change, _signed(change.change)),
        MISSING if change.relative is None else number(change.relative, f"{100 * change.relative:+.1f}"),
    )


def _interval(change: Change) -> Cell:
    if change.interval is None:
        return MISSING
    return Cell(f"{_signed(change.interval[0])} to {_signed(change.interval[1])}", change.interval[0])


_VERDICT_WORDS = {
    "up": "up",
    "down": "down",
    "noise": "within noise",
    "same": "same",
    "unclear": "too few steps",
    "added": "new",
    "vanished": "gone",
}


def _verdict_cell(change: Change) -> Cell:
    return Cell(_VERDICT_WORDS[change.verdict], hover=change.reason)


def _launches(before: float, after: float) -> str:
    return f"{after:g}" if before == after else f"{before:g} -> {after:g}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{amount(abs(value))}"


def _values(change: Change) -> str:
    before, after = change.before or 0.0, change.after or 0.0
    if change.unit == "tokens/s":
        return f"{amount(before)} -> {amount(after)} tokens/s"
    return f"{ms(before)} -> {ms(after)}"


def _relative(change: Change) -> str:
    return "-" if change.relative is None else f"{100 * change.relative:+.1f} %"


def _size(change: Change) -> str:
    relative = f"{abs(100 * change.relative):.1f} %" if change.relative is not None else "-"
    return f"{ms(abs(change.change or 0.0))} or {relative}"
