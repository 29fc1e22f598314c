"""Levers: what to pull next, with the predicted saving and what the ledger knows of it."""

from wavewise.findings.base import Result


class Lever(Result):
    """One lever judged on these findings.

    Attributes:
        predicted_saving_us_per_step: None when the input cannot judge it; `needs` then says what would.
        basis: how the saving was computed, in words a reader can recompute.
        risk: "low", "medium" or "high", with the reason in `evidence`.
        verdict_in_ledger: the matching ledger verdict, "contradicted", or None.
    """

    id: str
    title: str
    family: str | None
    batch_size: int | None
    predicted_saving_us_per_step: float | None
    basis: str
    risk: str
    verdict_in_ledger: str | None
    evidence: str
    needs: str | None = None
