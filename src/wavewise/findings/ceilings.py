"""What-ifs: the step if a family were free, twice as fast, or at its floor; and what telemetry says."""

from wavewise.findings.base import Result


class Ceiling(Result, frozen=True, kw_only=True):
    """One family at one batch size on one basis ("kernel_sum", "busy" or "step").

    Attributes:
        basis_ms: the basis as measured: summed kernel time, busy time or step time.
        family_ms: the family's summed kernel time per step.
        removable_ms: what the basis loses if the family were free: its summed time ("kernel_sum"), else the
            time in which it runs alone.
        time_ms_if_free: the basis then. No work on this family can pass it.
        host_floor_ms: on basis "step": smallest clean step boundary plus launch time, which a step needs even
            if the GPU did nothing.
        binding: on basis "step", what bounds the step with the family free: "gpu" (the other families) or
            "host" (the host floor).
        floor_ms: the family's roofline floor per step, None with `floor_reason`.
        floor_bound: "memory" or "compute", whichever is the slower; floor_bytes and floor_flops per step.
        reason: why a figure is None.
    """

    family: str
    batch_size: int | None
    basis: str
    speedup_if_free: float | None
    speedup_if_2x: float | None
    tokens_per_s_if_free: float | None
    binding: str | None = None
    reason: str | None = None
    basis_ms: float | None = None
    family_ms: float | None = None
    removable_ms: float | None = None
    time_ms_if_free: float | None = None
    time_ms_if_2x: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_if_2x: float | None = None
    host_floor_ms: float | None = None
    floor_ms: float | None = None
    floor_bytes: float | None = None
    floor_flops: float | None = None
    floor_bound: str | None = None
    floor_reason: str | None = None
    time_ms_if_at_floor: float | None = None
    speedup_if_at_floor: float | None = None
    tokens_per_s_if_at_floor: float | None = None
    context_length: int | None = None
    context_label: str | None = None


class WhatIf(Result, frozen=True, kw_only=True):
    """Several families changed at once, at one batch size on one basis.

    Attributes:
        name: what is asked, in words.
        changes: family -> "free", "2x" or "floor".
        time_ms: the basis then; on "busy" and "step" an upper bound, since time in which two of the changed
            families overlap counts as kept.
    """

    name: str
    batch_size: int | None
    basis: str
    changes: dict[str, str]
    basis_ms: float
    time_ms: float
    speedup: float | None
    tokens_per_s: float | None
    binding: str | None = None
    reason: str | None = None
    context_length: int | None = None


class Signature(Result, frozen=True, kw_only=True):
    """What the GPU's telemetry says of the bottleneck.

    Attributes:
        verdict: "compute-bound", "bandwidth-bound", "latency-bound at low occupancy", "host-bound", "idle",
            "mixed" (no rule holds) or None (not enough was measured).
        sm_activity, memory_activity, power_share: medians as shares (0 to 1) of the samples under load.
        kind: "nvml" (time-based utilisation) or "counters" (GPM/DCGM hardware counters), which have other
            thresholds.
        samples: how many were used; samples_left_out idle or incomplete ones.
        because: the comparisons that led to the verdict, with their thresholds.
    """

    verdict: str | None
    sm_activity: float | None
    memory_activity: float | None
    power_share: float | None
    kind: str | None
    samples: int
    samples_left_out: int = 0
    because: tuple[str, ...] = ()
    sentence: str
    reason: str | None = None
