"""Opportunistic expert activation: fewer distinct experts per batch, so fewer weights to load."""

from math import ceil

from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing, unknown
from wavewise.levers.law import NEEDED, ExpertLaw, expert_law
from wavewise.levers.view import View


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = E (A(k) - A(k0)): a token insists on k0 of its k experts and joins others for the rest."""
    if not view.sum_us(spec.families):
        return nothing(f"no MoE GEMM at {view.where}")
    law = expert_law(view)
    if law is None or view.tokens is None:
        return unknown(NEEDED)
    if view.tokens <= 1:
        return nothing("a single token shares its experts with nobody")
    kept = _kept(law, spec.number("kept_share"))
    now, then = law.share(view.tokens), law.share(view.tokens, kept)
    saving = law.all_us * (now - then)
    return Judgement(
        saving_us=saving,
        upper_bound_us=law.all_us * (now - law.ratio),
        basis=f"E x (A(k) - A(k0)) = {law.all_us:.1f} us x ({now:.4f} - {then:.4f}), E the fitted time "
        f"of all experts, "
        f"A(k) = 1 - (1 - k/N)^{view.tokens}, {_ratios(law, kept)}",
        evidence=f"expert activation is the MoE GEMM's fitted law; {law.words(view.tokens)} experts of "
        f"a layer are "
        f"active at {view.where}; MoE GEMM is {view.sum_us(spec.families):.1f} us per step. Uniform "
        f"routing assumed",
        confidence="medium",
        families=spec.families,
    )


def _kept(law: ExpertLaw, share: float) -> float:
    """Share of k that a token insists on; whole experts where N, and so k, is known."""
    if law.experts is None:
        return share
    per_token = law.ratio * law.experts
    return ceil(share * per_token - 0.01) / per_token


def _ratios(law: ExpertLaw, kept: float) -> str:
    if law.experts is None:
        return f"k/N = {law.ratio:.5f} (fitted), k0/k = {kept:.3f} (assumed)"
    k = law.ratio * law.experts
    return f"k = {k:g}, N = {law.experts}, k0 = {kept * k:g} (assumed)"
