"""How far the step could fall: families free, twice as fast or at their roofline floors; telemetry beside it."""

from collections.abc import Sequence

from wavewise.findings import Ceiling, Findings, WhatIf
from wavewise.report.section import Cell, Column, Section, Table, code, listing, number
from wavewise.report.words import amount, ms, percent
from wavewise.units import significant

KERNEL_SUM, BUSY, STEP = "kernel_sum", "busy", "step"

BASIS_WORDS = {KERNEL_SUM: "summed kernel time", BUSY: "busy time", STEP: "step time"}


def sections(findings: Findings) -> tuple[Section, ...]:
    """Ceilings at the largest batch size in full, the others in detail; then what telemetry says."""
    found = list(_ceilings(findings))
    if (sign := findings.signature) is not None:
        because = (
            (f"Because {'; '.join(sign.because)} (medians of {sign.samples:,} samples).",)
            if sign.because
            else ()
        )
        found.append(
            Section(
                name="telemetry",
                title="What the GPU's telemetry says",
                sentences=(sign.sentence, *because),
            )
        )
    return tuple(found)


def _ceilings(findings: Findings) -> tuple[Section, ...]:
    rows = findings.ceilings or ()
    if not rows:
        reason = findings.ceilings_reason
        sentence = (f"No ceilings: {reason.rstrip('.')}.",) if reason else ()
        return (Section(name="ceilings", title=_TITLE, sentences=sentence),) if sentence else ()
    points = list(dict.fromkeys(_place(row) for row in rows))
    main = max(points, key=lambda place: (place[0] or 0, place[1] or 0))
    here = [row for row in rows if _place(row) == main]
    asked = [one for one in findings.what_ifs or () if (one.batch_size, one.context_length) == main[:2]]
    return (
        Section(
            name="ceilings",
            title=_TITLE,
            sentences=(*_sentences(here), *_floors(here)),
            tables=(
                _table(here, _at(main), detail=False),
                *([_asked(asked, _at(main))] if asked else []),
                *(
                    _table([row for row in rows if _place(row) == place], _at(place), detail=True)
                    for place in points
                    if place != main
                ),
            ),
            charts=("ceilings",),
        ),
    )


_TITLE = "What would be left if families were free"

Place = tuple[int | None, int | None, str | None]


def _place(row: Ceiling) -> Place:
    return row.batch_size, row.context_length, row.context_label


def _at(place: Place) -> str:
    size = "an unknown batch size" if place[0] is None else f"batch {place[0]}"
    context = place[2] or (None if place[1] is None else f"{place[1]:,} tokens")
    return size if context is None else f"{size}, {context} of context"


def _slug(at: str) -> str:
    return "-".join("".join(char if char.isalnum() else " " for char in at.lower()).split())


def _sentences(here: Sequence[Ceiling]) -> tuple[str, ...]:
    """The limit of the family that could give most, on the three bases, and what the host leaves."""
    steps = [row for row in here if row.basis == STEP and row.speedup_if_free is not None]
    if not steps:
        return ()
    best = max(steps, key=lambda row: row.speedup_if_free or 0.0)
    by_basis = {row.basis: row for row in here if row.family == best.family}
    shares = [
        f"{significant(row.speedup_if_free)}x on {BASIS_WORDS[basis]}"
        for basis in (KERNEL_SUM, BUSY, STEP)
        if (row := by_basis.get(basis)) is not None and row.speedup_if_free is not None
    ]
    limit = f" ({significant(best.tokens_per_s_if_free)} tokens/s)" if best.tokens_per_s_if_free else ""
    sentences = [
        f"No work on {code(best.family)} can pass {', '.join(shares)}{limit} at "
        f"{_at(_place(best))}: that is the step with the family free."
    ]
    if best.host_floor_ms is not None:
        bound = " and is what binds it then" if best.binding == "host" else ""
        sentences.append(
            f"The host floor of a step at {_at(_place(best))}, its smallest clean boundary plus launch time, is "
            f"{ms(best.host_floor_ms)}{bound}."
        )
    return tuple(sentences)


