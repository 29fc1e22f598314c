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


def signed(value: float) -> str:
    return f"{'+' if value > 0 else '-' if value < 0 else ''}{amount(abs(value))}"


def values(change: Change) -> str:
    before, after = change.before or 0.0, change.after or 0.0
    if change.unit == "tokens/s":
        return f"{amount(before)} -> {amount(after)} tokens/s"
    return f"{ms(before)} -> {ms(after)}"


def relative(change: Change) -> str:
    return "-" if change.relative is None else f"{100 * change.relative:+.1f} %"


def size(change: Change) -> str:
    relative = f"{abs(100 * change.relative):.1f} %" if change.relative is not None else "-"
    return f"{ms(abs(change.change or 0.0))} or {relative}"
