"""What a decode step costs at each batch size, and which kernel families take its time."""

from wavewise.findings import DecodeRow, Findings, Summary
from wavewise.report.points import PointView, context_words, labels_in_short, main_point, points, thinned
from wavewise.report.section import MISSING, Cell, Column, Section, Table, number
from wavewise.report.verdict import helper_sentences, no_decode
from wavewise.report.words import amount, family_words, percent, plural, us
from wavewise.units import format_share


def sections(findings: Findings) -> tuple[Section, ...]:
    """The sections on decode steps and on families."""
    views = points(findings)
    return (_decode(findings, views), *((_families(findings, views),) if views else ()))


def _decode(findings: Findings, views: tuple[PointView, ...]) -> Section:
    sentences = [*no_decode(findings), *_padding(views), *_speculation(views), *_launch_bound(views)]
    return Section(
        name="decode",
        title="What a decode step costs",
        sentences=tuple(sentences),
        tables=(_steps_table(views),) if views else (),
        charts=("step-time", "timeline") if views else (),
    )


def _padding(views: tuple[PointView, ...]) -> list[str]:
    wasteful = [
        f"{view.figures.batch_size} requests replay bucket {view.figures.bucket} "
        f"({percent(1 - view.figures.batch_size / view.figures.bucket)} padding)"
        for view in views
        if view.figures.batch_size and view.figures.bucket and view.figures.bucket > view.figures.batch_size
    ]
    return [f"Padding: {'; '.join(wasteful)}."] if wasteful else []


def _speculation(views: tuple[PointView, ...]) -> list[str]:
    several = [
        f"{amount(view.figures.verified_tokens_per_step / view.figures.batch_size)} per request at {view.label}"
        for view in views
        if view.figures.verified_tokens_per_step
        and view.figures.batch_size
        and view.figures.verified_tokens_per_step > view.figures.batch_size
    ]
    if not several:
        return []
    return [
        f"Speculative decoding: a step verifies more than one token per request ({'; '.join(several)}). "
        "How many are accepted is not in the trace, so throughput counts one token per request and step, "
        "a lower bound."
    ]


def _launch_bound(views: tuple[PointView, ...]) -> list[str]:
    hosted = [view for view in views if view.boundary_ms > view.figures.gpu_span_ms.median]
    if not hosted:
        return []
    return [
        f"Step boundaries (host time) are longer than the GPU's own work at {labels_in_short(hosted)}: "
        f"there even kernels that cost nothing would save less than half of the step."
    ]


def _steps_table(views: tuple[PointView, ...]) -> Table:
    known = {context_words(view.figures) for view in views}
    contexts = len(known) > 1
    everywhere = "" if contexts or known == {None} else f", {known.pop()}"
    # Sizes that occur twice (two devices, two engines) need more than a number.
    named = any(", " in view.label for view in views)
    columns = (
        Column("operating point") if named else Column("batch size", right=True, term="batch size"),
        Column("bucket", right=True, term="bucket"),
        *((Column("context", term="context"),) if contexts else ()),
        Column("clean steps", right=True, term="clean step"),
        Column("step, ms", right=True, term="step time"),
        Column("p10..p90", right=True, essential=False),
        Column("span, ms", right=True, term="GPU span"),
        Column("busy, ms", right=True, term="busy time"),
        Column("busy in span", right=True),
        Column("sum, ms", right=True, term="sum time", essential=False),
        Column("boundary, ms", right=True, term="step boundary"),
        Column("replay gaps x us", right=True, term="inside replays", essential=False),
        Column("operations", right=True, term="GPU operation", essential=False),
    )
    rows = tuple(_step_cells(view, contexts, named) for view in views)
    return Table(
        name="decode",
        title=f"Decode steps by batch size (medians over clean steps{everywhere})",
        columns=columns,
        rows=rows,
        brief=40,
    )


def _step_cells(view: PointView, contexts: bool, named: bool) -> tuple[Cell, ...]:
    figures = view.figures
    row = view.rows[0] if view.rows else None
    context = context_words(figures)
    context_cell = (
        Cell("unknown") if context is None else Cell(context.removesuffix(" context").removesuffix(" of"))
    )
    return (
        Cell(view.label, float(view.size)) if named else _integer(figures.batch_size),
        _integer(figures.bucket),
        *((context_cell,) if contexts else ()),
        _integer(figures.clean_steps),
        _median(figures.step_ms),
        Cell(f"{amount(figures.step_ms.p10)}..{amount(figures.step_ms.p90)}", figures.step_ms.p90),
        _median(figures.gpu_span_ms),
        _median(figures.busy_ms),
        number(
            view.busy_share,
            format_share(view.busy_share),
        ),
        _median(figures.sum_ms),
        number(view.boundary_ms, amount(max(0.0, view.boundary_ms))),
        _gap(row),
        MISSING if row is None else number(row.operations_per_step, f"{row.operations_per_step:,.0f}"),
    )


