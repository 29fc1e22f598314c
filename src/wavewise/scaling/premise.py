"""The premise check: is the family that looks dearest also the one that makes the step grow?"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from wavewise.findings import FamilyRow, Findings, Fit, OperatingPoint, Premise, PremiseChange, Scaling
from wavewise.scaling.fit import line_holds
from wavewise.scaling.laws import WORDS
from wavewise.scaling.sweep import RESOLUTION_MS
from wavewise.units import significant

UNNAMED = "other"
"""Kernels that no rule names are no premise: nobody plans work on them."""

FLOOR_SHARE = 0.10
"""A family with less than this share of the step's slope is called a floor."""

NOTHING = 0.001
"""An unattributed slope below this share of the step's is none."""

LITTLE = 0.01
"""Below this share of the span's slope, what is left needs no parts."""

MATTERS = 0.05
"""Families below this share of the step's slope, before and now, change no premise."""

REVISED = 0.10
"""A slope that moved by less than a tenth revises nothing that was planned on it."""

NOISE_SHARE = 0.01
"""Recordings of equal work differ by up to this share of a family's time (measured: see the diff's noise floor)."""

DEAREST_MARGIN = 0.05
"""One family is dearer than another from this margin on: two such errors in each of two recordings."""


def premise(
    scaling: Scaling, points: Sequence[OperatingPoint], baseline: Findings | None = None
) -> Premise | None:
    """Compares the dearest family at the smallest batch size with the steepest.

    Args:
        scaling: of `points`.
        points: one per batch size, as given to `fit_scaling`.
        baseline: an earlier analysis whose premises to check.

    Returns:
        None where no named family was measured.
    """
    named = [fit for fit in scaling.families if fit.family and fit.family != UNNAMED]
    if not named:
        return None
    smallest = min(points, key=lambda point: point.batch_size)
    largest = max(points, key=lambda point: point.batch_size)
    dearest = max(named, key=lambda fit: _value(fit, smallest.batch_size))
    late = max(named, key=lambda fit: _value(fit, largest.batch_size))
    steepest = max(named, key=lambda fit: fit.slope_ms_per_request or 0.0)
    basis, whole = _growth(scaling)
    value = _value(dearest, smallest.batch_size)
    busy = {row.family: row.share_of_busy for row in smallest.families}
    found = Premise(
        share_family=dearest.family or "",
        share_family_ms=value,
        share_batch_size=smallest.batch_size,
        share_of_step=value / smallest.step_ms.median,
        share_of_busy=busy.get(dearest.family or ""),
        share_family_slope_ms_per_request=dearest.slope_ms_per_request or 0.0,
        slope_family=steepest.family or "",
        slope_ms_per_request=steepest.slope_ms_per_request or 0.0,
        slope_share=None if whole is None else (steepest.slope_ms_per_request or 0.0) / whole,
        basis=basis,
        step_slope_ms_per_request=scaling.step.slope_ms_per_request or 0.0,
        span_slope_ms_per_request=scaling.span.slope_ms_per_request if scaling.span else None,
        unattributed_slope_ms_per_request=scaling.unattributed_slope_ms_per_request,
        largest_batch_family=late.family or "",
        largest_batch_size=largest.batch_size,
        differ=whole is not None and dearest.family != steepest.family and _apart(dearest, steepest),
        headline="",
    )
    found = replace(found, headline=_headline(found), sentences=_sentences(found, scaling))
    if baseline is None:
        return found
    changes, reason = premise_changes(found, scaling, points, baseline)
    return replace(found, changes=changes, baseline_reason=reason)


def _growth(scaling: Scaling) -> tuple[str, float | None]:
    """What families' slopes are shares of: the step's slope; the GPU span's where the host hides that.

    The host hides it where the step's slope cannot be told from 0, and where the step's medians lie on no line.
    """
    grows = [
        (basis, fit, fit.slope_ms_per_request)
        for basis, fit in (("step", scaling.step), ("span", scaling.span))
        if fit and (fit.slope_ms_per_request or 0.0) > 0.0 and fit.slope_distinguishable is not False
    ]
    sound = [(basis, slope) for basis, fit, slope in grows if line_holds(fit)]
    any_slope = [(basis, slope) for basis, _, slope in grows]
    return next(iter([*sound, *any_slope]), ("step", None))


def _value(fit: Fit, batch_size: int) -> float:
    return next((p.value_ms for p in fit.points if p.batch_size == batch_size), 0.0)


