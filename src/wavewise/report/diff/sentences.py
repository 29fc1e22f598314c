"""What a diff says in sentences: step time and its cause, families, kernels, limits."""

from collections.abc import Sequence

from wavewise.report.diff.result import Change, Diff, FamilyChange, LimitResult, PointDiff
from wavewise.report.diff.wording import UNCHANGED, is_unchanged, relative, size, values
from wavewise.report.section import code, listing
from wavewise.report.words import family_words, percent, plural, short_kernel, us

_MOSTLY = 0.8
"""From this share on, one part of a change explains it."""

_LARGE = 0.05
"""A family over this share of the summed kernel time is named when it stays as it is."""

_NAMED = 4
"""How many families, or kernels, one sentence names."""

_FOLLOWS_CONTEXT = frozenset({"attention", "attention_split", "attention_combine", "indexer", "kv_compress"})
"""Families whose work grows with the context length."""


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
        said = f"{start}step time {_unchanged(step)}: {values(step)} {basis}"
        return f"{said}; {_span_clause(span)}." if span is not None else f"{said}."
    word = "longer" if step.verdict == "up" else "shorter"
    said = f"{start}a step is {size(step)} {word}: {values(step)} {basis}"
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
            f"{where} is host time at step boundaries ({values(boundary)}), host noise or a change on the host, "
            f"not GPU work: {_span_clause(span)}."
        )
    if share <= 1 - _MOSTLY:
        return f"It is GPU work: {_span_clause(span)}."
    return f"{where} is host time at step boundaries ({values(boundary)}); {_span_clause(span)}."


def _span_clause(span: Change) -> str:
    if span.verdict in ("up", "down"):
        return f"the replay's GPU span went {span.verdict} by {size(span)} ({values(span)})"
    return f"the replay's GPU span {_unchanged(span)} ({values(span)}, {relative(span)})"


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
    if is_unchanged(change):
        return f"{name} {UNCHANGED} ({us(change.before or 0)})"
    sign = "+" if change.change >= 0 else "-"
    return f"{name} {sign}{us(abs(change.change))} ({relative(change)}, {us(change.before or 0)} before)"


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
