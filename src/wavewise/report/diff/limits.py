"""`--fail-if`: a small language for what must not happen, and its judgement.

    decode.64.step_ms > +3%                 the step got over 3 % slower
    decode.*.span_ms > +0.1                 a replay got over 0.1 ms longer, at any batch size
    decode.64.family.moe_gemm.sum_us > +5%  the experts' GEMMs got over 5 % slower
    decode.64@12k.step_ms > 14              the step takes over 14 ms at that context
    decode.64.tokens_per_s < -2%            throughput fell by over 2 %

A signed number or a percentage limits the change, a bare number the value itself.
"""

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from wavewise.errors import UsageError
from wavewise.report.diff.result import Change, Diff, FamilyChange, LimitResult, PointDiff
from wavewise.report.diff.wording import signed_percent
from wavewise.report.section import listing
from wavewise.report.words import amount

STEP_METRICS = ("step_ms", "span_ms", "busy_ms", "sum_ms", "boundary_ms", "tokens_per_s")
FAMILY_METRICS = ("sum_us", "launches")
_SAME_THING = {"gpu_span_ms": "span_ms"}
"""The name of `findings.json` for a metric that this room calls shorter."""

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_LIMIT = re.compile(
    r"""\s* decode \. (?P<batch>\*|\d+) (?:@(?P<context>[^.@\s]+))?
        \. (?: family \. (?P<family>\*|\w+) \. )? (?P<metric>\w+)
        \s* (?P<comparison>>=|<=|>|<)
        \s* (?P<sign>[+-]?) \s* (?P<number>\d+(?:\.\d*)?|\.\d+) \s* (?P<percent>%?) \s*""",
    re.VERBOSE,
)
_EXAMPLE = "write for example 'decode.64.step_ms > +3%'"


@dataclass(frozen=True, slots=True)
class Limit:
    """One condition that must not come true.

    Attributes:
        batch: None for every batch size.
        family: "*" for every family, None where the metric is the step's own.
        kind: "relative" (per cent), "change" or "value", in the metric's unit.
    """

    text: str
    batch: int | None
    context: str | None
    family: str | None
    metric: str
    comparison: str
    number: float
    kind: str

    def exceeded_by(self, value: float) -> bool:
        """Whether a value or change trips the limit."""
        return _COMPARISONS[self.comparison](value, self.number)


def parse_limit(text: str) -> Limit:
    """Reads one condition.

    Raises:
        UsageError: it does not follow the grammar; the message says where.
    """
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise UsageError(f"--fail-if {text!r}: not understood; {_EXAMPLE}")
    metric = _SAME_THING.get(found["metric"], found["metric"])
    known = STEP_METRICS if found["family"] is None else FAMILY_METRICS
    if metric not in known:
        raise UsageError(f"--fail-if {text!r}: no quantity {metric!r} there; one of {', '.join(known)}")
    number = float(found["number"]) * (-1 if found["sign"] == "-" else 1)
    kind = "relative" if found["percent"] else "change" if found["sign"] else "value"
    upwards = found["comparison"].startswith(">")
    if kind != "value" and (number < 0 if upwards else number > 0):
        better = f"{found['comparison']} {'+' if upwards else '-'}{found['number']}{found['percent']}"
        raise UsageError(f"--fail-if {text!r}: would fail without any change; did you mean {better!r}?")
    if kind == "relative" and not upwards and found["sign"] != "-" and number:
        raise UsageError(f"--fail-if {text!r}: a fall is written with its sign, {_EXAMPLE}")
    return Limit(
        text=text.strip(),
        batch=None if found["batch"] == "*" else int(found["batch"]),
        context=found["context"],
        family=found["family"],
        metric=metric,
        comparison=found["comparison"],
        number=number,
        kind=kind,
    )


def judged(diff: Diff, limits: Iterable[Limit]) -> Diff:
    """The diff with conditions judged on it.

    Raises:
        UsageError: a condition names what the two sides do not both have, so that it can't be judged.
    """
    results = [_verdict(limit, path, change) for limit in limits for path, change in _quantities(diff, limit)]
    return msgspec.structs.replace(diff, limits=tuple(results))


