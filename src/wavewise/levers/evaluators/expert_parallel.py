"""Expert against tensor parallelism: the weight bytes per GPU are the same, the communication is not."""

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.view import View


def evaluate(view: View, _spec: LeverSpec) -> Judgement:
    """Not predictable from one rank; what it can at most touch is named."""
    moe, collectives = view.sum_us(("moe_gemm",)), view.sum_us(("all_reduce",))
    if not moe:
        return nothing(f"no MoE GEMM at {view.where}")
    return unknown(
        "the ranks, the time of an all-to-all of this batch over the interconnect, and the experts' "
        "load balance",
        basis=f"T active experts cost a GPU of R ranks the same weight bytes as T slices of 1/R (tensor "
        f"parallel) or "
        f"T/R whole experts (expert parallel); it can win only at the all-reduces ({collectives:.1f} "
        f"us) and at tile "
        f"efficiency within the MoE GEMMs ({moe:.1f} us), and pays two all-to-alls per layer",
    )
