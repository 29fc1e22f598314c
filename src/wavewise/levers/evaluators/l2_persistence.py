"""L2 persistence: only what fits the set-aside can be served from it, and weights cycle once per step."""

from wavewise.hardware import catalogue as gpu_catalogue
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.law import expert_law
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = MoE time * (set-aside bytes / weight bytes per step) * latency cut."""
    time = view.sum_us(spec.families)
    if not time:
        return nothing(f"no MoE GEMM at {view.where}")
    known, law = view.known, expert_law(view)
    l2_bytes = known.l2_bytes or _catalogued(view.gpu.spec)
    lacking = not known.expert_bytes or not known.moe_layers or not l2_bytes or not view.tokens
    if lacking or law is None or law.experts is None:
        return unknown(
            "the GPU's L2 size, the bytes of one expert, the MoE layers and the fitted "
            "expert-activation law; how "
            "often each expert is chosen (router counts) would tell whether a few are hot"
        )
    assert known.expert_bytes is not None
    assert known.moe_layers is not None
    assert l2_bytes is not None
    assert view.tokens is not None
    aside = spec.number("set_aside") * l2_bytes
    active = law.share(view.tokens) * law.experts
    weights = active * known.expert_bytes * known.moe_layers
    share = min(1.0, aside / weights)
    return Judgement(
        saving_us=time * share * spec.number("latency_cut"),
        upper_bound_us=time * share,
        basis=f"{time:.1f} us x {share:.4f} of the weights x {spec.number('latency_cut'):g} (assumed "
        f"latency cut); "
        f"{aside / 1e6:.1f} MB of L2 set aside against {active:.0f} experts x {known.moe_layers} layers x "
        f"{known.expert_bytes / 1e6:.2f} MB per step",
        evidence="each step reads every active expert once, so L2 serves at most what stays in it. "
        "Uniform routing "
        "assumed; hot experts would raise the share",
        confidence="low",
        families=spec.families,
    )


def _catalogued(spec_id: str | None) -> int | None:
    """L2 bytes of a catalogued GPU."""
    return next((gpu.l2_bytes for gpu in gpu_catalogue() if gpu.id == spec_id), None)
