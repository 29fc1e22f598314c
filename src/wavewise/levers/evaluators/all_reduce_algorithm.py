"""All-reduces of a few hundred kilobytes are latency: a one-shot algorithm has fewer hops than a ring."""

import re

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.interconnect import interconnect
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.names import short_name
from wavewise.levers.view import View

_MANY_HOPS = re.compile(r"ncclDevKernel_AllReduce|ncclKernel_AllReduce|RING|TREE", re.IGNORECASE)


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = realised * sum over NCCL kernels of launches * (median - floor), over NVLink."""
    time = view.sum_us(spec.families)
    if not time:
        return nothing(f"no all-reduce in the replay at {view.where}")
    link = interconnect(view.gpu.name, view.known)
    if link != "nvlink":
        return unknown(
            "message sizes, ranks and the link's latency"
            + ("" if link else " (`--interconnect` is not known either)")
            + ": one-shot algorithms send more bytes and gain only where the link is fast",
            basis=f"at most {time:.1f} us, all of the all-reduces",
        )
    floor, share = spec.number("floor_us"), spec.number("realised")
    nccl = [k for k in view.kernels_of(spec.families) if _MANY_HOPS.search(k.name)]
    slow = [k for k in nccl if floor < k.median_us <= spec.number("latency_us")]
    if not slow and any(k.median_us > spec.number("latency_us") for k in nccl):
        return unknown(
            f"message sizes: an all-reduce of over {spec.number('latency_us'):g} us is not bound by its hops",
            basis=f"at most {time:.1f} us, all of the all-reduces",
        )
    if not slow:
        return nothing(f"no NCCL all-reduce takes over {floor:g} us a launch")
    bound = sum(k.launches_per_step * (k.median_us - floor) for k in slow)
    return Judgement(
        saving_us=share * bound,
        upper_bound_us=bound,
        basis=f"{share:g} (assumed) x ["
        + " + ".join(f"{k.launches_per_step:g} x ({k.median_us:.1f} - {floor:g}) us" for k in slow)
        + "]",
        evidence=f"{short_name(slow[0].name)}: {slow[0].median_us:.1f} us a launch. Time in an all-reduce includes "
        f"waiting for "
        "the slowest rank, which no algorithm removes",
        confidence="low",
        families=spec.families,
    )
