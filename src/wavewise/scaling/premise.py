"""The premise check: is the family that looks dearest also the one that makes the step grow?"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from wavewise.findings import Findings, Fit, OperatingPoint, Premise, PremiseChange, Scaling
from wavewise.units import significant

UNNAMED = "other"
"""Kernels that no rule names are no premise: nobody plans work on them."""

FLOOR_SHARE = 0.10
"""A family with less than this share of the step's slope is called a floor."""

NOTHING = 0.001
"""An unattributed slope below this share of the step's is none."""

MATTERS = 0.05
"""Families below this share of the step's slope, before and now, change no premise."""


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
    """What families' slopes are shares of: the step's slope; the GPU span's where the host hides that."""
    for basis, fit in (("step", scaling.step), ("span", scaling.span)):
        slope = fit.slope_ms_per_request if fit else None
        if fit and slope is not None and slope > 0.0 and fit.slope_distinguishable is not False:
            return basis, slope
    return "step", None


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
        f"The family that looks dearest {role}: {share} but adds only {_ms(own)} per request. "
        f"`{found.slope_family}` is the slope: {carries}."
    )


def _sentences(found: Premise, scaling: Scaling) -> tuple[str, ...]:
    sentences: list[str] = []
    rest, parts = found.unattributed_slope_ms_per_request, scaling.unattributed
    if found.basis == "span":
        sentences.append(
            "The step itself does not measurably grow: host time hides what the GPU's time does."
        )
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
    before = _dearest_by_size(baseline)
    if not before:
        return (), "the baseline has no clean decode steps"
    changes = [*_dearest_changes(before, points), *_slope_changes(now, scaling, baseline)]
    return tuple(changes), None


def _dearest_by_size(findings: Findings) -> dict[int, str]:
    """Batch size -> family with the largest summed time."""
    rows = [(p.batch_size, p.families) for p in findings.operating_points] or [
        (row.batch_size, row.families) for trace in findings.traces for row in trace.decode
    ]
    found: dict[int, str] = {}
    for size, families in rows:
        named = [row for row in families if row.family != UNNAMED]
        if size is not None and named:
            found[size] = max(named, key=lambda row: row.sum_us_per_step).family
    return found


def _dearest_changes(before: Mapping[int, str], points: Sequence[OperatingPoint]) -> list[PremiseChange]:
    """The same size with another dearest family; else the largest sizes of the two, when they disagree."""
    now = {
        p.batch_size: max(named, key=lambda row: row.sum_us_per_step).family
        for p in points
        if (named := [row for row in p.families if row.family != UNNAMED])
    }
    common = sorted(set(before) & set(now))
    pairs = [(size, size) for size in common if before[size] != now[size]]
    if not pairs and now and before[max(before)] != now[max(now)]:
        pairs = [(max(before), max(now))]
    return [
        PremiseChange(
            premise="dearest family",
            before=before[old],
            now=now[new],
            message=f"The dearest family was `{before[old]}` at batch {old}; at batch {new} it is `{now[new]}`.",
        )
        for old, new in pairs
    ]


def _slope_changes(now: Premise, scaling: Scaling, baseline: Findings) -> list[PremiseChange]:
    old = baseline.scaling
    if old is None:
        if not now.differ:
            return []
        dearest = _dearest_by_size(baseline)
        size = min(dearest)
        return [
            PremiseChange(
                premise="slope",
                before=f"not measured (only batch {', '.join(map(str, sorted(dearest)))})",
                now=now.slope_family,
                message=f"The baseline knew no slope and showed `{dearest[size]}` as the dearest family; "
                f"the slope is that of `{now.slope_family}`, {_ms(now.slope_ms_per_request)} per request.",
            )
        ]
    changes = _family_slope_changes(scaling, old)
    named = [f for f in old.families if f.family and f.family != UNNAMED]
    if named:
        steepest = max(named, key=lambda fit: fit.slope_ms_per_request or 0.0)
        if steepest.family != now.slope_family:
            changes.insert(
                0,
                PremiseChange(
                    premise="slope",
                    before=steepest.family or "",
                    now=now.slope_family,
                    message=f"The slope was that of `{steepest.family}` "
                    f"({_ms(steepest.slope_ms_per_request or 0.0)} per request); it is now "
                    f"that of `{now.slope_family}` ({_ms(now.slope_ms_per_request)}).",
                ),
            )
    changes += [
        PremiseChange(
            premise=f"law of the {name}",
            before=was.model or "",
            now=is_now.model or "",
            message=f"The {name} followed {was.model}; it now follows {is_now.model}.",
        )
        for name, was, is_now in (("step", old.step, scaling.step), ("span", old.span, scaling.span))
        if was is not None and is_now is not None and was.model != is_now.model
    ]
    return changes


def _family_slope_changes(scaling: Scaling, old: Scaling) -> list[PremiseChange]:
    """Families that matter and whose slopes' intervals do not touch."""
    was = {fit.family: fit for fit in (*old.families, old.step)}
    least = MATTERS * max(
        abs(old.step.slope_ms_per_request or 0.0), abs(scaling.step.slope_ms_per_request or 0.0)
    )
    changes: list[PremiseChange] = []
    for fit in (scaling.step, *scaling.families):
        before = was.get(fit.family)
        a = before.slope_ms_per_request if before else 0.0
        b = fit.slope_ms_per_request
        if a is None or b is None or max(abs(a), abs(b)) < least:
            continue
        apart = _apart(before, fit) if before else True
        if apart:
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


def _percent(share: float) -> str:
    """Whole per cent from 10 % on: a share of a slope is not known better."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"


def _ms(value: float) -> str:
    """Milliseconds: slopes are read next to one another, so always in one unit."""
    return f"{significant(value, 3 if abs(value) >= 1.0 else 2)} ms"