def _floors(here: Sequence[Ceiling]) -> tuple[str, ...]:
    """Roofline floors, and why there are none."""
    kernel = [row for row in here if row.basis == KERNEL_SUM]
    floored = [row for row in kernel if row.floor_ms is not None and row.family_ms]
    sentences = [
        f"{code(row.family)} takes {ms(row.family_ms or 0.0)} where its roofline floor is "
        f"{ms(row.floor_ms or 0.0)} ({row.floor_bound}: {significant((row.floor_bytes or 0.0) / 1e9)} GB, "
        f"{significant((row.floor_flops or 0.0) / 1e9)} GFLOP): it runs at "
        f"{percent((row.floor_ms or 0.0) / (row.family_ms or 1.0))} of it."
        for row in floored
    ]
    reasons: dict[str, list[str]] = {}
    for row in kernel:
        if row.family in _MODELLED and row.floor_reason is not None:
            reasons.setdefault(row.floor_reason, []).append(code(row.family))
    for reason, families in reasons.items():
        # Which families it is about must be said where others have a floor, or another reason.
        whose = f" for {listing(families)}" if floored or len(reasons) > 1 else ""
        sentences.append(f"No roofline floor{whose}: {reason}.")
    return tuple(sentences)


_MODELLED = ("attention", "attention_split", "indexer", "moe_gemm", "dense_gemm")


def _table(here: Sequence[Ceiling], at: str, *, detail: bool) -> Table:
    """One row per family, the three bases side by side."""
    families = list(dict.fromkeys(row.family for row in here))
    by_key = {(row.family, row.basis): row for row in here}
    return Table(
        name=f"ceilings-{_slug(at)}",
        title=f"Speed-up if a family were free, at {at}",
        columns=(
            Column("family"),
            Column("time, ms", right=True, term="sum time"),
            Column("of summed kernel time", right=True),
            Column("of busy time", right=True),
            Column("of the step", right=True, term="ceiling"),
            Column("tokens/s then", right=True),
            Column("bound by"),
            Column("of the step, twice as fast", right=True, essential=False),
            Column("roofline floor, ms", right=True, essential=False),
            Column("of the step, at its floor", right=True, essential=False),
        ),
        rows=tuple(_row(family, by_key) for family in families),
        brief=8,
        detail=detail,
    )


def _row(family: str, by_key: dict[tuple[str, str], Ceiling]) -> tuple[Cell, ...]:
    kernel, busy, step = (by_key[family, basis] for basis in (KERNEL_SUM, BUSY, STEP))
    return (
        Cell(code(family)),
        number(kernel.family_ms, None if kernel.family_ms is None else amount(kernel.family_ms)),
        _times(kernel.speedup_if_free, kernel.reason),
        _times(busy.speedup_if_free, busy.reason),
        _times(step.speedup_if_free, step.reason),
        number(
            step.tokens_per_s_if_free,
            None if step.tokens_per_s_if_free is None else amount(step.tokens_per_s_if_free),
            step.reason,
        ),
        Cell({"gpu": "GPU", None: "-"}.get(step.binding, step.binding or "-")),
        _times(step.speedup_if_2x, step.reason),
        number(
            kernel.floor_ms, None if kernel.floor_ms is None else amount(kernel.floor_ms), kernel.floor_reason
        ),
        _times(step.speedup_if_at_floor, step.floor_reason),
    )


def _times(speedup: float | None, reason: str | None) -> Cell:
    return number(speedup, None if speedup is None else f"{speedup:,.2f}x", reason)


def _asked(asked: Sequence[WhatIf], at: str) -> Table:
    """Combined what-ifs, the bases side by side."""
    names = list(dict.fromkeys(one.name for one in asked))
    by_key = {(one.name, one.basis): one for one in asked}
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        kernel, busy, step = (by_key[name, basis] for basis in (KERNEL_SUM, BUSY, STEP))
        changed = ", ".join(f"{family} {change}" for family, change in step.changes.items())
        rows.append(
            (
                Cell(name, hover=changed),
                _times(kernel.speedup, kernel.reason),
                _times(busy.speedup, busy.reason),
                _times(step.speedup, step.reason),
                number(step.tokens_per_s, None if step.tokens_per_s is None else amount(step.tokens_per_s)),
                Cell({"gpu": "GPU", None: "-"}.get(step.binding, step.binding or "-")),
            )
        )
    return Table(
        name="what-ifs",
        title=f"Several families at once, at {at} (busy and step: at least this much)",
        columns=(
            Column("if"),
            Column("of summed kernel time", right=True),
            Column("of busy time", right=True),
            Column("of the step", right=True),
            Column("tokens/s then", right=True),
            Column("bound by"),
        ),
        rows=tuple(rows),
    )
