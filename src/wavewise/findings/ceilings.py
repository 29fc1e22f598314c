"""What-ifs: the step if a family were free, twice as fast, or at its roofline floor."""

from wavewise.findings.base import Result


class Ceiling(Result, kw_only=True):
    """One family at one batch size on one basis ("kernel_sum", "busy" or "step")."""

    family: str
    batch_size: int | None
    basis: str
    speedup_if_free: float | None
    speedup_if_2x: float | None
    tokens_per_s_if_free: float | None
    binding: str | None = None
    reason: str | None = None
