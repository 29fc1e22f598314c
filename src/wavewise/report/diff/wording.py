"""Words and figures that the sentences and the tables of a diff share."""

from wavewise.report.diff.result import Change
from wavewise.report.words import amount, ms

STEP_WORDS = {
    "step_ms": "step time",
    "span_ms": "GPU span",
    "busy_ms": "busy time",
    "sum_ms": "sum of kernel time",
    "boundary_ms": "step boundary",
    "tokens_per_s": "throughput",
}

VERDICT_WORDS = {
    "up": "up",
    "down": "down",
    "noise": "within noise",
    "same": "same",
    "unclear": "too few steps",
    "added": "new",
    "vanished": "gone",
}


UNCHANGED = "unchanged"

_LEAST = {"ms": 1e-6, "us": 1e-3, "tokens/s": 0.005}
"""Changes below this are none: traces record times in whole nanoseconds, and of a throughput nobody reads more
than two decimals. A median of an even number of steps can still move by half a nanosecond."""

_ROUNDING = 1e-9
"""What subtracting two figures may take from a difference that is exactly the least one, as a share of it."""


def is_unchanged(change: Change) -> bool:
    """Whether a quantity that both sides have moved by less than its resolution."""
    return change.change is not None and below_resolution(change.change, change.unit)


def below_resolution(value: float, unit: str) -> bool:
    """Whether a difference in `unit` is less than can have been recorded."""
    return abs(value) < _LEAST.get(unit, 0.0) * (1 - _ROUNDING)


def signed(value: float, unit: str) -> str:
    """A difference with its sign, "0" below the resolution of its unit."""
    if value == 0 or below_resolution(value, unit):
        return "0"
    shown = f"{abs(value):,.2f}" if unit == "tokens/s" and abs(value) < 1 else amount(abs(value), unit)
    return f"{'+' if value > 0 else '-'}{shown}"


def signed_percent(share: float) -> str:
    """A relative change in per cent with one decimal; what rounds to none has no sign."""
    text = f"{100 * share:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def values(change: Change) -> str:
    before, after = change.before or 0.0, change.after or 0.0
    if change.unit == "tokens/s":
        return f"{amount(before)} -> {amount(after)} tokens/s"
    return f"{ms(before)} -> {ms(after)}"


def relative(change: Change) -> str:
    return "-" if change.relative is None else f"{signed_percent(change.relative)} %"


def size(change: Change) -> str:
    relative = f"{abs(100 * change.relative):.1f} %" if change.relative is not None else "-"
    return f"{ms(abs(change.change or 0.0))} or {relative}"
