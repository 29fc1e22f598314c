"""Expert activation: how many distinct experts a batch loads, and what they cost by the fitted law."""

from dataclasses import dataclass

from wavewise.findings import Fit
from wavewise.levers.view import US_PER_MS, View

NEEDED = (
    "a fitted expert-activation law of the MoE GEMMs: clean steps at enough batch sizes, better with "
    "the model's "
    "routed experts and experts per token"
)


@dataclass(frozen=True)
class ExpertLaw:
    """MoE time = c + E * A + a * B, where A = 1 - (1 - k/N)^tokens is the active share of a layer's experts.

    E = b * N is the time of loading every expert once, b that of one. Without the model's shape the fit knows
    only E and k/N, which is enough for every saving here.

    Attributes:
        all_us: E.
        ratio: k/N, the share of the experts that one token is routed to.
        experts: N, None when the model's shape was not given.
    """

    all_us: float
    ratio: float
    experts: int | None

    def share(self, tokens: float, kept: float = 1.0) -> float:
        """Active share of the experts when each token insists on `kept` of its k (uniform routing)."""
        return 1.0 - (1.0 - kept * self.ratio) ** tokens

    def words(self, tokens: float) -> str:
        """How many experts are active ("218 of 256", or "85.0 %" without N)."""
        share = self.share(tokens)
        return (
            f"{100 * share:.1f} %"
            if self.experts is None
            else f"{share * self.experts:.0f} of {self.experts}"
        )


def expert_law(view: View) -> ExpertLaw | None:
    """The law as the scaling section fitted it; None where another model describes the MoE GEMMs better."""
    fit = view.fit("moe_gemm")
    if fit is None or fit.model != "expert_activation":
        return None
    experts = fit.parameters.get("experts")
    if experts is not None:
        each, active = fit.parameters.get("per_distinct_expert_ms"), fit.parameters.get("active_experts")
        if each is None or active is None or not 0 < active <= experts:
            return None
        all_ms, ratio = each * experts, active / experts
    else:
        all_ms, ratio = _shapeless(fit)
    if all_ms <= 0.0 or not 0.0 < ratio <= 1.0:
        return None
    return ExpertLaw(all_ms * US_PER_MS, ratio, None if experts is None else int(experts))


def _shapeless(fit: Fit) -> tuple[float, float]:
    return fit.parameters.get("all_experts_ms", 0.0), fit.parameters.get("active_share_of_experts", 0.0)
