"""Residency on every NVIDIA architecture against NVIDIA's own calculator, recorded by occupancy_calculator.py."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from support.programming_guide import GUIDE
from wavewise.hardware import GpuSpec, Launch, catalogue
from wavewise.occupancy import SmLimits, cta_limits, residency

GOLDEN = json.loads((Path(__file__).parent / "golden_calculator.json").read_text())
POINTS = {
    capability: {name: np.array(values) for name, values in columns.items()}
    for capability, columns in GOLDEN["points"].items()
}
LIMITS = {
    "warps": "warps",
    "registers": "by_registers",
    "shared_memory": "shared_memory",
    "cta_slots": "cta_slots",
    "barriers": "by_barriers",
}
"""Our name of a limit -> its column."""


def gpu_of(capability: str) -> GpuSpec:
    return catalogue().from_figures(compute_capability=capability, warp_size=32)


def ours_of(sm: SmLimits, points: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    shared = points["static_shared"] + points["dynamic_shared"]
    return cta_limits(sm, points["threads"], points["registers"], shared, points["barriers"])


def test_every_architecture_of_the_catalogue_is_recorded():
    assert set(POINTS) == set(GUIDE)
    assert all(len(points["threads"]) >= 500 for points in POINTS.values())
    assert GOLDEN["origin"]["release"].startswith("CUDA ")


@pytest.mark.parametrize("capability", GUIDE)
def test_every_recorded_point_agrees(capability):
    points = POINTS[capability]
    limits = ours_of(SmLimits.of(gpu_of(capability)), points)
    ours = np.minimum.reduce(list(limits.values()))
    assert np.flatnonzero(ours != points["ctas_per_sm"]).size == 0
    for name, column in LIMITS.items():
        # A limit looser than the slots may be told by one side only: barriers up to a slot's share never bind.
        slots = points["cta_slots"]
        told = np.where(points[column] == -1, slots, np.minimum(points[column], slots))
        assert (np.minimum(limits[name], slots) == told).all(), name
    # The points are worth something only if every limit binds somewhere, alone.
    binding = np.array([values == ours for values in limits.values()])
    alone = {name: int((binding[i] & (binding.sum(0) == 1)).sum()) for i, name in enumerate(limits)}
    if gpu_of(capability).barriers_per_sm is None:
        assert alone.pop("barriers") == 0
    assert min(alone.values()) > 5, alone


@pytest.mark.parametrize("capability", GUIDE)
@pytest.mark.parametrize(
    ("figure", "wrong"),
    [
        ("max_warps_per_sm", 40),
        ("max_ctas_per_sm", 28),
        ("register_allocation_unit", 64),
        ("warp_allocation_granularity", 2),
        ("shared_memory_per_sm", 120 * 1024),
        ("shared_memory_allocation_unit", 512),
        ("shared_memory_reserved_per_cta", 2048),
    ],
)
def test_a_wrong_figure_would_be_noticed(capability, figure, wrong):
    sm = dataclasses.replace(SmLimits.of(gpu_of(capability)), **{figure: wrong})
    ours = np.minimum.reduce(list(ours_of(sm, POINTS[capability]).values()))
    assert (ours != POINTS[capability]["ctas_per_sm"]).any()


@pytest.mark.parametrize("capability", GUIDE)
def test_single_launches_agree(capability):
    gpu, points = gpu_of(capability), POINTS[capability]
    for i in range(0, len(points["threads"]), 20):
        launch = Launch(
            None,
            (int(points["threads"][i]), 1, 1),
            int(points["registers"][i]),
            int(points["static_shared"][i] + points["dynamic_shared"][i]),
            barriers=int(points["barriers"][i]),
        )
        assert residency(gpu, launch).ctas_per_sm == points["ctas_per_sm"][i]


def test_named_barriers_set_no_limit_before_9_0():
    launch = Launch(None, (64, 1, 1), 16, 0, barriers=16)
    assert residency(gpu_of("8.0"), launch).ctas_per_sm == 32
    assert residency(gpu_of("9.0"), launch).ctas_per_sm == 4
    assert residency(gpu_of("10.3"), launch).ctas_per_sm == 2
    assert residency(gpu_of("8.6"), launch).next_cta.impossible_reason == "an SM has 16 CTA slots"
