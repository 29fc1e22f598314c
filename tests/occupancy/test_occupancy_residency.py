"""Residency against the mission's numbers, a brute-force packer and the laws it has to obey."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.hardware import GpuSpec, Launch, catalogue
from wavewise.occupancy import achieved_occupancy, cta_budget, ctas_per_sm, residency

NVIDIA = [spec for spec in catalogue() if spec.vendor == "nvidia"]
H200 = catalogue().find("h200")
RTX_PRO_6000 = catalogue().find("rtx-pro-6000")

gpus = st.sampled_from(NVIDIA)
thread_counts = st.integers(1, 1024)
register_counts = st.integers(0, 255)
shared_sizes = st.integers(0, 230_000)


def launch(threads: int, registers: int, shared: int, **more: int) -> Launch:
    return Launch((1, 1, 1), (threads, 1, 1), registers, shared, **more)


def packed(gpu: GpuSpec, threads: int, registers: int, shared: int) -> int:
    """CTAs that fit, found by placing them one by one on a model of the SM: an independent way to the number.

    Warps go to the sub-partition with the most registers left, as a scheduler that spreads its load would.
    """
    warps = (threads + 31) // 32
    per_warp = -(-registers * 32 // 256) * 256
    left = [gpu.registers_per_sm // 4] * 4
    warp_slots, slots, bytes_left = gpu.max_warps_per_sm, gpu.max_ctas_per_sm, gpu.shared_memory_per_sm
    unit = gpu.shared_memory_allocation_unit
    per_cta = -(-(shared + gpu.shared_memory_reserved_per_cta) // unit) * unit
    if shared > gpu.shared_memory_per_cta or per_warp * -(-warps // 4) * 4 > gpu.registers_per_sm:
        return 0
    placed = 0
    while slots and warp_slots >= warps and bytes_left >= per_cta:
        for _ in range(warps):
            part = left.index(max(left))
            if left[part] < per_warp:
                return placed
            left[part] -= per_warp
        slots, warp_slots, bytes_left = slots - 1, warp_slots - warps, bytes_left - per_cta
        placed += 1
    return placed


@given(gpus, thread_counts, register_counts, shared_sizes)
def test_equals_placing_ctas_one_by_one(gpu, threads, registers, shared):
    assert residency(gpu, launch(threads, registers, shared)).ctas_per_sm == packed(
        gpu, threads, registers, shared
    )


@given(gpus, thread_counts, register_counts, shared_sizes, st.integers(0, 255), st.integers(0, 50_000))
def test_never_rises_with_registers_or_shared_memory(
    gpu, threads, registers, shared, more_registers, more_shared
):
    before = residency(gpu, launch(threads, registers, shared)).ctas_per_sm
    heavier = residency(gpu, launch(threads, min(255, registers + more_registers), shared + more_shared))
    assert heavier.ctas_per_sm <= before


@given(gpus, thread_counts, register_counts, shared_sizes)
def test_occupancy_is_warps_over_the_maximum_and_the_limiter_binds(gpu, threads, registers, shared):
    result = residency(gpu, launch(threads, registers, shared))
    assert result.warps_per_sm == result.ctas_per_sm * ((threads + 31) // 32)
    assert result.occupancy == result.warps_per_sm / gpu.max_warps_per_sm
    assert 0 <= result.occupancy <= 1
    assert result.limiter
    for name in result.limiter.split("+"):
        assert result.limits[name] == result.ctas_per_sm
    assert min(result.limits.values()) == result.ctas_per_sm


@given(gpus, thread_counts, st.integers(1, 255), shared_sizes)
def test_meeting_the_budget_gives_the_next_cta_and_one_unit_more_does_not(gpu, threads, registers, shared):
    now = residency(gpu, launch(threads, registers, shared))
    step = now.next_cta
    assert step.ctas_per_sm == now.ctas_per_sm + 1
    if step.impossible_reason is not None:
        assert now.ctas_per_sm == gpu.max_ctas_per_sm or "too little" in step.impossible_reason
        return
    new = {
        "threads": step.threads_per_cta or threads,
        "registers": step.registers_per_thread or registers,
        "shared": step.shared_memory_bytes if step.shared_memory_bytes is not None else shared,
    }
    assert residency(gpu, launch(**new)).ctas_per_sm >= step.ctas_per_sm
    for name, limit in (
        ("threads", step.threads_per_cta),
        ("registers", step.registers_per_thread),
        ("shared", step.shared_memory_bytes),
    ):
        if limit is not None and not (name == "registers" and limit == 255):
            assert residency(gpu, launch(**{**new, name: limit + 1})).ctas_per_sm < step.ctas_per_sm
    assert step.threads_per_cta or step.registers_per_thread or step.shared_memory_bytes is not None


ONE_OF_EACH = {gpu.compute_capability: gpu for gpu in NVIDIA}


@pytest.mark.parametrize("capability", ONE_OF_EACH)
def test_every_step_up_is_what_a_search_over_all_values_finds(capability):
    """With the other limits met, the limit that is told is the largest value of all that still lets so many CTAs in."""
    gpu, rng = ONE_OF_EACH[capability], np.random.default_rng(11)
    sizes = np.arange(0, gpu.shared_memory_per_cta + 1, 32)
    steps = 0
    for _ in range(40):
        asked = {
            "threads": int(rng.integers(1, 1025)),
            "registers": int(rng.integers(1, 256)),
            "shared": int(rng.integers(0, gpu.shared_memory_per_cta)),
        }
        now = residency(gpu, launch(**asked)).ctas_per_sm
        for ctas in range(now + 1, min(now + 4, gpu.max_ctas_per_sm) + 1):
            step = cta_budget(gpu, launch(**asked), ctas)
            assert step.impossible_reason is None
            told = {
                "threads": step.threads_per_cta,
                "registers": step.registers_per_thread,
                "shared": step.shared_memory_bytes,
            }
            met = {name: asked[name] if limit is None else limit for name, limit in told.items()}
            every = {"threads": np.arange(1, 1025), "registers": np.arange(1, 256), "shared": sizes}
            if step.shared_memory_bytes is not None:
                every["shared"] = np.append(sizes, step.shared_memory_bytes + np.arange(2))
            for name, limit in told.items():
                enough = ctas_per_sm(gpu, *({**met, name: every[name]}[key] for key in met)) >= ctas
                largest = int(every[name][enough].max())
                assert largest >= asked[name] if limit is None else largest == limit, (asked, step)
            steps += 1
    assert steps > 70


def test_the_barrier_of_the_mission():
    result = residency(RTX_PRO_6000, launch(128, 255, 80_000))
    assert (result.ctas_per_sm, result.limiter, result.warps_per_sm) == (1, "shared_memory", 4)
    assert result.occupancy == pytest.approx(1 / 12)
    assert result.next_cta.ctas_per_sm == 2
    assert result.next_cta.shared_memory_bytes == 50_176
    assert result.next_cta.registers_per_thread is None
    third = cta_budget(RTX_PRO_6000, launch(128, 255, 80_000), 3)
    assert (third.shared_memory_bytes, third.registers_per_thread) == (33_024, 168)


def test_flashmla_split_kernel_on_an_h200():
    result = residency(H200, launch(384, 168, 208_896))
    assert (result.ctas_per_sm, result.warps_per_sm, result.occupancy) == (1, 12, 0.1875)


def test_registers_are_held_per_sub_partition():
    # A warp of 136 registers takes 4,352; each of 4 sub-partitions of 16,384 holds 3 of them: 12, although
    # 65,536 / 4,352 = 15.06.
    assert residency(H200, launch(32, 136, 0)).limits["registers"] == 12


def test_registers_of_one_cta_count_in_whole_rows_of_sub_partitions():
    # 9 warps of 168 registers: 5,376 each. Placed, they would fit (48,384 of 65,536), and so would 12 of them
    # (64,512); at 13 warps the hardware counts 16 (86,016) and refuses.
    assert residency(H200, launch(9 * 32, 168, 0)).ctas_per_sm == 1
    assert residency(H200, launch(12 * 32, 168, 0)).ctas_per_sm == 1
    assert residency(H200, launch(13 * 32, 168, 0)).ctas_per_sm == 0


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter", "words"),
    [
        (1056, 32, 0, "warps", "1,056 threads"),
        (1024, 65, 0, "registers", "65 registers per thread (at most 64"),
        (128, 32, 232_449, "shared_memory", "232,449 B of shared memory (at most 232,448 B)"),
        (1024, 255, 300_000, "registers+shared_memory", "255 registers"),
    ],
)
def test_a_launch_that_does_not_fit_says_which_limit_it_breaks(threads, registers, shared, limiter, words):
    result = residency(H200, launch(threads, registers, shared))
    assert (result.ctas_per_sm, result.limiter, result.occupancy) == (0, limiter, 0.0)
    assert result.reason.startswith("does not fit: ")
    assert words in result.reason
    assert result.next_cta.ctas_per_sm == 1


def test_several_limits_that_bind_are_all_named():
    assert residency(H200, launch(64, 32, 0)).limiter == "warps+registers+cta_slots"


def test_named_barriers_limit_warp_specialised_kernels():
    result = residency(H200, launch(32, 32, 0, barriers=16))
    assert (result.ctas_per_sm, result.limiter) == (4, "barriers")
    assert result.next_cta.impossible_reason == "an SM has 64 named barriers, 12 for each (now 16)"


def test_a_full_sm_cannot_take_one_more():
    assert residency(H200, launch(32, 16, 0)).next_cta.impossible_reason == "an SM has 32 CTA slots"


@pytest.mark.parametrize(
    "odd",
    [
        Launch(None, (128, 1, 1), None, 0),
        Launch(None, (128, 1, 1), 32, None),
        Launch((1, 1, 1), (0, 1, 1), 32, 0),
        Launch((1, 0, 1), (32, 1, 1), 32, 0),
        launch(128, -1, 0),
        launch(128, 32, -1),
        launch(128, 32, 0, cluster_size=0),
        launch(128, 32, 0, barriers=17),
    ],
)
def test_an_unknown_or_impossible_launch_is_unknown_with_a_reason(odd):
    result = residency(H200, odd)
    assert result.ctas_per_sm is None
    assert result.occupancy is None
    assert result.reason


def test_an_unmodelled_gpu_is_unknown_with_a_reason():
    result = residency(catalogue().find("mi300x"), launch(256, 32, 0))
    assert result.ctas_per_sm is None
    assert "not modelled" in result.reason
    unknown = dataclasses.replace(H200, max_ctas_per_sm=None, compute_capability="13.0")
    assert "max_ctas_per_sm of compute capability 13.0" in residency(unknown, launch(256, 32, 0)).reason


def test_clusters_carry_a_caution():
    assert "clusters of 4" in residency(H200, launch(128, 32, 0, cluster_size=4)).note
    assert residency(H200, launch(128, 32, 0, cluster_size=1)).note is None


def test_arrays_and_single_launches_agree():
    rng = np.random.default_rng(7)
    threads, registers, shared = (
        rng.integers(1, 1025, 500),
        rng.integers(0, 256, 500),
        rng.integers(0, 240_000, 500),
    )
    many = ctas_per_sm(H200, threads, registers, shared)
    one = [
        residency(H200, launch(int(t), int(r), int(s))).ctas_per_sm
        for t, r, s in zip(threads, registers, shared, strict=True)
    ]
    assert many.tolist() == one


def test_achieved_occupancy_counts_threads_and_stops_at_residency():
    # 66 CTAs on 132 SMs: half a CTA an SM. 100,000 CTAs: 20, by shared memory of 10,240 + 1,024 B.
    shares = achieved_occupancy(H200, [66, 100_000], 96, 32, 10_240)
    assert shares.tolist() == pytest.approx([0.5 * 96 / 2048, 20 * 96 / 2048])
