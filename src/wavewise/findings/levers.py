"""Levers: what to pull next, with the predicted saving and what the ledger knows of it."""

from wavewise.findings.base import Result


class LedgerMatch(Result, frozen=True, kw_only=True):
    """A ledger entry about a lever, and how far it holds for these findings.

    Attributes:
        entry: id of the entry.
        verdict: the entry's verdict ("works", "promising", "no gain", "worse", "blocked", "unsafe",
            "rejected").
        holds: "here" (platform, model and engine match as far as both sides know them), "elsewhere" (one of
            them differs) or "expired".
        why: which attribute decides `holds`.
        figure: the measured figure, as the entry words it.
        source: where the evidence stands.
    """

    entry: str
    verdict: str
    holds: str
    why: str
    figure: str | None = None
    source: str | None = None


class TriedLever(Result, frozen=True, kw_only=True):
    """What a lever that somebody named or tried could at most have bought.

    Attributes:
        name: as it was named.
        families: the kernel families it acts on; empty where it acts on host time.
        share: their share of `basis` at `batch_size` (0 to 1); None when it cannot be told.
        basis: what `share` is a share of: "step", the step time.
        at_most_speedup: 1 / (1 - share): every saved microsecond of the families assumed saved.
        sentence: the verdict in words, with the figures.
    """

    name: str
    families: tuple[str, ...]
    batch_size: int | None
    share: float | None
    basis: str
    at_most_speedup: float | None
    sentence: str
    reason: str | None = None


class Lever(Result, frozen=True, kw_only=True):
    """One lever judged on these findings.

    Attributes:
        predicted_saving_us_per_step: None when the input cannot judge it; `needs` then says what would.
            0.0 when it was judged and has nothing to save here; `basis` says why.
        basis: how the saving was computed, in words a reader can recompute.
        risk: "low", "medium" or "high", with the reason in `evidence`.
        verdict_in_ledger: the matching ledger verdict, "contradicted", or None.
        confidence: "high" (a measured quantity vanishes), "medium" (a model with fitted or known constants)
            or "low" (an assumed share is realised).
        upper_bound_us_per_step: what the formula of `basis` gives before the assumed share and the ceiling.
        ceiling_us_per_step: what vanishes from the step if the lever's families were free; no saving
            passes it.
        ledger: every entry about this lever, those that hold here first.
        overlaps_with: ids of levers that act on the same microseconds: their savings do not add.
        tried: filled for a lever that was named as tried.
        docs: where the lever is explained.
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
    confidence: str | None = None
    upper_bound_us_per_step: float | None = None
    ceiling_us_per_step: float | None = None
    saving_share_of_step: float | None = None
    ledger: tuple[LedgerMatch, ...] = ()
    overlaps_with: tuple[str, ...] = ()
    tried: TriedLever | None = None
    docs: str | None = None