def _gap(row: DecodeRow | None) -> Cell:
    if row is None:
        return MISSING
    gaps = row.intra_replay_gap_us
    if gaps.median is None:
        return number(None, hover=gaps.reason)
    hover = f"{gaps.count_per_step:,.0f} gaps per step, median {us(gaps.median)}"
    return number(gaps.median, f"{gaps.count_per_step:,.0f} x {amount(gaps.median, 'us')}", hover)


def _families(findings: Findings, views: tuple[PointView, ...]) -> Section:
    main = main_point(views)
    assert main is not None
    unnamed = [
        view for view in views for row in view.rows if row.coverage is not None and row.coverage < 0.97
    ]
    sentences = list(helper_sentences(findings))
    overlap = [row.overlap_us_per_step for row in main.rows[:1]]
    if overlap and overlap[0] > 0.01 * main.family_sum_us:
        sentences.append(
            f"Families overlap for {us(overlap[0])} of a {main.unit} at {main.label}: they run on several "
            "streams at once, so their busy times add to more than the replay's."
        )
    if unnamed:
        sentences.append(
            f"Some kernels have no family: at {unnamed[0].label} they take more than 3 % of busy time; "
            "the data-quality section names the largest."
        )
    return Section(
        name="families",
        title="Which kernels take the time",
        sentences=tuple(sentences),
        tables=(_matrix(views, main), *(_family_table(view) for view in views)),
        charts=("families",),
    )


def _matrix(views: tuple[PointView, ...], main: PointView) -> Table:
    """Families down, operating points across: the shape of growth at a glance."""
    shown = thinned(views, main)
    sums = {view.label: {row.family: row.sum_us_per_step for row in view.figures.families} for view in shown}
    families = sorted(
        {family for by_family in sums.values() for family in by_family},
        key=lambda family: (-sums[main.label].get(family, 0.0), family),
    )
    short = {view.label: view.label for view in shown}
    if all(label.startswith("batch ") for label in short):
        short = {label: label.removeprefix("batch ") for label in short}
    rows: list[tuple[Cell, ...]] = []
    for family in families:
        share = sums[main.label].get(family, 0.0) / main.family_sum_us if main.family_sum_us else None
        cells = [Cell(family_words(family), hover=family)]
        for view in shown:
            value = sums[view.label].get(family)
            cells.append(number(value, None if value is None else amount(value), "not in this replay"))
        cells.append(number(share, None if share is None else format_share(share)))
        rows.append(tuple(cells))
    return Table(
        name="families",
        title="Summed kernel time per step in us, by family and batch size (medians over clean steps)",
        columns=(
            Column("family"),
            *(Column(short[view.label], right=True, term="sum time") for view in shown),
            Column(f"share at {short[main.label]}", right=True),
        ),
        rows=tuple(rows),
        brief=30,
    )


def _family_table(view: PointView) -> Table:
    columns = (
        Column("family"),
        Column("launches per step", right=True),
        Column("sum, us", right=True, term="sum time"),
        Column("busy, us", right=True, term="busy time"),
        Column("share of busy", right=True, term="share of busy"),
        Column("alone, us", right=True, term="exclusive time"),
    )
    rows = tuple(
        (
            Cell(family_words(row.family), hover=row.family),
            number(row.launches_per_step, f"{row.launches_per_step:,.4g}"),
            number(row.sum_us_per_step, amount(row.sum_us_per_step, "us")),
            number(row.busy_us_per_step, amount(row.busy_us_per_step, "us")),
            number(row.share_of_busy, format_share(row.share_of_busy)),
            number(row.exclusive_us_per_step, amount(row.exclusive_us_per_step, "us")),
        )
        for row in sorted(view.figures.families, key=lambda row: -row.sum_us_per_step)
    )
    basis = f"{view.basis}, {plural(len(rows), 'family', 'families')}"
    return Table(
        name=f"families-{view.slug}",
        title=f"Families in a {view.unit} at {view.label} ({basis})",
        columns=columns,
        rows=rows,
        brief=30,
        detail=True,
    )


def _integer(value: int | None) -> Cell:
    return number(value, None if value is None else f"{value:,}")


def _median(summary: Summary) -> Cell:
    spread = f"p10 {amount(summary.p10)}, p90 {amount(summary.p90)}"
    return number(summary.median, amount(summary.median), spread)
