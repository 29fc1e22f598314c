"""Fusing chains of small kernels that each read and write what the next one reads again."""

from dataclasses import dataclass

import numpy as np

from wavewise.findings import Timeline
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


@dataclass(frozen=True)
class Chains:
    """Runs of two or more neighbouring fusible kernels on one stream, of one step. Times in us."""

    count: int
    kernels: int
    sum_us: float
    longest_members_us: float


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = realised * (sum of the chains - their longest members)."""
    small = view.sum_us(spec.families)
    if not small:
        return nothing(f"no element-wise kernels at {view.where}")
    if view.timeline is None:
        return unknown(
            "the order of the kernels in a clean step (a timeline)",
            basis=f"at most {small:.1f} us in {', '.join(f for f in spec.families if f in view.families)}",
        )
    chains = find_chains(view.timeline, spec.families)
    if not chains.count:
        return nothing("no two element-wise kernels follow one another on a stream")
    bound = chains.sum_us - chains.longest_members_us
    share = spec.number("realised")
    return Judgement(
        saving_us=share * bound,
        upper_bound_us=bound,
        basis=f"{share:g} (assumed) x ({chains.sum_us:.1f} us in {chains.kernels} kernels of "
        f"{chains.count} chains - "
        f"{chains.longest_members_us:.1f} us of their longest members)",
        evidence=f"chains of neighbours on one stream in step {view.timeline.step_index} of trace "
        f"{view.trace}",
        confidence="low",
        families=tuple(f for f in spec.families if f in view.families),
    )


def find_chains(timeline: Timeline, families: tuple[str, ...]) -> Chains:
    """Chains in the replay (the whole step where nothing was replayed)."""
    duration = np.asarray(timeline.duration_ns, dtype=np.float64) / 1e3
    stream = np.asarray(timeline.stream)
    kernel = np.asarray(timeline.kernel, dtype=np.int64)
    in_replay = np.asarray(timeline.in_replay, dtype=bool)
    keep = in_replay if in_replay.any() else np.ones_like(in_replay)
    order = np.lexsort((np.asarray(timeline.start_ns), stream))
    order = order[keep[order]]
    fusible = np.isin(np.asarray(timeline.families), families)[kernel[order]]
    # A run starts where fusibility or the stream changes.
    change = np.ones(len(order), dtype=bool)
    change[1:] = (fusible[1:] != fusible[:-1]) | (stream[order][1:] != stream[order][:-1])
    starts = np.flatnonzero(change)
    if not len(starts):
        return Chains(0, 0, 0.0, 0.0)
    lengths = np.diff(np.append(starts, len(order)))
    sums = np.add.reduceat(duration[order], starts)
    longest = np.maximum.reduceat(duration[order], starts)
    chain = fusible[starts] & (lengths >= 2)
    return Chains(
        int(chain.sum()), int(lengths[chain].sum()), float(sums[chain].sum()), float(longest[chain].sum())
    )
