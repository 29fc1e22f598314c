"""Residency against the CUDA runtime of a real H200, recorded by benchmarks/occupancy_golden.py."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from wavewise.hardware import Launch, catalogue
from wavewise.occupancy import SmLimits, cta_limits, residency

GOLDEN = json.loads((Path(__file__).parent / "golden_h200.json").read_text())
POINTS = {name: np.array(values) for name, values in GOLDEN["points"].items()}
H200 = catalogue().find("h200")


def test_every_recorded_point_of_the_h200_agrees():
    limits = cta_limits(
        SmLimits.of(H200),
        POINTS["threads"],
        POINTS["registers"],
        POINTS["static_shared"] + POINTS["dynamic_shared"],
        POINTS["barriers"],
    )
    ours = np.minimum.reduce(list(limits.values()))
    mismatches = np.flatnonzero(ours != POINTS["ctas_per_sm"])
    print(f"{len(ours)} points, {len(mismatches)} mismatches")
    assert len(ours) >= 5000
    assert mismatches.size == 0
    # The table is worth something only if every limit binds somewhere, alone.
    binding = np.array([values == ours for values in limits.values()])
    alone = {name: int((binding[i] & (binding.sum(0) == 1)).sum()) for i, name in enumerate(limits)}
    assert min(alone.values()) > 50, alone


def test_single_launches_agree_with_the_recorded_points():
    for i in range(0, len(POINTS["threads"]), 40):
        launch = Launch(
            None,
            (int(POINTS["threads"][i]), 1, 1),
            int(POINTS["registers"][i]),
            int(POINTS["static_shared"][i] + POINTS["dynamic_shared"][i]),
            barriers=int(POINTS["barriers"][i]),
        )
        assert residency(H200, launch).ctas_per_sm == POINTS["ctas_per_sm"][i]


def test_the_recording_says_where_it_comes_from():
    assert GOLDEN["origin"]["function"] == "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
    assert H200.id == catalogue().match(GOLDEN["origin"]["name"], GOLDEN["origin"]["compute_cap"], 132).id
    assert GOLDEN["origin"]["driver_version"]


@pytest.mark.parametrize(
    "rule", ["register unit", "sub-partitions", "shared-memory unit", "reserve", "slots"]
)
def test_each_rule_is_needed_to_agree(rule):
    """Dropping any one allocation rule breaks the agreement: the table can tell them apart."""
    sm = SmLimits.of(H200)
    changed = {
        "register unit": {"register_allocation_unit": 1},
        "sub-partitions": {"warp_allocation_granularity": 1},
        "shared-memory unit": {"shared_memory_allocation_unit": 1},
        "reserve": {"shared_memory_reserved_per_cta": 0},
        "slots": {"max_ctas_per_sm": 64},
    }[rule]
    limits = cta_limits(
        dataclasses.replace(sm, **changed),
        POINTS["threads"],
        POINTS["registers"],
        POINTS["static_shared"] + POINTS["dynamic_shared"],
        POINTS["barriers"],
    )
    assert (np.minimum.reduce(list(limits.values())) != POINTS["ctas_per_sm"]).sum() > 10
