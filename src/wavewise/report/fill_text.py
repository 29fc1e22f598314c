"""Why the kernels cannot fill the GPU: residency, waves and coverage of those that take the time."""

from collections.abc import Sequence
from dataclasses import dataclass

from wavewise.findings import Findings, KernelRow, NextCta
from wavewise.report.points import PointView, main_point, mean_us, points
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import family_words, grid_text, percent, plural, printable, short_kernel, us
from wavewise.units import format_bytes, format_share

MATTERS = 0.03
"""Share of the step's summed kernel time from which on a kernel is worth a sentence: below it even a kernel
made free saves less than the step-to-step noise of a server."""

MOST_SENTENCES = 6

LOW_OCCUPANCY = 0.25
LOW_COVERAGE = 0.9
LOW_WAVE_EFFICIENCY = 0.9
MANY_WAVES = 8
"""From here on a tail is at most an eighth of the run: the wave count stops mattering."""


@dataclass(frozen=True)
class Filler:
    """All launches of one kernel at one operating point that share a residency.

    Template variants of a kernel count as one: the reader knows it by its name.

    Attributes:
        main: its costliest launch shape, whose grid, waves and resources are told.
        sum_us: per step: the median of its only shape, or its shapes' means added.
        share: of the step's summed kernel time (work outside the replay included).
        shapes: how many launch shapes.
    """

    main: KernelRow
    sum_us: float
    share: float
    shapes: int


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section; none without kernels in clean decode steps."""
    views = tuple(view for view in points(findings) if view.kernels)
    view = main_point(views)
    if view is None:
        return ()
    fillers = ranked(view)
    return (
        Section(
            name="fill",
            title="Why the kernels cannot fill the GPU",
            sentences=(*_whose_figures(view, findings), *_overview(fillers, view, findings), *_each(fillers)),
            tables=(_table(fillers, view),),
            charts=("waves",),
        ),
    )


def _whose_figures(view: PointView, findings: Findings) -> tuple[str, ...]:
    """Where the GPU's limits come from, unless the catalogue holds the GPU that the trace names."""
    gpu = findings.traces[view.traces[0]].gpu
    name = printable(gpu.name or "The GPU")
    if gpu.source == "argument":
        return (f"Residency and waves are those of {name}, which was named in place of the trace's own GPU.",)
    return (f"{name}: {printable(gpu.reason).rstrip('.')}.",) if gpu.reason else ()


def headlines(findings: Findings) -> tuple[str, ...]:
    """How much of the kernel time runs in launches that leave the GPU unfilled."""
    view = main_point(tuple(view for view in points(findings) if view.kernels))
    return () if view is None else (*_overview(ranked(view), view, findings)[:1],)


def ranked(view: PointView) -> tuple[Filler, ...]:
    """Kernels by time."""
    groups: dict[tuple[object, ...], list[KernelRow]] = {}
    total = sum(mean_us(row) for row in view.kernels)
    for row in view.kernels:
        if row.kind == "kernel":
            key = (short_kernel(row.name), row.family, row.ctas_per_sm, row.limiter, row.warps_per_sm)
            groups.setdefault(key, []).append(row)
    fillers = [
        Filler(
            main=max(rows, key=mean_us),
            sum_us=rows[0].sum_us_per_step if len(rows) == 1 else sum(map(mean_us, rows)),
            share=sum(map(mean_us, rows)) / total if total else 0.0,
            shapes=len(rows),
        )
        for rows in groups.values()
    ]
    return tuple(sorted(fillers, key=lambda filler: -filler.sum_us))


def shortcomings(row: KernelRow) -> tuple[str, ...]:
    """In what respects a launch leaves the GPU unfilled: any of "coverage", "occupancy", "waves"."""
    found: list[str] = []
    if row.sm_coverage is not None and row.sm_coverage < LOW_COVERAGE:
        found.append("coverage")
    if row.occupancy is not None and row.occupancy < LOW_OCCUPANCY:
        found.append("occupancy")
    wasteful = row.wave_efficiency is not None and row.wave_efficiency < LOW_WAVE_EFFICIENCY
    # One wave that covers every SM has no tail; a persistent kernel is one wave by design.
    tail = row.waves is not None and 1 < row.waves < MANY_WAVES
    if wasteful and tail and not row.persistent:
        found.append("waves")
    return tuple(found)


