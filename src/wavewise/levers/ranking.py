"""Ranks the levers by what each is predicted to save, bounded by the ceiling of its families."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wavewise.ceilings import ModelShape, recognise
from wavewise.errors import UsageError
from wavewise.findings import Findings, Lever
from wavewise.levers.catalogue import Catalogue, LeverSpec, load_catalogue
from wavewise.levers.evaluators import evaluator
from wavewise.levers.judgement import Judgement
from wavewise.levers.known import Known
from wavewise.levers.ledger import Ledger, Setting
from wavewise.levers.tried import tried_lever
from wavewise.levers.view import View, views

_DOCS = "docs/levers.md"
_RISK_ORDER = {"low": 0, "medium": 1, "high": 2}


@dataclass(frozen=True)
class _Judged:
    """A judgement with where it was made, and the saving after the ceiling."""

    view: View
    judgement: Judgement
    saving_us: float | None
    ceiling_us: float | None
    bounded: bool


def rank(
    findings: Findings,
    *,
    ledger: Ledger | None = None,
    tried: Sequence[str] = (),
    known: Known | None = None,
    shape: ModelShape | None = None,
    catalogue: Catalogue | None = None,
    batch_size: int | None = None,
) -> tuple[Lever, ...]:
    """Every lever of the catalogue that can be judged on a trace, and every tried one, dearest saving first.

    Each lever is judged at the largest batch size (or at `batch_size`). Where it has nothing to save or
    cannot be judged there, the batch size at which it saves most stands in, and ranks after those judged
    there. A saving never passes what would vanish from the step if the lever's families were free.

    Args:
        findings: what was measured.
        ledger: entries to match; None without one.
        tried: names of levers that somebody tried or asks about.
        known: facts that a trace does not hold.
        shape: the model's; recognised by kernel names where None.
        catalogue: levers; the packaged ones by default.
        batch_size: the operating point to judge at.

    Returns:
        First those with a saving at that operating point, then at another, then those that have nothing to
        save (0.0), then those that cannot be judged (None, with what they need).

    Raises:
        UsageError: a tried name that nobody knows, or a batch size that has no clean steps.
    """
    known = _completed(known or Known(), findings, shape)
    levers = catalogue or load_catalogue()
    named = {levers.find(name).id: name for name in tried}
    points = views(findings, known)
    reference = _reference(points, batch_size)
    if reference is None:
        return ()
    setting = Setting.of(reference.gpu, reference.engine, known)
    ranked: list[tuple[tuple[float, ...], Lever]] = []
    for spec in levers:
        if spec.evaluator is None and spec.id not in named:
            continue
        judged = _judge(spec, reference) if spec.evaluator is not None else None
        lever = _lever(spec, judged, reference, ledger, setting, named.get(spec.id))
        ranked.append((_order(judged, reference, spec), lever))
    ranked.sort(key=lambda pair: pair[0])
    return tuple(lever for _, lever in ranked)


def _completed(known: Known, findings: Findings, shape: ModelShape | None) -> Known:
    """The known facts with what the model's shape adds.

    Without a collective in its decode steps one GPU computes every layer alone.
    """
    if shape is None:
        shape = recognise(trace.kernels for trace in findings.traces)
    families = {kernel.family for trace in findings.traces for kernel in trace.kernels}
    if known.gpus is None and not families & {"all_reduce", "collective_other"}:
        known = replace(known, gpus=1)
    return known.with_shape(shape)


def _reference(points: Sequence[View], batch_size: int | None) -> View | None:
    """The view to judge at: the named batch size, else the largest, with the most clean steps."""
    if batch_size is not None:
        found = [v for v in points if v.batch_size == batch_size]
        if not found:
            known_sizes = sorted({v.batch_size for v in points if v.batch_size is not None})
            sizes = ", ".join(map(str, known_sizes))
            raise UsageError(
                f"batch size {batch_size} has no clean decode steps; there are: {sizes or 'none'}"
            )
        points = found
    return max(points, key=lambda v: (v.batch_size or 0, v.clean_steps), default=None)


def _judge(spec: LeverSpec, reference: View) -> _Judged:
    """The judgement at the reference, or the best one elsewhere where there is nothing at the reference."""
    evaluate = evaluator(spec)
    here = _bounded(reference, evaluate(reference, spec))
    if here.saving_us or here.judgement.spans_batches:
        return here
    others = [v for v in reference.others if v.batch_size != reference.batch_size]
    elsewhere = [_bounded(v, evaluate(v, spec)) for v in others]
    gaining = [j for j in elsewhere if j.saving_us]
    if gaining:
        return max(gaining, key=lambda j: j.saving_us or 0.0)
    if here.saving_us is None:
        judged = [j for j in elsewhere if j.saving_us is not None]
        if judged:
            return max(judged, key=lambda j: j.view.batch_size or 0)
    return here


def _bounded(view: View, judgement: Judgement) -> _Judged:
    ceiling = view.ceiling_us(judgement.families) if judgement.families else None
    saving = judgement.saving_us
    if saving is None:
        return _Judged(view, judgement, None, ceiling, False)
    limit = ceiling if ceiling is not None else view.step_us
    return _Judged(view, judgement, min(saving, limit), ceiling, saving > limit)


def _order(judged: _Judged | None, reference: View, spec: LeverSpec) -> tuple[float, ...]:
    """Sort key: savings here, savings elsewhere, none, not judged, known by name; then saving, then risk."""
    risk = float(_RISK_ORDER[spec.risk])
    if judged is None:
        return (4.0, 0.0, risk)
    if judged.saving_us is None:
        return (3.0, -(judged.ceiling_us or 0.0), risk)
    if judged.saving_us == 0.0:
        return (2.0, 0.0, risk)
    here = judged.view is reference or judged.judgement.spans_batches
    return (0.0 if here else 1.0, -judged.saving_us, risk)


def _lever(
    spec: LeverSpec,
    judged: _Judged | None,
    reference: View,
    ledger: Ledger | None,
    setting: Setting,
    named: str | None,
) -> Lever:
    matches = ledger.matches(spec.id, setting) if ledger is not None else ()
    tried = tried_lever(spec, reference, named) if named is not None else None
    verdict = ledger.verdict(spec.id, setting) if ledger is not None else None
    if judged is None:
        return Lever(
            id=spec.id,
            title=spec.title,
            family=spec.families[0] if spec.families else None,
            batch_size=reference.batch_size,
            predicted_saving_us_per_step=None,
            basis=tried.sentence if tried else "",
            risk=spec.risk,
            verdict_in_ledger=verdict,
            evidence=_evidence("", spec),
            needs="a measurement: this lever is bounded by its families' share, not predicted",
            ledger=matches,
            tried=tried,
            docs=_DOCS,
        )
    judgement, view = judged.judgement, judged.view
    basis = judgement.basis
    if judged.bounded:
        basis += f"; held at the ceiling of its families, {judged.saving_us:.1f} us"
    family = judgement.families[0] if judgement.families else (spec.families[0] if spec.families else None)
    return Lever(
        id=spec.id,
        title=spec.title,
        family=family,
        batch_size=None if judgement.spans_batches else view.batch_size,
        predicted_saving_us_per_step=judged.saving_us,
        basis=basis,
        risk=spec.risk,
        verdict_in_ledger=verdict,
        evidence=_evidence(judgement.evidence, spec),
        needs=judgement.needs,
        confidence=judgement.confidence,
        upper_bound_us_per_step=judgement.upper_bound_us,
        ceiling_us_per_step=judged.ceiling_us,
        saving_share_of_step=None if judged.saving_us is None else judged.saving_us / view.step_us,
        ledger=matches,
        overlaps_with=spec.overlaps,
        tried=tried,
        docs=_DOCS,
    )


def _evidence(found: str, spec: LeverSpec) -> str:
    risk = f"risk {spec.risk}" + (f": {spec.risk_reason}" if spec.risk_reason else "")
    return f"{found}. {risk[0].upper()}{risk[1:]}" if found else f"{risk[0].upper()}{risk[1:]}"
