"""The launch inventory: which kernels a step launches, how often, and in what shape."""

from wavewise.findings import Findings, KernelRow
from wavewise.report.fill_text import limiter_words
from wavewise.report.points import PointView, main_point, mean_us, points
from wavewise.report.section import Cell, Column, Section, Table, code, number
from wavewise.report.words import amount, family_words, grid_text, percent, plural, tell_apart, us
from wavewise.units import format_share

MOST_ROWS = 600
"""Rows of the complete inventory that a page can carry without becoming slow; the rest are counted."""

SHORT_KERNEL_US = 5.0
"""Kernels below this are dominated by launch and drain: a graph node costs 1 to 2 us on current GPUs."""


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section on launches; none without clean decode steps."""
    views = [view for view in points(findings) if view.kernels]
    main = main_point(tuple(views))
    if main is None:
        return ()
    return (
        Section(
            name="kernels",
            title="Launch inventory",
            sentences=tuple(_sentences(main)),
            tables=(_brief(main), _complete(views)),
        ),
    )


def _sentences(view: PointView) -> list[str]:
    launches = sum(map(_mean_launches, view.kernels))
    total = sum(map(mean_us, view.kernels))
    short = [row for row in view.kernels if row.kind == "kernel" and row.median_us < SHORT_KERNEL_US]
    names = len({row.name for row in view.kernels})
    basis = f"means over {plural(view.figures.clean_steps, 'clean step')}"
    sentences = [
        f"A step at {view.label} holds {plural(launches, 'GPU operation')} of {plural(names, 'name')} in "
        f"{plural(len(view.kernels), 'launch shape')}, {us(total)} of summed time ({basis})."
    ]
    if short and total:
        count = sum(map(_mean_launches, short))
        time = sum(map(mean_us, short))
        sentences.append(
            f"{plural(count, 'of its launches runs', 'of its launches run')} for less than "
            f"{SHORT_KERNEL_US:g} us each (by median) and together take {us(time)}, "
            f"{percent(time / total)} of the summed time: candidates for fusion."
        )
    return sentences


def _mean_launches(row: KernelRow) -> float:
    mean = row.mean_launches_per_step
    return row.launches_per_step if mean is None else mean


def _brief(view: PointView) -> Table:
    """The costliest launch shapes at the main operating point."""
    total = sum(map(mean_us, view.kernels))
    names = tell_apart(row.name for row in view.kernels)
    rows = tuple(
        (
            Cell(code(names[row.name]), hover=row.name),
            Cell(family_words(row.family)),
            number(row.launches_per_step, f"{row.launches_per_step:,.4g}"),
            number(row.median_us, amount(row.median_us, "us")),
            number(row.sum_us_per_step, amount(row.sum_us_per_step, "us")),
            number(mean_us(row) / total, format_share(mean_us(row) / total)),
        )
        for row in view.kernels[:15]
        if total
    )
    left = len(view.kernels) - len(rows)
    tail = f"; {plural(left, 'further shape')} in the complete inventory" if left > 0 else ""
    return Table(
        name="kernels-top",
        title=f"Costliest launch shapes at {view.label} ({view.basis}{tail})",
        columns=(
            Column("kernel"),
            Column("family"),
            Column("launches", right=True),
            Column("median, us", right=True),
            Column("sum, us", right=True, term="sum time"),
            Column("share of sum", right=True),
        ),
        rows=rows,
        brief=15,
    )


def _complete(views: list[PointView]) -> Table:
    """Every launch shape at every operating point, the main one first, costliest first within each."""
    main = main_point(tuple(views))
    ordered = sorted(views, key=lambda view: main is None or view.label != main.label)
    every = [(view, row) for view in ordered for row in view.kernels]
    shown = every
    if len(every) > MOST_ROWS:
        costliest = sorted(every, key=lambda item: -item[1].sum_us_per_step)[:MOST_ROWS]
        keep = {id(row) for _, row in costliest}
        shown = [(view, row) for view, row in every if id(row) in keep]
    names = tell_apart(row.name for _, row in every)
    left = len(every) - len(shown)
    tail = f"; the {left:,} cheapest rows are left to findings.json" if left else ""
    return Table(
        name="kernels",
        title=f"All launch shapes by operating point (medians over clean steps{tail})",
        columns=_COLUMNS,
        rows=tuple(_cells(view, row, names[row.name]) for view, row in shown),
        brief=MOST_ROWS,
        filterable=True,
        detail=True,
    )


_COLUMNS = (
    Column("operating point"),
    Column("kernel"),
    Column("family"),
    Column("launches per step", right=True),
    Column("median, us", right=True),
    Column("sum, us per step", right=True, term="sum time"),
    Column("grid", right=True, term="grid"),
    Column("block", right=True, term="block"),
    Column("registers", right=True),
    Column("shared memory, B", right=True),
    Column("CTAs per SM", right=True, term="CTAs per SM"),
    Column("limiter", term="limiter"),
    Column("occupancy", right=True, term="occupancy"),
    Column("SM coverage", right=True, term="SM coverage"),
    Column("waves", right=True, term="wave"),
    Column("wave efficiency", right=True, term="wave efficiency"),
)


def _cells(view: PointView, row: KernelRow, name: str) -> tuple[Cell, ...]:
    why = row.occupancy_reason
    grid_size = None if row.grid is None else float(row.grid[0] * row.grid[1] * row.grid[2])
    block_size = None if row.block is None else float(row.block[0] * row.block[1] * row.block[2])
    return (
        Cell(view.label, float(view.figures.batch_size or 0)),
        Cell(code(name), hover=row.name),
        Cell(family_words(row.family)),
        number(row.launches_per_step, f"{row.launches_per_step:,.4g}"),
        number(row.median_us, amount(row.median_us, "us")),
        number(row.sum_us_per_step, amount(row.sum_us_per_step, "us")),
        number(grid_size, grid_text(row.grid)),
        number(block_size, grid_text(row.block)),
        _whole(row.registers_per_thread, why),
        _whole(row.shared_memory_bytes, why),
        _whole(row.ctas_per_sm, why),
        Cell(limiter_words(row.limiter), hover=why),
        _share(row.occupancy, why),
        _share(row.sm_coverage, why),
        _whole(row.waves, why),
        _share(row.wave_efficiency, why),
    )


def _whole(value: int | None, why: str | None) -> Cell:
    return number(value, None if value is None else f"{value:,}", None if value is not None else why)


def _share(value: float | None, why: str | None) -> Cell:
    return number(value, None if value is None else format_share(value), None if value is not None else why)
