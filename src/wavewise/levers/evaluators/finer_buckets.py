"""Finer capture buckets: a replay computes the whole bucket, whoever is missing from it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.recorded import bucket_spans_us, bucket_steps
from wavewise.levers.view import View


@dataclass(frozen=True)
class Choice:
    """A set of buckets and the mean replay time with it, us per step."""

    buckets: tuple[int, ...]
    mean_us: float


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = mean over decode steps of t(replayed bucket) - t(best bucket of the chosen set)."""
    steps = bucket_steps(view)
    if not steps:
        return unknown("decode steps whose batch size and replayed bucket are both known")
    padded = {pair: n for pair, n in steps.items() if pair[1] > pair[0]}
    total = sum(steps.values())
    if not padded:
        return nothing(
            f"no padding: all {total} recorded decode steps replay a graph of their own batch size"
        )
    spans = bucket_spans_us(view)
    if len(spans) < 2:
        return unknown("GPU spans of at least two captured batch sizes, to price a bucket")
    sizes = np.array(sorted({batch for batch, _ in steps}), dtype=np.int64)
    counts = np.array(
        [sum(n for (b, _), n in steps.items() if b == size) for size in sizes], dtype=np.float64
    )
    price = _price(sizes, spans)
    now = sum(n * float(_price(np.array([bucket]), spans)[0]) for (_, bucket), n in steps.items()) / total
    every = best_buckets(sizes, counts, price, len(sizes))
    if now - every.mean_us <= 0.0:
        return nothing("the padded steps fall below the smallest bucket whose time was measured")
    wanted = spec.number("enough") * (now - every.mean_us)
    chosen = next(
        choice
        for k in range(1, len(sizes) + 1)
        if now - (choice := best_buckets(sizes, counts, price, k)).mean_us >= wanted
    )
    waste = sum(n * (bucket - batch) for (batch, bucket), n in padded.items())
    used = sorted({bucket for _, bucket in steps})
    return Judgement(
        saving_us=now - chosen.mean_us,
        upper_bound_us=now - every.mean_us,
        basis=f"mean replay {now:.1f} us with the {len(used)} buckets that were replayed {used}, "
        f"{chosen.mean_us:.1f} us with {len(chosen.buckets)} buckets {list(chosen.buckets)} "
        f"({every.mean_us:.1f} us with one for each batch size), over {total} recorded decode steps",
        evidence=f"{sum(padded.values())} of {total} steps replay padding, {waste} padding rows; replay "
        f"times are "
        f"medians of the recorded spans at buckets {sorted(spans)}, straight lines between them. "
        "The recorded steps stand for the batch sizes you serve only if they were recorded in service",
        confidence="medium",
        spans_batches=True,
    )


def _price(sizes: NDArray[np.int64], spans: dict[int, float]) -> NDArray[np.float64]:
    """Replay time of a bucket of each size: linear between measured buckets, never below the smallest."""
    known = np.array(sorted(spans), dtype=np.float64)
    times = np.maximum.accumulate(np.array([spans[int(b)] for b in known]))
    return np.interp(sizes, known, times)


def best_buckets(
    sizes: NDArray[np.int64], counts: NDArray[np.float64], price: NDArray[np.float64], k: int
) -> Choice:
    """The set of at most `k` buckets with the least mean replay time, by dynamic programming.

    cost[j][i] is the least total time of the i + 1 smallest sizes with j buckets, the last of them size i:
    cost[j][i] = min over p < i of cost[j-1][p] + price[i] * (steps of sizes p+1 .. i). O(k n^2), vectorised
    over p. The largest size is always a bucket.

    Args:
        sizes: distinct batch sizes, ascending.
        counts: steps at each.
        price: replay time at a bucket of each size, not falling.
        k: how many buckets, at least 1.
    """
    n = len(sizes)
    steps = np.concatenate(([0.0], np.cumsum(counts)))
    cost = price * steps[1:]
    parents: list[NDArray[np.int64]] = []
    for _ in range(1, min(k, n)):
        parent = np.full(n, -1, dtype=np.int64)
        better = cost.copy()
        for i in range(1, n):
            options = cost[:i] + price[i] * (steps[i + 1] - steps[1 : i + 1])
            p = int(np.argmin(options))
            if options[p] < better[i]:
                better[i], parent[i] = options[p], p
        parents.append(parent)
        cost = better
    chosen = [n - 1]
    for parent in reversed(parents):
        if (p := int(parent[chosen[-1]])) >= 0:
            chosen.append(p)
    return Choice(tuple(int(sizes[i]) for i in reversed(chosen)), float(cost[-1] / steps[-1]))