def _apart(one: Fit, other: Fit) -> bool:
    """Whether two slopes' intervals lie apart; without intervals, whether the slopes differ."""
    a, b = one.slope_ms_per_request_95, other.slope_ms_per_request_95
    if a is None or b is None:
        return one.slope_ms_per_request != other.slope_ms_per_request
    return a[1] < b[0] or b[1] < a[0]


def _headline(found: Premise) -> str:
    share = (
        f"`{found.share_family}` is the largest family at batch {found.share_batch_size} "
        f"({_ms(found.share_family_ms)}, {_percent(found.share_of_step)} of the step)"
    )
    if found.slope_share is None:
        return (
            f"{share}; the step does not measurably grow with the batch size, so no family carries a slope."
        )
    whole, slope = (
        ("the step's", found.step_slope_ms_per_request)
        if found.basis == "step"
        else ("the GPU span's", found.span_slope_ms_per_request or 0.0)
    )
    carries = f"{_ms(found.slope_ms_per_request)} per request, {_percent(found.slope_share)} of {whole} {_ms(slope)}"
    if found.share_family == found.slope_family:
        return f"{share} and the steepest: {carries}."
    if not found.differ:
        return f"{share}; `{found.slope_family}` may be the steeper ({carries}), but the intervals overlap."
    own = found.share_family_slope_ms_per_request
    is_floor = abs(own) < FLOOR_SHARE * slope
    role = "is a floor" if is_floor else "is not what makes it grow"
    return (
        f"The family that looks dearest {role}: {share} but adds only {_ms(own)} per request; "
        f"`{found.slope_family}` is the slope: {carries}."
    )


def _sentences(found: Premise, scaling: Scaling) -> tuple[str, ...]:
    sentences: list[str] = []
    rest, parts = found.unattributed_slope_ms_per_request, scaling.unattributed
    if found.basis == "span":
        sentences.append(_hidden(scaling.step))
        if parts and parts.gaps_ms_per_request is not None:
            sentences.append(_left_of_span(found, parts.gaps_ms_per_request, parts.unnamed_ms_per_request))
    elif rest is not None and found.slope_share is not None:
        unnamed = parts.unnamed_ms_per_request if parts else 0.0
        where: list[tuple[float, str]] = []
        if parts and parts.outside_replay_ms_per_request is not None:
            where.append((parts.outside_replay_ms_per_request, "outside the replay"))
        if parts and parts.gaps_ms_per_request is not None:
            where.append((parts.gaps_ms_per_request, "in gaps inside it"))
        where.append((unnamed, "in kernels that no rule names"))
        total = rest + unnamed
        step_slope = found.step_slope_ms_per_request
        shown = [f"{_ms(value)} {place}" for value, place in where if abs(value) >= 0.01 * abs(total) > 0.0]
        sentences.append(
            f"{_ms(total)} per request of {_ms(step_slope)} ({_percent(total / step_slope)}) are explained by no "
            f"named family: {', '.join(shown)}."
            if abs(total) >= NOTHING * step_slope
            else f"Named families explain the whole slope of {_ms(step_slope)} per request."
        )
    if found.largest_batch_family != found.share_family:
        sentences.append(
            f"At batch {found.largest_batch_size} the largest family is `{found.largest_batch_family}`."
        )
    return tuple(sentences)


def _hidden(step: Fit) -> str:
    """Why the step's own slope is no measure of what the families add."""
    slope = step.slope_ms_per_request or 0.0
    if step.slope_distinguishable is False or slope <= 0.0:
        return "The step itself does not measurably grow: host time hides what the GPU's time does."
    return (
        f"The step itself follows no line: a slope of {_ms(slope)} per request misses its medians by up to "
        f"{_ms(step.line_max_abs_residual_ms or 0.0)}, because host time changes from size to size."
    )


def _left_of_span(found: Premise, gaps: float, unnamed: float) -> str:
    """What no family explains of the GPU span's slope."""
    whole, rest = found.span_slope_ms_per_request or 0.0, gaps + unnamed
    if abs(rest) < NOTHING * whole:
        return f"Named families explain the whole slope of the GPU span, {_ms(whole)} per request."
    if abs(rest) < LITTLE * whole:
        return (
            f"Named families explain all but {_percent(abs(rest) / whole)} of the GPU span's slope, "
            f"{_ms(whole)} per request."
        )
    where = [(gaps, "in gaps inside the replay"), (unnamed, "in kernels that no rule names")]
    shown = [f"{_ms(value)} {place}" for value, place in where if abs(value) >= 0.01 * abs(rest) > 0.0]
    return (
        f"{_ms(rest)} per request of the GPU span's {_ms(whole)} ({_percent(rest / whole)}) are explained by no "
        f"named family: {', '.join(shown)}."
    )


