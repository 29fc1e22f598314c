"""How step time grows with batch size and with context length: floor, slope, models, throughput, targets."""

from wavewise.findings.base import Result


class Point(Result, frozen=True, kw_only=True):
    """One operating point of a fit: the median at one batch size."""

    batch_size: int
    bucket: int | None = None
    value_ms: float
    samples: int


class Reference(Result, frozen=True, kw_only=True):
    """An unnamed smooth curve, fitted only to judge the mechanistic model against."""

    leave_one_out_error_ms: float | None
    max_abs_residual_ms: float | None
    reason: str | None = None


class ExpertShape(Result, frozen=True, kw_only=True):
    """The two constants of the expert-activation law.

    Attributes:
        experts: routed experts per MoE layer (N).
        active: experts that one token activates (k).
        source: where they come from: "argument", or the model shape by name and how it was found.
    """

    experts: int
    active: int
    source: str = "argument"


class Candidate(Result, frozen=True, kw_only=True):
    """How one model did in the comparison, or why it did not take part.

    Attributes:
        parameters: how many were fitted, non-linear ones included; None where it did not take part.
        leave_one_out_error_ms: root mean square error of predicting each batch size from the others.
        standard_error_ms: what chance alone may make of that figure: the root of (mean square + its standard
            error) less the root of the mean square.
    """

    model: str
    parameters: int | None
    leave_one_out_error_ms: float | None
    standard_error_ms: float | None
    max_abs_residual_ms: float | None
    reason: str | None = None


class LackOfFit(Result, frozen=True, kw_only=True):
    """Do the medians miss the model by more than the per-step scatter explains?

    Attributes:
        statistic: residual sum of squares over what the scatter alone would leave; about F distributed.
        p_value: chance of at least this statistic if the model were true.
    """

    model: str
    statistic: float | None
    p_value: float | None
    reason: str | None = None


class Fit(Result, frozen=True, kw_only=True):
    """One quantity against batch size.

    floor and slope are those of the least-squares line through the medians whatever the model, so that
    slopes of families add up. `max_abs_residual_ms` and `residuals_ms` are the chosen model's.

    Attributes:
        parameters: of the chosen model: its coefficients and the constants it was given.
        residuals_ms: measured less predicted, in the order of `points`.
        line_residuals_ms: the same for the straight line.
        candidates: every mechanistic model with its error, the chosen one included.
        slope_distinguishable: whether the slope's interval excludes 0.
        verdict: one sentence on the choice, with the smooth reference beside it where that predicts better.
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
    line_residuals_ms: tuple[float, ...] = ()
    leave_one_out_error_ms: float | None = None
    reference: dict[str, Reference]
    points: tuple[Point, ...]
    family: str | None = None
    candidates: tuple[Candidate, ...] = ()
    lack_of_fit: LackOfFit | None = None
    line_lack_of_fit: LackOfFit | None = None
    slope_distinguishable: bool | None = None
    verdict: str | None = None
    interval_reason: str | None = None
    reason: str | None = None


class Throughput(Result, frozen=True, kw_only=True):
    """Tokens per second at one batch size (requests x accepted tokens per step over step time)."""

    batch_size: int
    tokens_per_s: float
    tokens_per_s_95: tuple[float, float] | None = None


class Prediction(Result, frozen=True, kw_only=True):
    """Step time and throughput at a batch size, from the step's model.

    Attributes:
        basis: "measured", "between" (measured sizes), "beyond" (extrapolated) or "refused".
        step_ms_95: holds the model's lack of fit as well as the per-step scatter.
        if_host_free_*: the same from the GPU span, as if the host cost nothing.
    """

    batch_size: int
    basis: str
    step_ms: float | None
    step_ms_95: tuple[float, float] | None = None
    tokens_per_s: float | None
    tokens_per_s_95: tuple[float, float] | None = None
    if_host_free_step_ms: float | None = None
    if_host_free_step_ms_95: tuple[float, float] | None = None
    if_host_free_tokens_per_s: float | None = None
    reason: str | None = None


class Unattributed(Result, frozen=True, kw_only=True):
    """Where the slope that no family explains lies: outside the replay plus gaps.

    Attributes:
        outside_replay_ms_per_request: slope of (step time - GPU span): host time at step boundaries, and work
            outside the replay. None without a replay.
        gaps_ms_per_request: slope of (GPU span - busy): waiting inside the replay.
        unnamed_ms_per_request: slope of the family `other`, whose kernels no rule names. It belongs to a
            family, so it is not part of the sum above; it is printed beside it.
    """

    outside_replay_ms_per_request: float | None
    gaps_ms_per_request: float | None
    unnamed_ms_per_request: float


class Scaling(Result, frozen=True, kw_only=True):
    """Floor and slope over two or more clean batch sizes of one context length.

    `slope(step) = sum of the families' slopes - overlap + unattributed`, exactly.

    Attributes:
        asymptote_tokens_per_s: tokens per request and step over the slope of the line.
        asymptote_model_tokens_per_s: the same from the chosen model's slope in the limit of large batches,
            where that model is not the line.
        host_share: median share of step time outside the GPU span.
        host_dominates: step boundaries hide how the GPU's time grows; the asymptote is then null.
        curve: the laws of step and span at sizes spread over the sane range, for drawing; measured sizes,
            where a prediction is the measurement itself, are left out.
        largest_sane_batch_size: predictions beyond it are refused.
    """

    step: Fit
    span: Fit | None
    families: tuple[Fit, ...]
    unattributed_slope_ms_per_request: float | None
    overlap_slope_ms_per_request: float | None
    unattributed: Unattributed | None = None
    throughput: tuple[Throughput, ...]
    tokens_per_request: float | None = None
    tokens_per_request_reason: str | None = None
    asymptote_tokens_per_s: float | None
    asymptote_tokens_per_s_95: tuple[float, float] | None = None
    asymptote_reason: str | None = None
    asymptote_model_tokens_per_s: float | None = None
    asymptote_if_host_free_tokens_per_s: float | None
    asymptote_if_host_free_tokens_per_s_95: tuple[float, float] | None = None
    asymptote_if_host_free_reason: str | None = None
    asymptote_if_host_free_model_tokens_per_s: float | None = None
    host_share: float | None = None
    host_dominates: bool = False
    predictions: tuple[Prediction, ...] = ()
    curve: tuple[Prediction, ...] = ()
    smallest_sane_batch_size: int | None = None
    largest_sane_batch_size: int | None = None
    context_length: int | None = None
    context_label: str | None = None
    expert: ExpertShape | None = None


class ContextPoint(Result, frozen=True, kw_only=True):
    """The median at one context length."""

    context_length: int
    value_ms: float
    samples: int


class ContextFit(Result, frozen=True, kw_only=True):
    """One quantity against context length: the least-squares line through the medians.

    Attributes:
        at_zero_ms: the line at context 0, an extrapolation.
    """

    at_zero_ms: float
    slope_ms_per_thousand_tokens: float
    slope_ms_per_thousand_tokens_95: tuple[float, float] | None
    max_abs_residual_ms: float
    points: tuple[ContextPoint, ...]
    family: str | None = None
    slope_distinguishable: bool | None = None
    interval_reason: str | None = None


class ContextScaling(Result, frozen=True, kw_only=True):
    """How one batch size's step grows with the context length."""

    batch_size: int
    step: ContextFit
    span: ContextFit | None
    families: tuple[ContextFit, ...]