def _quantities(diff: Diff, limit: Limit) -> list[tuple[str, Change]]:
    """What a condition speaks of, by path."""
    points = [point for point in diff.points if _speaks_of(limit, point)]
    if not points:
        sizes = [str(point.batch_before) for point in diff.points if point.batch_before == point.batch_after]
        there = f"batch sizes on both sides: {listing(sizes)}" if sizes else "no batch size is on both sides"
        raise UsageError(f"--fail-if {limit.text!r}: nothing to judge it on ({there})")
    found: list[tuple[str, Change]] = []
    for point in points:
        stem = f"decode.{point.batch_before}"
        if limit.family is None:
            change = point.step(limit.metric)
            if change is not None:
                found.append((f"{stem}.{limit.metric}", change))
            continue
        for row in point.families:
            if limit.family in ("*", row.family):
                change = row.sum_us if limit.metric == "sum_us" else _launches(row)
                found.append((f"{stem}.family.{row.family}.{limit.metric}", change))
    if not found:
        raise UsageError(f"--fail-if {limit.text!r}: nothing to judge it on (neither side has it)")
    return found


def _speaks_of(limit: Limit, point: PointDiff) -> bool:
    if point.batch_before != point.batch_after or point.batch_before is None:
        return False
    if limit.batch is not None and limit.batch != point.batch_before:
        return False
    contexts = {_plain(context) for context in (point.context_before, point.context_after) if context}
    return limit.context is None or contexts == {_plain(limit.context)}


def _plain(context: str) -> str:
    """Contexts as written on the command line and as printed are compared without separators and units."""
    text = re.sub(r"[\s,]|tokens", "", context.lower())
    thousands = re.fullmatch(r"(\d+)k", text)
    return str(int(thousands[1]) * 1024) if thousands else text


def _launches(row: FamilyChange) -> Change:
    """Launches are counted, not measured: any difference is real."""
    before, after = row.launches_before, row.launches_after
    return Change(
        quantity="launches",
        unit="launches",
        before=before,
        after=after,
        change=after - before,
        relative=(after - before) / before if before else None,
        noise_floor=0.0,
        verdict="same" if after == before else "up" if after > before else "down",
    )


def _verdict(limit: Limit, path: str, change: Change) -> LimitResult:
    """Whether a condition came true, beyond noise."""
    appeared = change.before in (None, 0) and change.after not in (None, 0)
    vanished = change.before not in (None, 0) and change.after in (None, 0)
    value = {
        "relative": None if change.relative is None else 100 * change.relative,
        "change": (change.after or 0.0) - (change.before or 0.0),
        "value": change.after or 0.0,
    }[limit.kind]
    if limit.kind == "relative" and (appeared or vanished):
        # Out of nothing is more than any percentage; into nothing is all of it.
        value = float("inf") if appeared else -100.0
    said = f"{path} {_numbers(change)}"
    if value is None or not limit.exceeded_by(value):
        return LimitResult(limit=limit.text, path=path, outcome="kept", message=said)
    if change.verdict == "unclear":
        return LimitResult(limit=limit.text, path=path, outcome="unclear", message=f"{said}: {change.reason}")
    if limit.kind == "value":
        beyond = abs(value - limit.number) > change.noise_floor
    else:
        beyond = change.verdict not in ("noise", "same")
    outcome = "exceeded" if beyond else "within noise"
    return LimitResult(limit=limit.text, path=path, outcome=outcome, message=said)


def _numbers(change: Change) -> str:
    """Such as 8.30 -> 13.2 ms (+59.2 %)."""
    before, after = (
        "none" if side is None else amount(side, change.unit) for side in (change.before, change.after)
    )
    relative = "" if change.relative is None else f" ({signed_percent(change.relative)} %)"
    return f"{before} -> {after} {change.unit}{relative}"