def premise_changes(
    now: Premise, scaling: Scaling, points: Sequence[OperatingPoint], baseline: Findings
) -> tuple[tuple[PremiseChange, ...], str | None]:
    """What an earlier analysis held that these traces do not bear out; or why the two cannot be compared."""
    gpus = {point.gpu for point in points if point.gpu}
    earlier = {trace.gpu.name for trace in baseline.traces if trace.gpu.name}
    if gpus and earlier and not gpus & earlier:
        return (
            (),
            f"the baseline is of {', '.join(sorted(earlier))}, these traces of {', '.join(sorted(gpus))}",
        )
    before = _times_by_size(baseline)
    if not before:
        return (), "the baseline has no clean decode steps"
    changes = [*_dearest_changes(before, points), *_slope_changes(now, scaling, baseline)]
    return tuple(changes), None


def _times_by_size(findings: Findings) -> dict[int, dict[str, float]]:
    """Batch size -> named family -> summed time per step, us."""
    rows = [(p.batch_size, p.families) for p in findings.operating_points] or [
        (row.batch_size, row.families) for trace in findings.traces for row in trace.decode
    ]
    return {size: named for size, families in rows if size is not None and (named := _named(families))}


def _named(families: Sequence[FamilyRow]) -> dict[str, float]:
    return {row.family: row.sum_us_per_step for row in families if row.family != UNNAMED}


def _dearest(times: Mapping[str, float]) -> str:
    return max(times, key=lambda family: times[family])


def _dearer(one: str, other: str, times: Mapping[str, float]) -> bool:
    """Whether `one` takes more than `other` by more than recordings of equal work differ."""
    return times.get(one, 0.0) > (1 + DEAREST_MARGIN) * times.get(other, 0.0)


def _dearest_changes(
    before: Mapping[int, Mapping[str, float]], points: Sequence[OperatingPoint]
) -> list[PremiseChange]:
    """The same size with another dearest family; else the largest sizes of the two, when they disagree.

    Both sides have to tell the two families apart: two that are about as dear swap places by chance.
    """
    now = {p.batch_size: named for p in points if (named := _named(p.families))}

    def changed(old: int, new: int) -> bool:
        was, is_now = _dearest(before[old]), _dearest(now[new])
        return was != is_now and _dearer(was, is_now, before[old]) and _dearer(is_now, was, now[new])

    pairs = [(size, size) for size in sorted(set(before) & set(now)) if changed(size, size)]
    if not pairs and now and changed(max(before), max(now)):
        pairs = [(max(before), max(now))]
    return [
        PremiseChange(
            premise="dearest family",
            before=_dearest(before[old]),
            now=_dearest(now[new]),
            message=f"The dearest family was `{_dearest(before[old])}` at batch {old}; at batch {new} it is "
            f"`{_dearest(now[new])}`.",
        )
        for old, new in pairs
    ]


def _slope_changes(now: Premise, scaling: Scaling, baseline: Findings) -> list[PremiseChange]:
    old = baseline.scaling
    if old is None:
        if not now.differ:
            return []
        times = _times_by_size(baseline)
        dearest = _dearest(times[min(times)])
        return [
            PremiseChange(
                premise="slope",
                before=f"not measured (only batch {', '.join(map(str, sorted(times)))})",
                now=now.slope_family,
                message=f"The baseline knew no slope and showed `{dearest}` as the dearest family; "
                f"the slope is that of `{now.slope_family}`, {_ms(now.slope_ms_per_request)} per request.",
            )
        ]
    return [
        *_steepest_changes(now, scaling, old),
        *_family_slope_changes(scaling, old),
        *_law_changes(scaling, old),
    ]


def _steepest_changes(now: Premise, scaling: Scaling, old: Scaling) -> list[PremiseChange]:
    """Another family carries the slope, and both sides tell the two apart."""
    was = _slopes(old)
    if not was:
        return []
    steepest, slopes = max(was, key=lambda family: was[family]), _slopes(scaling)
    new = now.slope_family
    told_before = was[steepest] > (1 + REVISED) * was.get(new, 0.0)
    if steepest == new or not told_before or slopes[new] <= (1 + REVISED) * slopes.get(steepest, 0.0):
        return []
    return [
        PremiseChange(
            premise="slope",
            before=steepest,
            now=new,
            message=f"The slope was that of `{steepest}` ({_ms(was[steepest])} per request); it is now "
            f"that of `{new}` ({_ms(now.slope_ms_per_request)}).",
        )
    ]


