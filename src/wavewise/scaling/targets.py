"""The two questions people bring: how many requests within a latency, and can a throughput be reached."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from wavewise.findings import Ceiling, LatencyTarget, OperatingPoint, Prediction, ThroughputTarget
from wavewise.scaling.model import ScalingModel
from wavewise.scaling.sweep import RESOLUTION_MS, SPAN, STEP
from wavewise.units import format_ns, significant


def latency_target(model: ScalingModel, target_ms: float) -> LatencyTarget:
    """The largest batch size whose step time stays within `target_ms`.

    No answer passes a measured size that misses the target, whatever the model says of it. Where the model
    predicts nothing (it misses measured sizes by 10 % of their range), the measured sizes alone answer.
    """
    limit_ms = target_ms + RESOLUTION_MS
    size, at_least = _reach(model, STEP, limit_ms)
    free_size, _ = _reach(model, SPAN, limit_ms)
    good = None if size is None else model.predict(size)
    free = None if free_size is None else model.predict(free_size)
    step = model.scaling.step
    met = [p.batch_size for p in step.points if p.value_ms <= limit_ms]
    sure = None if size is None else _sure(model, size, limit_ms)
    return LatencyTarget(
        target_ms=target_ms,
        batch_size=size,
        sure_batch_size=sure,
        measured_batch_size=max(met, default=None),
        at_least=at_least,
        basis=good.basis if good else ("model" if model.fitted[STEP].predicts else "measured"),
        step_ms=good.step_ms if good else None,
        tokens_per_s=good.tokens_per_s if good else None,
        if_host_free_batch_size=free_size,
        if_host_free_tokens_per_s=free.if_host_free_tokens_per_s if free else None,
        sentence=_latency_sentence(model, good, free, sure, at_least, target_ms),
        reason=None if good else "no batch size in the range that can be judged stays within the target",
    )


def _reach(model: ScalingModel, name: str, limit_ms: float) -> tuple[int | None, bool]:
    """(largest size within the limit before a measured one misses it, whether the range ended first)."""
    sizes, values = model.over_range(name)
    known = np.isfinite(values)
    sizes, values = sizes[known], values[known]
    misses = sizes[(values > limit_ms) & np.isin(sizes, model.sweep.x)]
    met = sizes[(values <= limit_ms) & (sizes < (misses[0] if misses.size else np.inf))]
    return (int(met[-1]), bool(met[-1] == sizes[-1])) if met.size else (None, False)


def _sure(model: ScalingModel, size: int, limit_ms: float) -> int | None:
    """The largest size up to `size` whose interval ends within the limit, by bisection: intervals grow."""

    def safe(candidate: int) -> bool:
        interval = model.predict(candidate).step_ms_95
        return interval is not None and interval[1] <= limit_ms

    sizes, values = model.over_range(STEP)
    candidates = sizes[np.isfinite(values) & (sizes <= size)].tolist()
    at = bisect_left(candidates, True, key=lambda candidate: not safe(candidate))
    return candidates[at - 1] if at else None


def _latency_sentence(
    model: ScalingModel,
    good: Prediction | None,
    free: Prediction | None,
    sure: int | None,
    at_least: bool,
    target_ms: float,
) -> str:
    target = format_ns(target_ms * 1e6)
    if good is None or good.step_ms is None:
        shortest = min(point.value_ms for point in model.scaling.step.points)
        least = f": the shortest measured step takes {format_ns(shortest * 1e6)}"
        sentence = f"No batch size meets {target}{least}"
    else:
        rate = f", {significant(good.tokens_per_s)} tokens/s" if good.tokens_per_s else ""
        basis = {"measured": "measured", "between": "predicted", "beyond": "extrapolated"}[good.basis]
        sentence = (
            f"{'At least batch' if at_least else 'Batch'} {good.batch_size} meets {target} "
            f"({format_ns(good.step_ms * 1e6)} {basis}{rate})"
        )
        if sure is not None and sure != good.batch_size:
            sentence += f"; batch {sure} with 95 % confidence"
    if model.scaling.host_dominates and free is not None and free.if_host_free_step_ms is not None:
        rate = free.if_host_free_tokens_per_s
        sentence += (
            f". If the host were free: batch {free.batch_size}"
            f"{f', {significant(rate)} tokens/s' if rate else ''}"
        )
    return sentence + "."


def throughput_target(
    model: ScalingModel | None,
    points: Sequence[OperatingPoint],
    target_tokens_per_s: float,
    ceilings: Sequence[Ceiling] = (),
) -> ThroughputTarget:
    """Whether `target_tokens_per_s` can be reached by batch size, and what forbids it.

    Args:
        model: the sweep's model; None where only one batch size is known.
        points: the measured operating points.
        target_tokens_per_s: what is wanted, of the whole batch.
        ceilings: those of the largest point on basis "step" say which family, if free, would suffice.
    """
    measured = {p.batch_size: _tokens_per_s(p) for p in points}
    best_size = max(measured, key=lambda size: measured[size])
    needed = target_tokens_per_s / measured[best_size]
    largest = max(points, key=lambda point: point.batch_size)
    suffice, best_family = _families(ceilings, largest, target_tokens_per_s)
    met = [size for size, rate in sorted(measured.items()) if rate >= target_tokens_per_s]
    if met:
        sentence = (
            f"{significant(target_tokens_per_s)} tokens/s is reached: batch {met[0]} gives "
            f"{significant(measured[met[0]])}."
        )
        return ThroughputTarget(
            target_tokens_per_s=target_tokens_per_s,
            reachable=True,
            batch_size=met[0],
            basis="measured",
            binding=None,
            limit_tokens_per_s=None,
            needed_speedup=needed,
            families_that_suffice=suffice,
            sentence=sentence,
        )
    reach, size, basis, binding, limit, why = _by_model(model, target_tokens_per_s)
    start = f"{significant(target_tokens_per_s)} tokens/s, {significant(needed)}x the best measured"
    return ThroughputTarget(
        target_tokens_per_s=target_tokens_per_s,
        reachable=reach,
        batch_size=size,
        basis=basis,
        binding=binding,
        limit_tokens_per_s=limit,
        needed_speedup=needed,
        families_that_suffice=suffice,
        if_host_free_reachable=_host_free(model, target_tokens_per_s),
        sentence=f"{start} ({significant(measured[best_size])} at batch {best_size}), {why}. "
        + _family_sentence(suffice, best_family),
    )


def _tokens_per_s(point: OperatingPoint) -> float:
    return 1000.0 * (point.tokens_per_step or float(point.batch_size)) / point.step_ms.median


def _by_model(
    model: ScalingModel | None, target: float
) -> tuple[bool | None, int | None, str, str | None, float | None, str]:
    """(reachable, batch size, basis, binding, limit, reason in words)."""
    if model is None:
        return None, None, "measured", None, None, "cannot be judged by batch size from one size"
    _, high = model.sane_range
    size = _smallest(model, STEP, target)
    if size is not None:
        how = "extrapolated" if size > model.sweep.x[-1] else "predicted"
        return True, size, how, None, None, f"is within reach at batch {size} ({how})"
    scaling = model.scaling
    limit = scaling.asymptote_tokens_per_s
    if limit is not None:
        upper = (scaling.asymptote_tokens_per_s_95 or (limit, limit))[1]
        limits = [
            upper,
            *([scaling.asymptote_model_tokens_per_s] if scaling.asymptote_model_tokens_per_s else []),
        ]
        if max(limits) < target:
            slope = scaling.step.slope_ms_per_request or 0.0
            why = (
                f"cannot be reached by batch size: {significant(slope)} ms per request allow at most "
                f"{significant(limit)}"
            )
            return False, None, "model", "asymptote", limit, why
        return (
            None,
            None,
            "model",
            "sane range",
            limit,
            f"would need a batch beyond {high}, of which these sizes say nothing (asymptote "
            f"{significant(limit)})",
        )
    if scaling.host_dominates:
        beyond = _beyond_the_gpu(model, target)
        if beyond is not None:
            # A step never takes less than its GPU span, so what the span forbids, the step cannot do either.
            why = f"cannot be reached: even with the host free the GPU allows at most {significant(beyond)}"
            return False, None, "model", "asymptote", beyond, why
        return None, None, "model", "host", None, _behind_the_host(model, target)
    return None, None, "model", None, None, f"cannot be judged: {scaling.asymptote_reason}"


def _beyond_the_gpu(model: ScalingModel, target: float) -> float | None:
    """The most that the GPU allows with the host free, if the target lies above it for certain."""
    scaling = model.scaling
    limit = scaling.asymptote_if_host_free_tokens_per_s
    if limit is None:
        return None
    upper = (scaling.asymptote_if_host_free_tokens_per_s_95 or (limit, limit))[1]
    most = max(upper, scaling.asymptote_if_host_free_model_tokens_per_s or 0.0)
    return most if target > most else None


def _smallest(model: ScalingModel, name: str, target: float) -> int | None:
    """The smallest size whose tokens per second, with `name` as the step, reach the target."""
    if model.tokens_per_request is None:
        return None
    sizes, values = model.over_range(name)
    reached = sizes[1000.0 * sizes * model.tokens_per_request >= (1.0 - 1e-9) * target * values]
    return int(reached[0]) if reached.size else None


def _behind_the_host(model: ScalingModel, target: float) -> str:
    """The answer where step boundaries hide the GPU's curve."""
    hidden = "is hidden by the host: step boundaries dominate the step time"
    free = _host_free(model, target)
    if free:
        return f"{hidden}; with the host free it would be within reach"
    limits = (
        model.scaling.asymptote_if_host_free_tokens_per_s,
        model.scaling.asymptote_if_host_free_model_tokens_per_s,
    )
    known = [limit for limit in limits if limit is not None]
    if free is None or not known:
        return hidden
    return f"{hidden}, and with the host free the sizes allow at most {significant(max(known))}"


