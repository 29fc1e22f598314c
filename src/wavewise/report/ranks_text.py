"""The ranks of one run beside each other: who works longest, and who waits in collectives."""

from wavewise.findings import Findings, RankRow
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, short_path


def sections(findings: Findings) -> tuple[Section, ...]:
    """The section; none unless several ranks were compared."""
    ranks = findings.ranks
    if ranks is None:
        return ()
    sentences = [ranks.sentence]
    if ranks.missing:
        named = listing([str(rank) for rank in ranks.missing])
        known = f" of {ranks.world_size}" if ranks.world_size else ""
        sentences.append(
            f"No trace was given of {ranks.by} {named}{known}: who waits for them cannot be seen."
        )
    rows = tuple(_cells(findings, row, ranks.straggler) for row in ranks.rows)
    return (
        Section(
            name="ranks",
            title="Which rank the others wait for",
            sentences=tuple(sentences),
            tables=(_table(ranks.by, rows),) if rows else (),
        ),
    )


def headlines(findings: Findings) -> tuple[str, ...]:
    """The answer, where a straggler was found."""
    ranks = findings.ranks
    return () if ranks is None or ranks.straggler is None else (ranks.sentence,)


def _table(by: str, rows: tuple[tuple[Cell, ...], ...]) -> Table:
    return Table(
        name="ranks",
        title="Ranks at the batch sizes that they share (medians over each rank's clean steps)",
        columns=(
            Column("batch size", right=True, term="batch size"),
            Column(by, right=True),
            Column("trace"),
            Column("clean steps", right=True, term="clean step"),
            Column("step, ms", right=True, term="step time"),
            Column("span, ms", right=True, term="GPU span"),
            Column("own work, ms", right=True),
            Column("collectives, us", right=True),
            Column("waits, us", right=True),
        ),
        rows=rows,
        brief=32,
    )


def _cells(findings: Findings, row: RankRow, straggler: int | None) -> tuple[Cell, ...]:
    path = findings.traces[row.trace].path
    rank = number(row.rank, str(row.rank), "the straggler" if row.rank == straggler else None)
    wait = row.wait_us_per_step
    return (
        number(row.batch_size, None if row.batch_size is None else str(row.batch_size)),
        rank,
        Cell(code(short_path(path)), hover=path),
        number(row.clean_steps, str(row.clean_steps)),
        number(row.step_ms, amount(row.step_ms)),
        number(row.gpu_span_ms, amount(row.gpu_span_ms)),
        number(row.own_ms, amount(row.own_ms)),
        number(row.collective_us_per_step, amount(row.collective_us_per_step, "us")),
        number(wait, None if wait is None else amount(wait, "us"), "no collective tells"),
    )