def sentence(filler: Filler) -> str:
    """What keeps one kernel from filling the GPU, and what the next step up would take."""
    row = filler.main
    opening = (
        f"{code(short_kernel(row.name))} ({family_words(row.family)}, {us(filler.sum_us)} per step, "
        f"{percent(filler.share)} of the step's kernel time)"
    )
    if filler.shapes > 1:
        opening += f", its costliest of {filler.shapes} launch shapes"
    if row.ctas_per_sm is None:
        return (
            f"{opening}: residency unknown, {(row.occupancy_reason or 'no launch parameters').rstrip('.')}."
        )
    clauses = [_residency(row), _coverage(row), _waves(row)]
    if "coverage" not in shortcomings(row):  # more residency does not help a grid that is too small
        clauses.append(next_step(row))
    return f"{opening}: {'; '.join(clause for clause in clauses if clause)}."


def _residency(row: KernelRow) -> str:
    by = f", limited by {_limited_by(row)}" if row.limiter else ""
    occupancy = ""
    if row.occupancy is not None and row.warps_per_sm:
        most = round(row.warps_per_sm / row.occupancy) if row.occupancy else 0
        occupancy = f", {row.warps_per_sm} of {most} warps = {format_share(row.occupancy)} occupancy"
    return f"{plural(row.ctas_per_sm or 0, 'CTA')} per SM{by}{occupancy}"


def _limited_by(row: KernelRow) -> str:
    """The limiter or limiters, each with the launch's own figure where it has one."""
    figures = {
        "shared memory": row.shared_memory_bytes is not None and format_bytes(row.shared_memory_bytes or 0),
        "registers": row.registers_per_thread is not None and f"{row.registers_per_thread} per thread",
        "warps": row.block is not None and f"{row.block[0] * row.block[1] * row.block[2]} threads per CTA",
    }
    limiters = limiter_words(row.limiter).split(", ")
    return listing([f"{word} ({figures[word]})" if figures.get(word) else word for word in limiters])


def limiter_words(limiter: str | None) -> str:
    """The limiter as read aloud: "registers, shared memory"."""
    parts = (limiter or "-").replace("+", ",").split(",")
    return ", ".join(part.strip().replace("_", " ").replace("cta ", "CTA ") for part in parts)


def _coverage(row: KernelRow) -> str:
    if row.sm_coverage is None or row.grid is None or row.sm_coverage >= LOW_COVERAGE:
        return ""
    return f"its grid of {grid_text(row.grid)} reaches {percent(row.sm_coverage)} of the SMs"


def _waves(row: KernelRow) -> str:
    if row.waves is None or row.wave_efficiency is None:
        return ""
    if row.persistent:
        return f"persistent, {plural(row.waves, 'wave')} by design"
    if row.waves == 1:
        return "" if "coverage" in shortcomings(row) else "1 wave"
    tail = f", the last with {plural(row.tail_ctas, 'CTA')}" if row.tail_ctas else ""
    return f"{row.waves} waves{tail}, {percent(row.wave_efficiency)} wave efficiency"


def next_step(row: KernelRow) -> str:
    """What one more CTA per SM would take, with what the launch has now."""
    step = row.next_cta
    if step is None:
        return ""
    if step.impossible_reason:
        return f"{plural(step.ctas_per_sm, 'CTA')} per SM cannot be had: {step.impossible_reason.rstrip('.')}"
    needs = next_needs(row, step)
    return f"{plural(step.ctas_per_sm, 'CTA')} per SM would fit at {listing(needs)}" if needs else ""


def next_needs(row: KernelRow, step: NextCta) -> list[str]:
    """Each limit that one more CTA per SM has to meet, with the present figure."""
    needs: list[str] = []
    if step.shared_memory_bytes is not None:
        now = "" if row.shared_memory_bytes is None else f" (now {row.shared_memory_bytes:,})"
        needs.append(f"<= {format_bytes(step.shared_memory_bytes)} of shared memory{now}")
    if step.registers_per_thread is not None:
        now = "" if row.registers_per_thread is None else f" (now {row.registers_per_thread})"
        needs.append(f"<= {step.registers_per_thread} registers{now}")
    if step.threads_per_cta is not None:
        now = "" if row.block is None else f" (now {row.block[0] * row.block[1] * row.block[2]:,})"
        needs.append(f"<= {step.threads_per_cta:,} threads per CTA{now}")
    return needs


