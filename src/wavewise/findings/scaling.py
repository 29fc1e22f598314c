"""How step time grows with batch size: floor, slope, models, throughput."""

from wavewise.findings.base import Result


class Point(Result):
    """One operating point of a fit: the median at one batch size."""

    batch_size: int
    bucket: int | None = None
    value_ms: float
    samples: int


class Reference(Result):
    """An unnamed smooth curve, fitted only to judge the mechanistic model against."""

    leave_one_out_error_ms: float | None
    max_abs_residual_ms: float | None
    reason: str | None = None


class Fit(Result):
    """One quantity against batch size.

    floor and slope are those of the least-squares line through the medians whatever the model, so that
    slopes of families add up. `max_abs_residual_ms` and `residuals_ms` are the chosen model's.
    """

    floor_ms: float | None
    slope_ms_per_request: float | None
    floor_ms_95: tuple[float, float] | None
    slope_ms_per_request_95: tuple[float, float] | None
    model: str | None
    parameters: dict[str, float]
    max_abs_residual_ms: float | None
    residuals_ms: tuple[float, ...] = ()
    line_max_abs_residual_ms: float | None = None
    reference: dict[str, Reference]
    points: tuple[Point, ...]
    family: str | None = None
    reason: str | None = None


class Throughput(Result):
    """Tokens per second at one batch size (requests x accepted tokens per step over step time)."""

    batch_size: int
    tokens_per_s: float


class Scaling(Result):
    """Floor and slope over two or more clean batch sizes of one context length."""

    step: Fit
    span: Fit | None
    families: tuple[Fit, ...]
    unattributed_slope_ms_per_request: float | None
    overlap_slope_ms_per_request: float | None
    throughput: tuple[Throughput, ...]
    asymptote_tokens_per_s: float | None
    asymptote_reason: str | None = None
    asymptote_if_host_free_tokens_per_s: float | None
    asymptote_if_host_free_reason: str | None = None
