"""What an evaluator answers: a saving with its basis, "nothing to save here" with why, or what it needs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One lever at one operating point.

    Attributes:
        saving_us: predicted, us per step; 0.0 where there is nothing to save; None where it cannot be judged.
        upper_bound_us: before an assumed share is applied.
        basis: the formula with its figures.
        evidence: what in the trace it rests on.
        needs: what input would allow a judgement; only with saving_us None.
        confidence: "high", "medium" or "low"; None without a prediction.
        families: what the saving comes out of, to bound it by their ceiling; empty: the step.
        batch_size: of the figures; None when it spans batch sizes.
        spans_batches: True when the figures are an average over all recorded decode steps.
    """

    saving_us: float | None
    basis: str
    evidence: str = ""
    upper_bound_us: float | None = None
    needs: str | None = None
    confidence: str | None = None
    families: tuple[str, ...] = ()
    spans_batches: bool = False


def nothing(basis: str, evidence: str = "") -> Judgement:
    """Judged: nothing to save."""
    return Judgement(saving_us=0.0, basis=basis, evidence=evidence)


def unknown(
    needs: str, basis: str = "", evidence: str = "", upper_bound_us: float | None = None
) -> Judgement:
    """Cannot be judged without `needs`; a bound may be known all the same."""
    return Judgement(
        saving_us=None,
        basis=basis or "nothing that bounds it",
        evidence=evidence,
        needs=needs,
        upper_bound_us=upper_bound_us,
    )