class PremiseChange(Result, frozen=True, kw_only=True):
    """A premise of an earlier analysis that these traces do not bear out."""

    premise: str
    before: str
    now: str
    message: str


class Premise(Result, frozen=True, kw_only=True):
    """Which family looks dearest at the smallest batch size, and which one makes the step grow.

    Attributes:
        share_family: largest summed time at the smallest batch size, `other` left out.
        share_of_step: its summed time over step time there; share_of_busy over busy time.
        slope_family: largest slope.
        slope_share: its slope over that of `basis`; None where neither step nor span measurably grows.
        basis: "step", or "span" where the step does not measurably grow but the GPU span does.
        differ: they are not the same family, and the slopes are told apart by their intervals.
        headline: the sentence for the report's first lines.
        changes: what an earlier findings.json said otherwise.
    """

    share_family: str
    share_family_ms: float
    share_batch_size: int
    share_of_step: float
    share_of_busy: float | None
    share_family_slope_ms_per_request: float
    slope_family: str
    slope_ms_per_request: float
    slope_share: float | None
    step_slope_ms_per_request: float
    basis: str = "step"
    span_slope_ms_per_request: float | None = None
    unattributed_slope_ms_per_request: float | None
    largest_batch_family: str
    largest_batch_size: int
    differ: bool
    headline: str
    sentences: tuple[str, ...] = ()
    changes: tuple[PremiseChange, ...] = ()
    baseline_reason: str | None = None


class LatencyTarget(Result, frozen=True, kw_only=True):
    """The largest batch size whose step stays within a latency.

    Attributes:
        batch_size: by the model, None where no size in the sane range meets the target.
        sure_batch_size: the largest at which the upper end of the 95 % interval still meets it.
        measured_batch_size: the largest measured size that meets it.
        at_least: every size in the sane range meets it, so the true answer may be larger.
    """

    target_ms: float
    batch_size: int | None
    sure_batch_size: int | None
    measured_batch_size: int | None
    at_least: bool
    basis: str
    step_ms: float | None
    tokens_per_s: float | None
    if_host_free_batch_size: int | None
    if_host_free_tokens_per_s: float | None
    sentence: str
    reason: str | None = None


class ThroughputTarget(Result, frozen=True, kw_only=True):
    """Whether a throughput can be reached, and what forbids it.

    Attributes:
        reachable: None where it cannot be told.
        batch_size: the smallest size that reaches it, measured or predicted.
        binding: "asymptote" (the slope), "host" (step boundaries), "sane range" or None.
        families_that_suffice: families which, if free at the largest measured size, would reach it.
        needed_speedup: target over the largest measured throughput.
    """

    target_tokens_per_s: float
    reachable: bool | None
    batch_size: int | None
    basis: str
    binding: str | None
    limit_tokens_per_s: float | None
    needed_speedup: float | None
    families_that_suffice: tuple[str, ...] = ()
    if_host_free_reachable: bool | None = None
    sentence: str
