"""The tables of a diff: the step, its families, the kernels that changed."""

from wavewise.report.diff.result import Change, KernelChange, PointDiff
from wavewise.report.diff.wording import (
    STEP_WORDS,
    UNCHANGED,
    VERDICT_WORDS,
    is_unchanged,
    signed,
    signed_percent,
)
from wavewise.report.section import MISSING, Cell, Column, Section, Table, code, number
from wavewise.report.words import amount, family_words, grid_text, plural, short_kernel

_KERNEL_ROWS = 40

_KERNEL_MATTERS = 2e-4
"""Single kernels are listed from this share of the summed kernel time on: among a hundred kernels that nothing
changed, a few move by a fraction of a microsecond beyond their usual range."""


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


def sections(point: PointDiff) -> list[Section]:
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
            # Families cover the replay; a kernel beside it changes without its family.
            title=f"Kernels of the whole step that changed at {point.name}, in us per step ({count})",
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
        Cell(VERDICT_WORDS[kernel.sum_us.verdict] + told),
    )


def _figures(change: Change) -> tuple[Cell, ...]:
    return (
        number(change.before, None if change.before is None else amount(change.before, change.unit)),
        number(change.after, None if change.after is None else amount(change.after, change.unit)),
        MISSING if change.change is None else number(change.change, _moved(change.change, change)),
        MISSING if change.relative is None else number(change.relative, signed_percent(change.relative)),
    )


def _moved(value: float, change: Change) -> str:
    return UNCHANGED if is_unchanged(change) else signed(value, change.unit)


def _interval(change: Change) -> Cell:
    if change.interval is None:
        return MISSING
    return Cell(f"{' to '.join(signed(end, change.unit) for end in change.interval)}", change.interval[0])


def _verdict_cell(change: Change) -> Cell:
    return Cell(VERDICT_WORDS[change.verdict], hover=change.reason)


def _launches(before: float, after: float) -> str:
    return f"{after:g}" if before == after else f"{before:g} -> {after:g}"