def _host_free(model: ScalingModel | None, target: float) -> bool | None:
    """Would it be reached if a step took no longer than its GPU span?"""
    if model is None:
        return None
    if _smallest(model, SPAN, target) is not None:
        return True
    return False if _beyond_the_gpu(model, target) is not None else None


def _families(
    ceilings: Sequence[Ceiling], point: OperatingPoint, target: float
) -> tuple[tuple[str, ...], tuple[str, float] | None]:
    """(families that reach the target if free at this point, the best one and its limit)."""
    rates = {
        c.family: c.tokens_per_s_if_free
        for c in ceilings
        if c.basis == "step"
        and (c.batch_size, c.context_length) == (point.batch_size, point.context_length)
        and c.tokens_per_s_if_free is not None
    }
    if not rates:
        return (), None
    best = max(rates, key=lambda family: rates[family])
    return tuple(f for f, rate in rates.items() if rate >= target), (best, rates[best])


def _family_sentence(suffice: tuple[str, ...], best: tuple[str, float] | None) -> str:
    if best is None:
        return "No ceilings of families are known."
    if suffice:
        return (
            f"At the largest measured size it would take {' or '.join(f'`{f}`' for f in suffice)} to be free."
        )
    return (
        f"No single family suffices at the largest measured size: `{best[0]}` if free gives at most "
        f"{significant(best[1])} tokens/s."
    )
