"""What a diff says, as values: `wavewise.diff/1`. Names and meanings follow docs/commands/diff.md."""

from wavewise.findings import Note
from wavewise.findings.base import Result

SCHEMA = "wavewise.diff/1"

VERDICTS = ("up", "down", "noise", "same", "unclear", "added", "vanished")
"""up, down: beyond noise. noise: a difference that the recordings cannot tell from none. same: not a bit of
difference. unclear: too few clean steps to tell. added, vanished: on one side only."""


class Change(Result, frozen=True, kw_only=True):
    """One quantity before and after.

    Attributes:
        quantity: "step_ms", "span_ms", "busy_ms", "sum_ms", "boundary_ms", "tokens_per_s", "sum_us".
        unit: of before, after, change, interval and noise_floor.
        before, after: medians over clean steps; None on the side that lacks it.
        change: after minus before; None when a side lacks it.
        relative: change over before; None when before is 0 or missing.
        interval: 95 % bootstrap interval of the change of the median, None where there are no samples.
        p_value: of an exact (or sampled) two-sided permutation test of the means, None without samples.
        noise_floor: changes smaller than this are called noise whatever the samples say.
        verdict: one of `VERDICTS`.
        reason: why it is unclear.
    """

    quantity: str
    unit: str
    before: float | None
    after: float | None
    change: float | None
    relative: float | None
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    noise_floor: float
    verdict: str
    reason: str | None = None


class FamilyChange(Result, frozen=True, kw_only=True):
    """Summed kernel time of one family per step, and its launches."""

    family: str
    sum_us: Change
    launches_before: float
    launches_after: float


class KernelChange(Result, frozen=True, kw_only=True):
    """One launch shape, or several that stand for one another.

    Attributes:
        match: "exact" (name, grid and block), "reshaped" (same name, another grid or block), "retuned" (same
            function of the same family, other template arguments), "added" or "vanished".
        names_before, names_after: kernel names on each side; equal for an exact match.
        grids_before, grids_after: launch grids on each side.
    """

    family: str
    match: str
    names_before: tuple[str, ...]
    names_after: tuple[str, ...]
    grids_before: tuple[tuple[int, int, int], ...]
    grids_after: tuple[tuple[int, int, int], ...]
    launches_before: float
    launches_after: float
    sum_us: Change


class PointDiff(Result, frozen=True, kw_only=True):
    """One operating point before and after.

    Attributes:
        context_before, context_after: as a label or in tokens, None where unknown.
        steps: step, span, busy, sum and boundary time and throughput.
        host_share: share of the change of step time that lies in step boundaries (host time) rather than in
            replays; None where step time did not change.
    """

    batch_before: int | None
    batch_after: int | None
    bucket_before: int | None = None
    bucket_after: int | None = None
    context_before: str | None
    context_after: str | None
    clean_steps_before: int
    clean_steps_after: int
    steps: tuple[Change, ...]
    families: tuple[FamilyChange, ...]
    kernels: tuple[KernelChange, ...]
    host_share: float | None = None

    def step(self, quantity: str) -> Change | None:
        """One of `steps` by name."""
        return next((change for change in self.steps if change.quantity == quantity), None)

    @property
    def name(self) -> str:
        """How a sentence calls it: "batch 64", "batch 64 against 80", with the context where it is known."""
        sizes = [
            f"batch {batch}"
            if batch is not None
            else f"bucket {bucket}"
            if bucket is not None
            else "unknown batch"
            for batch, bucket in (
                (self.batch_before, self.bucket_before),
                (self.batch_after, self.bucket_after),
            )
        ]
        name = sizes[0] if sizes[0] == sizes[1] else f"{sizes[0]} against {sizes[1]}"
        contexts = dict.fromkeys(c or "unknown" for c in (self.context_before, self.context_after))
        return name if set(contexts) == {"unknown"} else f"{name}, context {' against '.join(contexts)}"


class LimitResult(Result, frozen=True, kw_only=True):
    """One `--fail-if` condition, judged.

    Attributes:
        limit: as the user wrote it.
        outcome: "exceeded" (beyond noise: the diff fails), "within noise", "unclear" (too few steps) or
        "kept". path: the quantity it was judged on; a pattern with `*` gives one result for each. message:
        one line with the numbers.
    """

    limit: str
    path: str
    outcome: str
    message: str


class Side(Result, frozen=True, kw_only=True):
    """What was compared on one side."""

    path: str
    traces: int
    gpus: tuple[str, ...]
    engines: tuple[str, ...]
    batch_sizes: tuple[int, ...]


class Diff(Result, frozen=True, kw_only=True):
    """Two findings compared.

    Attributes:
        notes: what must be known first: other batch sizes, other contexts, points that only one side has.
        points: compared operating points, by batch size.
        limits: the judged `--fail-if` conditions.
    """

    schema: str = SCHEMA
    wavewise: str
    before: Side
    after: Side
    notes: tuple[Note, ...]
    points: tuple[PointDiff, ...]
    limits: tuple[LimitResult, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether not one number differs."""
        return all(change.verdict == "same" for point in self.points for change in changes(point))


def changes(point: PointDiff) -> list[Change]:
    """Every change of a point."""
    return [
        *point.steps,
        *(family.sum_us for family in point.families),
        *(kernel.sum_us for kernel in point.kernels),
    ]
