"""Helper kernels (schedule metadata, combine, routing, quantisation) dearer than the work they serve."""

from collections.abc import Sequence

import msgspec

from wavewise.errors import InputError
from wavewise.levers.catalogue import LeverSpec
from wavewise.levers.judgement import Judgement, nothing
from wavewise.levers.names import short_name
from wavewise.levers.view import View


class Pair(msgspec.Struct, frozen=True):
    """A helper, what it helps, the cost ratio from which it is a finding, and the remedy."""

    helper: str
    helped: tuple[str, ...]
    ratio: float
    remedy: str


def evaluate(view: View, spec: LeverSpec) -> Judgement:
    """Saving = time * (1 - 1/launches) for a reusable helper, realised * time for one to fuse."""
    bound, saving, parts, notes = 0.0, 0.0, list[str](), list[str]()
    found: list[str] = []
    for pair in _pairs(spec):
        helper, helped = view.sum_us((pair.helper,)), view.sum_us(pair.helped)
        if not helper or not helped or helper < pair.ratio * helped:
            continue
        launches = view.families[pair.helper].launches_per_step
        if pair.remedy == "reuse":
            kept, formula = _reused(helper, launches, view)
        else:
            kept = spec.number("realised") * helper
            formula = f"{spec.number('realised'):g} (assumed) x {helper:.1f} us of `{pair.helper}`"
        if kept <= 0.0:
            continue
        bound, saving = bound + (kept if pair.remedy == "reuse" else helper), saving + kept
        parts.append(f"{formula} (`{pair.helper}` {helper:.1f} us against {helped:.1f} us of what it serves)")
        found.append(pair.helper)
        notes.append(_compare(view, pair))
    if not parts:
        return nothing(f"no helper kernel at {view.where} costs near what it helps")
    return Judgement(
        saving_us=saving,
        upper_bound_us=bound,
        basis="; ".join(parts),
        evidence="; ".join(notes),
        confidence="high" if all("assumed" not in p for p in parts) else "low",
        families=tuple(found),
    )


def _reused(helper: float, launches: float, view: View) -> tuple[float, str]:
    """What is saved by running a helper once for each kind of layer instead of once per layer, and the formula."""
    kinds = view.known.attention_kinds or 1
    if launches <= kinds:
        return 0.0, ""
    each = (
        f"once for each of the {kinds} kinds of layers"
        if view.known.attention_kinds
        else "once per step (at most: layers that attend to different lengths need one each)"
    )
    return helper * (1.0 - kinds / launches), (
        f"{helper:.1f} us x (1 - {kinds}/{launches:g}): {each} instead of {launches:g} times"
    )


def _compare(view: View, pair: Pair) -> str:
    """The helper's time against the helped kernels' at every batch size, the judged one first."""
    names = _names(view, (pair.helper,)), _names(view, pair.helped)
    order = [view, *(v for v in view.others if v.batch_size != view.batch_size)]
    figures = [
        f"{v.sum_us((pair.helper,)):.0f} against {v.sum_us(pair.helped):.0f} us at {v.where}"
        for v in order
        if v.sum_us((pair.helper,)) and v.sum_us(pair.helped)
    ]
    return f"{names[0]} against {names[1]}, which it serves: {', '.join(figures)}"


def _names(view: View, families: Sequence[str]) -> str:
    kernels = view.kernels_of(families)
    return f"`{families[0]}` ({short_name(kernels[0].name)})" if kernels else f"`{families[0]}`"


def _pairs(spec: LeverSpec) -> tuple[Pair, ...]:
    try:
        return msgspec.convert(spec.parameters.get("pairs", []), tuple[Pair, ...])
    except msgspec.ValidationError as error:
        raise InputError(f"lever catalogue: {spec.id}: parameters.pairs is malformed: {error}") from error
