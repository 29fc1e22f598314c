"""Unit conversions and the rendering of quantities: one rounding rule for every report."""

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
KIB = 1024
WARP_THREADS = 32


def ns_to_us(ns: float) -> float:
    """Nanoseconds to microseconds."""
    return ns / NS_PER_US


def ns_to_ms(ns: float) -> float:
    """Nanoseconds to milliseconds."""
    return ns / NS_PER_MS


def significant(value: float, digits: int = 3) -> str:
    """`value` with at least `digits` significant digits, thousands separated, never in exponent form.

    Digits before the point are never rounded away: 12345.6 stays "12,346".
    """
    if value == 0:
        return "0"
    magnitude = abs(value)
    decimals = 0
    while magnitude * 10**decimals < 10 ** (digits - 1) and decimals < 9:
        decimals += 1
    return f"{value:,.{decimals}f}"


def format_ns(ns: float) -> str:
    """A duration in the unit a reader expects: ns below 1 us, us below 1 ms, ms below 1 s, then s."""
    magnitude = abs(ns)
    if magnitude < NS_PER_US:
        return f"{ns:,.0f} ns"
    if magnitude < NS_PER_MS:
        return f"{significant(ns / NS_PER_US)} us"
    if magnitude < NS_PER_S:
        return f"{significant(ns / NS_PER_MS)} ms"
    return f"{significant(ns / NS_PER_S)} s"


def format_share(share: float) -> str:
    """A share as per cent with one decimal; shares that would round to 0.0 % or 100.0 % say so."""
    percent = 100 * share
    if 0 < percent < 0.05:
        return "< 0.1 %"
    if 99.95 <= percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %"


def format_bytes(count: float) -> str:
    """Bytes with thousands separated: launch limits are compared digit by digit, so never rounded."""
    return f"{count:,.0f} B"