def _slopes(scaling: Scaling) -> dict[str, float]:
    return {
        fit.family: fit.slope_ms_per_request or 0.0
        for fit in scaling.families
        if fit.family and fit.family != UNNAMED
    }


def _family_slope_changes(scaling: Scaling, old: Scaling) -> list[PremiseChange]:
    """Families that matter and whose slopes moved by more than noise."""
    was = {fit.family: fit for fit in (*old.families, old.step)}
    least = MATTERS * max(
        abs(old.step.slope_ms_per_request or 0.0), abs(scaling.step.slope_ms_per_request or 0.0)
    )
    changes: list[PremiseChange] = []
    for fit in (scaling.step, *scaling.families):
        before = was.get(fit.family)
        a = before.slope_ms_per_request if before else 0.0
        b = fit.slope_ms_per_request
        if a is None or b is None or max(abs(a), abs(b)) < least or not _moved(before, fit):
            continue
        name = fit.family or "step"
        changes.append(
            PremiseChange(
                premise=f"slope of {name}",
                before=f"{_ms(a)} per request",
                now=f"{_ms(b)} per request",
                message=f"The slope of `{name}` was {_ms(a)} per request; it is now {_ms(b)}.",
            )
        )
    return changes


def _moved(before: Fit | None, now: Fit) -> bool:
    """Whether a slope moved by more than its size and its noise allow.

    It has to move by a tenth; over the sizes now measured, by more than either line misses a size and by more
    than recordings of equal work differ; and the intervals, which hold the scatter of the steps, must lie apart.
    """
    a = (before.slope_ms_per_request or 0.0) if before else 0.0
    b = now.slope_ms_per_request or 0.0
    if abs(a - b) < REVISED * max(abs(a), abs(b)):
        return False
    sizes = [point.batch_size for point in now.points]
    fits = [now] if before is None else [before, now]
    missed = [fit.line_max_abs_residual_ms or 0.0 for fit in fits]
    if abs(a - b) * (max(sizes) - min(sizes)) <= max(*missed, NOISE_SHARE * _largest(fits), RESOLUTION_MS):
        return False
    return before is None or _apart(before, now)


def _largest(fits: Sequence[Fit]) -> float:
    return max((point.value_ms for fit in fits for point in fit.points), default=0.0)


def _law_changes(scaling: Scaling, old: Scaling) -> list[PremiseChange]:
    """Step or span follow another law, and the old one now predicts worse by more than chance."""
    return [
        PremiseChange(
            premise=f"law of the {name}",
            before=was.model or "",
            now=is_now.model or "",
            message=f"The {name} followed {_law(was)}; it now follows {_law(is_now)}.",
        )
        for name, was, is_now in (("step", old.step, scaling.step), ("span", old.span, scaling.span))
        if was is not None and is_now is not None and was.model != is_now.model and _refuted(was, is_now)
    ]


def _law(fit: Fit) -> str:
    return WORDS.get(fit.model or "", fit.model or "no law")


def _refuted(was: Fit, now: Fit) -> bool:
    """Whether the law of `was` fails on what is now measured; where nothing tells, whether the slope moved."""
    errors = {candidate.model: candidate for candidate in now.candidates}
    old, chosen = errors.get(was.model or ""), errors.get(now.model or "")
    if (
        old is None
        or chosen is None
        or old.leave_one_out_error_ms is None
        or chosen.leave_one_out_error_ms is None
    ):
        return _moved(was, now)
    chance = max(chosen.standard_error_ms or 0.0, NOISE_SHARE * _largest([now]))
    return old.leave_one_out_error_ms - chosen.leave_one_out_error_ms > chance


def _percent(share: float) -> str:
    """Whole per cent from 10 % on: a share of a slope is not known better."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"


def _ms(value: float) -> str:
    """Milliseconds: slopes are read next to one another, so always in one unit, down to a nanosecond."""
    if 0.0 < abs(value) < RESOLUTION_MS:
        return "under 1 ns"
    text = significant(value, 3 if abs(value) >= 1.0 else 2)
    return f"{text if len(text.partition('.')[2]) <= 6 else f'{value:.6f}'} ms"