def _overview(fillers: Sequence[Filler], view: PointView, findings: Findings) -> list[str]:
    known = [filler for filler in fillers if filler.main.ctas_per_sm is not None]
    total = sum(filler.sum_us for filler in fillers)
    if not known:
        reasons = {filler.main.occupancy_reason or "not computed" for filler in fillers}
        return [f"Residency is unknown for every kernel: {listing(sorted(reasons))}."]
    trace = findings.traces[view.traces[0]]
    gpu = f"{trace.gpu.name or 'the GPU'} ({trace.gpu.sm_count} SMs)" if trace.gpu.sm_count else "the GPU"
    counted = {
        kind: sum(filler.sum_us for filler in known if kind in shortcomings(filler.main))
        for kind in ("coverage", "occupancy", "waves")
    }
    words = {
        "coverage": f"is in launches whose grid leaves more than {100 * (1 - LOW_COVERAGE):.0f} % of the SMs empty",
        "occupancy": f"runs at less than {100 * LOW_OCCUPANCY:.0f} % occupancy",
        "waves": f"is in kernels of 2 to {MANY_WAVES - 1} waves at less than "
        f"{100 * LOW_WAVE_EFFICIENCY:.0f} % wave efficiency",
    }
    shares = [f"{percent(time / total)} {words[kind]}" for kind, time in counted.items() if time]
    sentences: list[str] = []
    if shares:
        sentences.append(
            f"Of the kernel time of a step at {view.label} on {gpu}, {listing(shares)} "
            "(a kernel can be in several)."
        )
    else:
        sentences.append(
            f"No kernel with known residency leaves {gpu} unfilled by these measures at {view.label}."
        )
    unknown = total - sum(filler.sum_us for filler in known)
    if unknown > 0.001 * total:
        sentences.append(f"For {percent(unknown / total)} of the kernel time residency is unknown.")
    return sentences


def _each(fillers: Sequence[Filler]) -> list[str]:
    return [sentence(filler) for filler in fillers if filler.share >= MATTERS][:MOST_SENTENCES]


def _table(fillers: Sequence[Filler], view: PointView) -> Table:
    shown = [filler for filler in fillers if filler.share >= 0.005][:25]
    return Table(
        name="fill",
        title=f"Residency and waves of the kernels over 0.5 % of kernel time at {view.label}, by time",
        columns=(
            Column("kernel"),
            Column("share", right=True),
            Column("grid", right=True, term="grid"),
            Column("CTAs per SM", right=True, term="CTAs per SM"),
            Column("limiter", term="limiter"),
            Column("occupancy", right=True, term="occupancy"),
            Column("coverage", right=True, term="SM coverage", essential=False),
            Column("waves", right=True, term="wave"),
            Column("efficiency", right=True, term="wave efficiency"),
            Column("one more CTA per SM needs", essential=False),
        ),
        rows=tuple(_cells(filler) for filler in shown),
        brief=10,
    )


def _cells(filler: Filler) -> tuple[Cell, ...]:
    row = filler.main
    why = row.occupancy_reason
    efficiency = _share(row.wave_efficiency, why)
    if row.persistent and row.waves is not None:
        efficiency = number(row.wave_efficiency, "by design", "persistent: as many CTAs as fit at once")
    step = row.next_cta
    if step is None:
        needs = Cell("-", hover=why)
    elif step.impossible_reason:
        needs = Cell(step.impossible_reason)
    else:
        brief = [
            ("shared memory", step.shared_memory_bytes, " B"),
            ("registers", step.registers_per_thread, ""),
            ("threads", step.threads_per_cta, ""),
        ]
        told = ", ".join(f"{word} <= {limit:,}{unit}" for word, limit, unit in brief if limit is not None)
        needs = Cell(told or "-", hover="; ".join(next_needs(row, step)) or None)
    return (
        Cell(code(short_kernel(row.name)), hover=row.name),
        number(filler.share, format_share(filler.share)),
        Cell(grid_text(row.grid), hover=why),
        number(row.ctas_per_sm, hover=why, text=None if row.ctas_per_sm is None else str(row.ctas_per_sm)),
        Cell(limiter_words(row.limiter), hover=why),
        _share(row.occupancy, why),
        _share(row.sm_coverage, why),
        number(row.waves, None if row.waves is None else f"{row.waves:,}", why),
        efficiency,
        needs,
    )


def _share(value: float | None, why: str | None) -> Cell:
    return number(value, None if value is None else format_share(value), why if value is None else None)
