"""The ranks of one distributed run beside each other."""

from wavewise.findings.base import Result


class RankRow(Result, frozen=True, kw_only=True):
    """One rank at one batch size; medians over its clean steps.

    Attributes:
        trace: index into the findings' traces.
        collective_us_per_step: summed time of collective kernels inside the replay.
        wait_us_per_step: how much longer its collectives take than those of the rank that waits least. A
            collective ends at the same moment everywhere, so the rank that enters first waits longest in it.
        own_ms: busy time less collective time: the rank's own work.
    """

    trace: int
    rank: int
    batch_size: int | None
    clean_steps: int
    step_ms: float
    gpu_span_ms: float
    own_ms: float
    collective_us_per_step: float
    wait_us_per_step: float | None


class RankComparison(Result, frozen=True, kw_only=True):
    """All ranks that have a trace, compared at the batch sizes that they share.

    Attributes:
        by: "rank" (traces of their own) or "device" (GPUs of one trace).
        missing: ranks of the run without a trace.
        straggler: the rank that the others wait for at the largest shared batch size; None where they are
            within noise of each other, or no collective tells.
        sentence: the answer in words.
    """

    by: str
    world_size: int | None
    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    rows: tuple[RankRow, ...]
    straggler: int | None
    sentence: str
