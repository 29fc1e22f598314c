"""The laws a quantity may follow with batch size, as families of design matrices.

A law with constants that are not known (the period of a staircase, the exponent of a power) holds one design
per value tried; the fit takes the best. Every such constant counts as a fitted parameter.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from wavewise.findings import ExpertShape
from wavewise.scaling.medians import Floats

CONSTANT, LINEAR, EXPERT, STAIRCASE = "constant", "linear", "expert_activation", "staircase"
POWER, QUADRATIC = "power_law", "quadratic"

WORDS = {
    CONSTANT: "constant",
    LINEAR: "the straight line",
    EXPERT: "expert activation",
    STAIRCASE: "the staircase",
}
"""How a sentence calls a mechanistic model."""

EXPERT_FAMILIES = frozenset({"step", "span", "busy", "moe_gemm", "moe_route"})
"""Where expert activation can act: the MoE's own kernels, and the totals that hold them."""

DesignOf = Callable[[Floats, Floats, float], Floats]


def _no_constants() -> Mapping[str, float]:
    return MappingProxyType({})


@dataclass(frozen=True)
class Law:
    """A law that is linear in its coefficients once its unknown constant is chosen.

    Attributes:
        design_of: (batch sizes [n], buckets [n], constant) -> [n, p] columns.
        coefficients: names of the p columns' coefficients.
        constant: name of the unknown constant, None where there is none.
        tried: [C] values of the unknown constant; one 0 where there is none.
        nonnegative: whether coefficients below 0 are barred: work cannot take negative time.
        given: constants that were given, for the report.
        limit_slope: (coefficients, constant) -> slope for large batches, ms per request; None without one.
    """

    name: str
    design_of: DesignOf
    coefficients: tuple[str, ...]
    constant: str | None = None
    tried: tuple[float, ...] = (0.0,)
    nonnegative: bool = False
    given: Mapping[str, float] = field(default_factory=_no_constants)
    limit_slope: Callable[[Mapping[str, float]], float | None] = lambda _: None

    @property
    def parameters(self) -> int:
        """Fitted parameters, the unknown constant included."""
        return len(self.coefficients) + (self.constant is not None)

    def designs(self, x: Floats, bucket: Floats) -> Floats:
        """[C, n, p], one design per constant tried."""
        return np.stack([self.design_of(x, bucket, value) for value in self.tried])


def distinct_experts(tokens: Floats | float, ratio: float) -> Floats | float:
    """Share of a layer's experts that `tokens` tokens activate: 1 - (1 - k/N)^tokens.

    The expected share when each token picks k of N at random, independently: an expert is missed by one token
    with probability 1 - k/N. Skewed routing activates fewer.
    """
    return -np.expm1(np.asarray(tokens) * math.log1p(-ratio)) if ratio < 1.0 else np.ones_like(tokens)


def constant() -> Law:
    """A constant: y = c."""
    return Law(CONSTANT, lambda x, _b, _c: np.ones((x.size, 1)), ("floor_ms",), limit_slope=lambda _: 0.0)


def linear() -> Law:
    """The straight line: y = floor + slope * B."""
    return Law(
        LINEAR,
        lambda x, _b, _c: np.stack([np.ones_like(x), x], axis=1),
        ("floor_ms", "slope_ms_per_request"),
        limit_slope=lambda p: p["slope_ms_per_request"],
    )


def expert_activation(shape: ExpertShape | None) -> Law:
    """Expert activation: y = c + b * T + a * B, T = N (1 - (1 - k/N)^bucket) distinct experts per layer.

    T is taken at the replayed bucket, since padding tokens are routed too. Without the model's shape, k/N is
    fitted as well; N then cannot be told from b, so b is the time of *all* experts.
    """

    def design(x: Floats, bucket: Floats, ratio: float) -> Floats:
        total = shape.experts if shape is not None else 1
        return np.stack([np.ones_like(x), total * np.asarray(distinct_experts(bucket, ratio)), x], axis=1)

    if shape is None:
        # From 1 expert in 512 to half of them: wider than any model that is served.
        return Law(
            EXPERT,
            design,
            ("fixed_ms", "all_experts_ms", "per_request_ms"),
            constant="active_share_of_experts",
            tried=tuple(np.geomspace(1 / 512, 0.5, 60).tolist()),
            nonnegative=True,
            limit_slope=lambda p: p["per_request_ms"],
        )
    return Law(
        EXPERT,
        design,
        ("fixed_ms", "per_distinct_expert_ms", "per_request_ms"),
        tried=(shape.active / shape.experts,),
        nonnegative=True,
        given=MappingProxyType({"experts": float(shape.experts), "active_experts": float(shape.active)}),
        limit_slope=lambda p: p["per_request_ms"],
    )


def staircase(x: Floats, waves: Mapping[int, float] | None) -> Law | None:
    """Wave quantisation: y = c + d * W, W the waves of the launch at each batch size.

    Args:
        x: the sweep's batch sizes.
        waves: batch size -> waves, known from the launches. Where they are None the period is fitted:
            W = ceil(B / period), with periods that put two sizes or more on one tread and two or more apart.

    Returns:
        None where no wave count changes within the sweep, or none could be told from the straight line.
    """
    if waves is not None:
        known = {float(size): float(count) for size, count in waves.items()}
        if any(size not in known for size in x) or len({known[size] for size in x}) < 2:
            return None

        def measured(sizes: Floats, _bucket: Floats, _period: float) -> Floats:
            return np.stack([np.ones_like(sizes), np.asarray([known.get(s, np.nan) for s in sizes])], axis=1)

        return Law(STAIRCASE, measured, ("floor_ms", "per_wave_ms"), nonnegative=True)
    periods = _periods(x)
    if not periods:
        return None
    return Law(
        STAIRCASE,
        lambda sizes, _b, period: np.stack([np.ones_like(sizes), np.ceil(sizes / period)], axis=1),
        ("floor_ms", "per_wave_ms"),
        constant="requests_per_wave",
        tried=periods,
        nonnegative=True,
        limit_slope=lambda p: p["per_wave_ms"] / p["requests_per_wave"],
    )


def _periods(x: Floats) -> tuple[float, ...]:
    """One period for each way in which a staircase can group the sizes, treads and risers both present."""
    seen: dict[tuple[float, ...], list[float]] = {}
    for period in np.geomspace(max(1.0, float(np.diff(x).min()) / 2), float(x[-1]) * 0.999, 400):
        treads = np.ceil(x / period)
        if 1 < len(set(treads.tolist())) < x.size:
            seen.setdefault(tuple(treads.tolist()), []).append(float(period))
    return tuple(float(np.median(group)) for group in seen.values())


def power_law() -> Law:
    """A power law, y = c + a * B^p: no mechanism, a reference only."""
    return Law(
        POWER,
        lambda x, _b, exponent: np.stack([np.ones_like(x), x**exponent], axis=1),
        ("floor_ms", "factor"),
        constant="exponent",
        tried=tuple(np.arange(0.05, 3.0001, 0.05).tolist()),
    )


def quadratic() -> Law:
    """A quadratic, y = c + s * B + q * B^2: no mechanism, a reference only."""
    return Law(
        QUADRATIC,
        lambda x, _b, _c: np.stack([np.ones_like(x), x, x * x], axis=1),
        ("floor_ms", "linear", "square"),
    )
