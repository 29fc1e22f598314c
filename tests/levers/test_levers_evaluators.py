"""Each evaluator on findings built by hand: the right saving is worked out on paper or by brute force."""

from itertools import combinations
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from levers_builders import (
    H200,
    PRO_6000,
    BucketUse,
    decode_step,
    expert_fit,
    findings,
    fit,
    kernel,
    line_fit,
    next_cta,
    point,
    timeline,
)
from msgspec import structs

from wavewise.findings import Findings
from wavewise.levers import Known, load_catalogue
from wavewise.levers.evaluators import evaluator
from wavewise.levers.evaluators.finer_buckets import best_buckets
from wavewise.levers.evaluators.fuse_elementwise import find_chains
from wavewise.levers.judgement import Judgement
from wavewise.levers.packing import best_split
from wavewise.levers.view import views


def judge(lever: str, found: Findings, batch: int | None = None, **known: object) -> Judgement:
    spec = load_catalogue().find(lever)
    points = views(found, Known(**known))  # type: ignore[arg-type]
    view = points[-1] if batch is None else next(v for v in points if v.batch_size == batch)
    return evaluator(spec)(view, spec)


# --- split counts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "now", "splits", "tiles_walked", "ratio"),
    [
        # Tile times by whole waves and 16 whole tiles, against the present choice: mission/README, point 2.
        (32, 4, 8, 6, 6 / 8),
        (64, 2, 16, 11, 11 / 16),
        (80, 2, 8, 14, 14 / 16),
        (88, 2, 16, 15, 15 / 16),
        (96, 2, 16, 17, 17 / 24),
    ],
)
def test_best_split_walks_the_fewest_tiles(
    batch: int, now: int, splits: int, tiles_walked: int, ratio: float
) -> None:
    best = best_split(2 * batch, 188, 1, now=now, largest=16, tiles=16)
    walked = {s: ceil(2 * batch * s / 188) * ceil(16 / s) for s in range(1, 17)}
    assert min(walked.values()) == tiles_walked
    assert walked[best.splits] == tiles_walked
    assert best.splits == splits
    assert best.ratio == pytest.approx(ratio, abs=1e-12)


def test_best_split_is_not_flattered_by_one_model() -> None:
    # Batch 48, 3 splits now (2 waves of 6 tiles). 16 splits walk 9 tiles instead of 12 (0.75), but take 9/16 instead
    # of 2/3 where work is cut smoothly (0.844); 9 splits give 10/12 and (5/9) / (2/3), 0.833 by both.
    best = best_split(96, 188, 1, now=3, largest=16, tiles=16)
    assert (best.splits, best.ratio) == (9, pytest.approx(10 / 12))


@given(
    units=st.integers(1, 400),
    sm_count=st.integers(1, 200),
    resident=st.integers(1, 4),
    now=st.integers(1, 20),
    tiles=st.one_of(st.none(), st.integers(1, 40)),
)
def test_best_split_equals_brute_force(
    units: int, sm_count: int, resident: int, now: int, tiles: int | None
) -> None:
    def ratio(s: int) -> float:
        waves, waves_now = (ceil(units * n / (sm_count * resident)) for n in (s, now))
        smooth = (waves / s) / (waves_now / now)
        if tiles is None:
            return smooth
        return max(smooth, waves * ceil(tiles / s) / (waves_now * ceil(tiles / now)))

    counts = {now, *range(1, min(16, tiles or 16) + 1)}
    best = best_split(units, sm_count, resident, now=now, largest=16, tiles=tiles)
    assert best.ratio == pytest.approx(min(map(ratio, counts)), rel=1e-9)
    assert best.ratio <= 1.0 + 1e-12
    assert best.ctas == units * best.splits


def split_sweep(batch: int = 64, combine_us: float = 0.0) -> Findings:
    families = {"attention_split": 1000.0, "moe_gemm": 500.0}
    if combine_us:
        families["attention_combine"] = combine_us
    points = (point(32, {"attention_split": 400.0}), point(batch, families))
    kernels = (
        kernel("attention_split", 400.0, 42, batch=32, grid=(32, 2, 4), name="split"),
        kernel("attention_split", 1000.0, 42, batch=batch, grid=(batch, 2, 2), name="split"),
    )
    return findings(points, kernels, gpu=PRO_6000)


def test_wave_aware_splits_saves_what_whole_waves_and_tiles_waste() -> None:
    # 128 units on 188 slots: 2 splits make 256 CTAs in 2 waves of 8 tiles; 16 make 2,048 in 11 of 1.
    found = judge("wave-aware-splits", split_sweep())
    assert found.saving_us == pytest.approx(1000.0 * (1 - 11 / 16))
    assert "16 splits instead of 2" in found.basis


def test_wave_aware_splits_pays_for_the_combine() -> None:
    # A combine of 30 us moves s / 2 times the partial results with s splits: the net best is found by trying all.
    def left(s: int) -> float:
        waves = ceil(128 * s / 188)
        ratio = max((waves / s) / (2 / 2), waves * ceil(16 / s) / (2 * 8))
        return 1000.0 * ratio + 30.0 * max(0.0, s / 2 - 1)

    found = judge("wave-aware-splits", split_sweep(combine_us=30.0))
    assert found.saving_us == pytest.approx(1000.0 - min(left(s) for s in range(1, 17)))
    assert "less" in found.basis
    assert judge("wave-aware-splits", split_sweep(combine_us=400.0)).saving_us == 0.0


def test_wave_aware_splits_claims_no_warps() -> None:
    # 256 CTAs on 188 SMs at four per SM are all resident: another split count changes warps, not waves.
    made = split_sweep()
    kernels = tuple(structs.replace(k, ctas_per_sm=4) for k in made.traces[0].kernels)
    resident = structs.replace(made, traces=(structs.replace(made.traces[0], kernels=kernels),))
    assert judge("wave-aware-splits", resident).saving_us == 0.0


def test_wave_aware_splits_leaves_a_persistent_kernel_alone() -> None:
    points = (point(64, {"attention_split": 230.0}),)
    rows = (kernel("attention_split", 230.0, 8, grid=(1, 1, 132), persistent=True),)
    found = judge("wave-aware-splits", findings(points, rows))
    assert found.saving_us == 0.0
    assert "one wave" in found.basis


def test_wave_aware_splits_needs_the_split_axis() -> None:
    points = (point(64, {"attention_split": 1000.0}),)
    rows = (kernel("attention_split", 1000.0, grid=(64, 4, 1)),)
    found = judge("wave-aware-splits", findings(points, rows))
    assert found.saving_us is None
    assert found.needs is not None
    assert "split axis" in found.needs


def test_split_kv_fills_the_gpu_at_batch_one() -> None:
    # 64 CTAs on 188 SMs: 14 splits make 896 CTAs in 5 waves of 1/14; 42 combines of 4.2 us are added.
    points = (point(1, {"attention": 60_300.0}),)
    rows = (kernel("attention", 60_300.0, 42, batch=1, grid=(1, 64, 1)),)
    found = judge("split-kv", findings(points, rows, gpu=PRO_6000))
    assert found.saving_us == pytest.approx(60_300.0 * (1 - 5 / 14) - 42 * 4.2)
    assert "coverage 34 %" in found.evidence


def test_split_kv_leaves_a_grid_of_many_waves_alone() -> None:
    # 6 waves on 132 SMs, the last one 82 % full: no lack of coverage.
    points = (point(96, {"attention": 16_917.0}),)
    rows = (kernel("attention", 16_917.0, 32, batch=96, grid=(768, 1, 1)),)
    assert judge("split-kv", findings(points, rows)).saving_us == 0.0


@pytest.mark.parametrize(("grid", "resident", "saves"), [(128, 5, False), (320, 4, False), (192, 1, True)])
def test_split_kv_is_about_empty_sms_alone(grid: int, resident: int, saves: bool) -> None:
    # On 132 SMs 128 CTAs cover 97 %, 320 at four per SM all; 192 at one per SM leave 72 empty in the second wave.
    points = (point(8, {"attention": 10_000.0}),)
    rows = (kernel("attention", 10_000.0, 32, batch=8, grid=(grid, 1, 1), ctas_per_sm=resident),)
    assert (judge("split-kv", findings(points, rows)).saving_us != 0.0) == saves


def test_split_kv_has_nothing_to_save_on_a_full_grid() -> None:
    points = (point(47, {"attention": 1000.0}),)
    rows = (kernel("attention", 1000.0, 42, batch=47, grid=(47, 64, 1)),)
    assert judge("split-kv", findings(points, rows, gpu=PRO_6000)).saving_us == 0.0


# --- residency --------------------------------------------------------------------------------------------------


def low_occupancy(**more: object) -> Findings:
    points = (point(80, {"attention_split": 51_200.0}),)
    row = {"grid": (80, 2, 2), "limiter": "shared_memory", "occupancy": 4 / 48, "next_cta": next_cta()}
    return findings(
        points, (kernel("attention_split", 51_200.0, 42, batch=80, **{**row, **more}),), gpu=PRO_6000
    )


def test_more_ctas_per_sm_halves_the_waves_and_claims_half_of_that() -> None:
    # 320 CTAs: 2 waves on 188 slots, 1 on 376.
    found = judge("more-ctas-per-sm", low_occupancy())
    assert found.upper_bound_us == pytest.approx(51_200.0 / 2)
    assert found.saving_us == pytest.approx(51_200.0 / 4)
    assert "50,176 B" in found.evidence


@pytest.mark.parametrize(
    "more",
    [
        {"occupancy": 0.5},
        {"persistent": True, "grid": (188, 1, 1)},
        {"grid": (188, 1, 1)},
        {"next_cta": None},
    ],
    ids=["occupied", "persistent", "one wave", "no target"],
)
def test_more_ctas_per_sm_does_not_claim_where_it_cannot_know(more: dict[str, object]) -> None:
    assert judge("more-ctas-per-sm", low_occupancy(**more)).saving_us == 0.0


def test_more_ctas_per_sm_needs_launch_parameters() -> None:
    found = judge("more-ctas-per-sm", low_occupancy(occupancy=None, ctas_per_sm=None))
    assert found.saving_us is None


# --- helpers and chains -----------------------------------------------------------------------------------------


def schedule_sweep() -> Findings:
    figures = {1: (206.0, 126.0), 64: (253.0, 230.0)}
    points = tuple(
        point(b, {"attention_schedule": s, "attention_split": a}, launches={"attention_schedule": 8.0})
        for b, (s, a) in figures.items()
    )
    rows = tuple(
        kernel("attention_schedule", s, 8, batch=b, name="get_mla_metadata_kernel")
        for b, (s, _) in figures.items()
    )
    return findings(points, rows)


def test_helper_kernels_runs_the_schedule_once_per_step() -> None:
    found = judge("helper-kernels", schedule_sweep())
    assert found.saving_us == pytest.approx(253.0 * 7 / 8)
    assert "253 against 230 us at batch 64" in found.evidence
    assert "206 against 126 us at batch 1" in found.evidence
    assert "get_mla_metadata_kernel" in found.evidence


def test_helper_kernels_is_silent_about_cheap_helpers() -> None:
    points = (
        point(
            64, {"attention_schedule": 20.0, "attention_split": 230.0, "moe_route": 90.0, "moe_gemm": 100.0}
        ),
    )
    assert judge("helper-kernels", findings(points)).saving_us == 0.0


def test_a_schedule_that_runs_once_cannot_run_less() -> None:
    points = (point(64, {"attention_schedule": 253.0, "attention_split": 230.0}),)
    assert judge("helper-kernels", findings(points)).saving_us == 0.0


def test_fuse_elementwise_counts_chains_on_one_stream() -> None:
    # Stream 7: [norm 3, rope 2, quant 5] is a chain; a lone element-wise kernel is none; stream 8's is another.
    rows = [
        ("norm", 3.0, 7), ("rope", 2.0, 7), ("quant", 5.0, 7), ("dense_gemm", 50.0, 7),
        ("elementwise", 4.0, 7), ("moe_gemm", 90.0, 7), ("norm", 1.0, 8), ("elementwise", 2.5, 8),
    ]  # fmt: skip
    families = {
        "norm": 4.0,
        "rope": 2.0,
        "quant": 5.0,
        "elementwise": 6.5,
        "dense_gemm": 50.0,
        "moe_gemm": 90.0,
    }
    found = judge("fuse-elementwise", findings((point(64, families),), timelines={64: timeline(rows)}))
    bound = (3.0 + 2.0 + 5.0 - 5.0) + (1.0 + 2.5 - 2.5)
    assert found.upper_bound_us == pytest.approx(bound)
    assert found.saving_us == pytest.approx(bound / 2)
    assert "13.5 us in 5 kernels of 2 chains" in found.basis


def test_fuse_elementwise_without_order_says_what_it_needs() -> None:
    found = judge("fuse-elementwise", findings((point(64, {"norm": 4.0, "moe_gemm": 90.0}),)))
    assert found.saving_us is None
    assert "4.0 us" in found.basis


@given(
    st.lists(
        st.tuples(st.sampled_from(["norm", "rope", "moe_gemm"]), st.integers(1, 50), st.integers(7, 8)),
        max_size=30,
    )
)
def test_chains_equal_a_plain_walk(rows: list[tuple[str, int, int]]) -> None:
    made = timeline([(f, float(us), s) for f, us, s in rows])
    runs: list[list[int]] = []
    for stream in (7, 8):
        run: list[int] = []
        for family, us, _ in [*(r for r in rows if r[2] == stream), ("moe_gemm", 0, stream)]:
            if family == "moe_gemm":
                runs, run = [*runs, run], []
            else:
                run = [*run, us]
    chains = [run for run in runs if len(run) > 1]
    found = find_chains(made, ("norm", "rope"))
    assert (found.count, found.kernels) == (len(chains), sum(map(len, chains)))
    assert found.sum_us == pytest.approx(sum(map(sum, chains)))
    assert found.longest_members_us == pytest.approx(sum(map(max, chains)))


# --- buckets ----------------------------------------------------------------------------------------------------


def bucketed(uses: dict[tuple[int, int], int], spans: dict[int, float]) -> Findings:
    steps = tuple(decode_step(i, b, b, us) for i, (b, us) in enumerate(spans.items()))
    use = tuple(BucketUse(batch_size=b, bucket=c, steps=n) for (b, c), n in uses.items())
    return findings((point(64, {"moe_gemm": 5000.0}),), bucket_use=use, steps=steps, fits=(expert_fit(),))


def test_finer_buckets_prices_padding_by_recorded_spans() -> None:
    # Spans 4,000 us at 32 and 6,000 at 64: 48 requests in bucket 64 cost 6,000, in a bucket of 48 5,000.
    found = judge("finer-buckets", bucketed({(48, 64): 30, (64, 64): 10}, {32: 4000.0, 64: 6000.0}))
    assert found.saving_us == pytest.approx(1000.0 * 30 / 40)
    assert found.spans_batches
    assert "30 of 40 steps" in found.evidence


def test_finer_buckets_without_padding_saves_nothing() -> None:
    assert judge("finer-buckets", bucketed({(64, 64): 10}, {32: 4000.0, 64: 6000.0})).saving_us == 0.0


def test_finer_buckets_needs_two_prices_and_known_buckets() -> None:
    assert judge("finer-buckets", bucketed({(48, 64): 1}, {64: 6000.0})).saving_us is None
    assert judge("finer-buckets", bucketed({}, {64: 6000.0})).saving_us is None


@given(
    st.dictionaries(st.integers(1, 60), st.integers(1, 9), min_size=1, max_size=8),
    st.integers(1, 8),
)
def test_best_buckets_equals_brute_force(uses: dict[int, int], k: int) -> None:
    sizes = sorted(uses)
    price = {s: 100.0 + s**1.5 for s in sizes}
    costs = [
        sum(n * price[min(c for c in chosen if c >= size)] for size, n in uses.items())
        for count in range(1, min(k, len(sizes)) + 1)
        for chosen in combinations(sizes, count)
        if sizes[-1] in chosen
    ]
    found = best_buckets(
        np.array(sizes), np.array([float(uses[s]) for s in sizes]), np.array([price[s] for s in sizes]), k
    )
    assert found.mean_us == pytest.approx(min(costs) / sum(uses.values()))
    assert len(found.buckets) <= k
    assert sum(n * price[min(c for c in found.buckets if c >= s)] for s, n in uses.items()) == pytest.approx(
        min(costs)
    )


# --- host -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu_us", "boundary_us", "launch_us", "saving"),
    [
        (6000.0, 2000.0, 50.0, 1950.0),  # the GPU's time then binds: 8,000 -> 6,050
        (6000.0, 9000.0, 50.0, 5950.0),  # the host's then binds: 15,000 -> 9,050
        (6000.0, 40.0, 50.0, 0.0),
        (6000.0, 2000.0, None, 1980.0),  # 20 us assumed for a launch
    ],
)
def test_host_boundary_overlaps_the_shorter_of_the_two(
    gpu_us: float, boundary_us: float, launch_us: float | None, saving: float
) -> None:
    found = judge(
        "host-boundary",
        findings((point(64, {"moe_gemm": gpu_us}, boundary_us=boundary_us, launch_us=launch_us),)),
    )
    assert found.saving_us == pytest.approx(saving)


def test_host_boundary_needs_boundaries() -> None:
    assert (
        judge("host-boundary", findings((point(64, {"moe_gemm": 1.0}, boundary_us=None),))).saving_us is None
    )


# --- experts ----------------------------------------------------------------------------------------------------


def test_opportunistic_experts_follows_the_law() -> None:
    # 20 us per distinct expert; each of 64 tokens insists on 4 of its 6.
    found = judge("OEA", findings((point(64, {"moe_gemm": 5000.0}),), fits=(expert_fit(20.0),)))
    active = [256 * (1 - (1 - k / 256) ** 64) for k in (6, 4)]
    assert found.saving_us == pytest.approx(20.0 * (active[0] - active[1]))


def test_opportunistic_experts_counts_padding_tokens() -> None:
    found = judge("OEA", findings((point(50, {"moe_gemm": 5000.0}, bucket=64),), fits=(expert_fit(20.0),)))
    active = [256 * (1 - (1 - k / 256) ** 64) for k in (6, 4)]
    assert found.saving_us == pytest.approx(20.0 * (active[0] - active[1]))


def test_opportunistic_experts_works_without_the_models_shape() -> None:
    shapeless = fit(
        "moe_gemm", "expert_activation", {"all_experts_ms": 5.12, "active_share_of_experts": 6 / 256}
    )
    found = judge("OEA", findings((point(64, {"moe_gemm": 5000.0}),), fits=(shapeless,)))
    share = [1 - (1 - kept * 6 / 256) ** 64 for kept in (1.0, 0.667)]
    assert found.saving_us == pytest.approx(5120.0 * (share[0] - share[1]))


@pytest.mark.parametrize("fits", [(), (line_fit("moe_gemm"),)], ids=["no fit", "another law"])
def test_opportunistic_experts_needs_the_law(fits: tuple[object, ...]) -> None:
    found = judge("OEA", findings((point(64, {"moe_gemm": 5000.0}),), fits=fits))  # type: ignore[arg-type]
    assert found.saving_us is None
    assert found.needs is not None


def test_one_token_shares_with_nobody() -> None:
    assert judge("OEA", findings((point(1, {"moe_gemm": 300.0}),), fits=(expert_fit(),))).saving_us == 0.0


def test_mask_padding_experts_frees_what_padding_loads() -> None:
    found = judge(
        "mask-padding-experts",
        findings((point(50, {"moe_gemm": 5000.0}, bucket=64),), fits=(expert_fit(20.0),)),
    )
    active = [256 * (1 - (1 - 6 / 256) ** n) for n in (64, 50)]
    assert found.saving_us == pytest.approx(20.0 * (active[0] - active[1]))


def test_mask_padding_experts_averages_over_recorded_steps() -> None:
    found = judge("mask-padding-experts", bucketed({(48, 64): 30, (64, 64): 10}, {64: 6000.0}))
    active = [256 * (1 - (1 - 6 / 256) ** n) for n in (64, 48)]
    assert found.saving_us == pytest.approx(20.0 * (active[0] - active[1]) * 30 / 40)
    assert found.spans_batches


def test_mask_padding_experts_claims_nothing_without_padding() -> None:
    assert judge("mask-padding-experts", bucketed({(64, 64): 10}, {64: 6000.0})).saving_us == 0.0


def test_l2_persistence_is_bounded_by_what_fits() -> None:
    found = judge(
        "l2-persistence",
        findings((point(64, {"moe_gemm": 5000.0}),), fits=(expert_fit(),)),
        expert_bytes=13_000_000,
        moe_layers=8,
        l2_bytes=50_000_000,
    )
    active = 256 * (1 - (1 - 6 / 256) ** 64)
    assert found.saving_us == pytest.approx(5000.0 * 0.75 * 50e6 / (active * 13e6 * 8) * 0.592)
    assert found.saving_us is not None
    assert found.saving_us < 10.0


def test_l2_persistence_and_expert_parallel_say_what_they_need() -> None:
    made = findings((point(64, {"moe_gemm": 5000.0}),), fits=(expert_fit(),))
    assert judge("l2-persistence", made).needs is not None
    assert judge("expert-parallel", made).needs is not None


# --- attention heads, dense GEMMs, collectives, speculation, fallbacks --------------------------------------------


def test_native_head_width_needs_evidence() -> None:
    made = findings((point(64, {"attention_split": 230.0}),))
    assert judge("native-head-width", made).saving_us is None
    assert judge("native-head-width", made, heads_per_gpu=64, kernel_heads=64).saving_us == 0.0
    assert judge("native-head-width", made, heads_per_gpu=16, kernel_heads=64).saving_us == pytest.approx(
        230 * 0.75 / 2
    )


def dense(median_us: float, grid: tuple[int, int, int], name: str = "nvjet") -> Findings:
    total = 43 * median_us
    return findings(
        (point(8, {"dense_gemm": total}),), (kernel("dense_gemm", total, 43, batch=8, grid=grid, name=name),)
    )


def test_dense_split_k_pays_for_its_reduction() -> None:
    # 32 CTAs on 132 SMs: 4 splits fit into the same wave and leave a quarter; half of that, less 3.7 us to reduce.
    found = judge("dense-split-k", dense(20.0, (32, 1, 1)))
    assert found.saving_us == pytest.approx(43 * (0.5 * 20.0 * 3 / 4 - 3.7))
    assert judge("dense-split-k", dense(60.0, (112, 1, 1))).saving_us == 0.0
    assert judge("dense-split-k", dense(4.5, (32, 1, 1))).saving_us == 0.0
    assert judge("dense-split-k", dense(20.0, (132, 1, 1))).saving_us == 0.0
    assert judge("dense-split-k", dense(20.0, (32, 1, 1), "nvjet_splitK_TNT")).saving_us == 0.0


def reduced(gpu: object, **known: object) -> Judgement:
    rows = (kernel("all_reduce", 86 * 18.0, 86, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),)
    made = findings((point(64, {"all_reduce": 86 * 18.0, "moe_gemm": 5000.0}),), rows, gpu=gpu)  # type: ignore[arg-type]
    return judge("all-reduce-algorithm", made, **known)


def test_all_reduce_algorithm_depends_on_the_link() -> None:
    assert reduced(H200).saving_us == pytest.approx(86 * (18.0 - 10.0) / 2)
    assert reduced(PRO_6000).saving_us is None
    assert reduced(H200, interconnect="pcie").saving_us is None
    assert judge("all-reduce-algorithm", findings((point(64, {"moe_gemm": 1.0}),))).saving_us == 0.0


def test_speculation_pays_while_two_tokens_cost_less_than_they_yield() -> None:
    made = findings(
        (point(8, {"moe_gemm": 2000.0}), point(16, {"moe_gemm": 2600.0}), point(32, {"moe_gemm": 5200.0}))
    )
    found = judge("speculative-decoding", made, batch=8)
    assert found.saving_us == pytest.approx(2000.0 - 2600.0 * 1.03 / 1.85)
    assert "acceptance of 34 %" in found.evidence
    at_16 = judge("speculative-decoding", made, batch=16)
    assert at_16.saving_us == 0.0  # 5,200 x 1.03 / 1.85 = 2,895 us is dearer than 2,600
    assert judge("speculative-decoding", made, batch=32).needs is not None


@pytest.mark.parametrize(
    ("family", "name", "words"),
    [
        ("attention", "_tiled_sparse_decode_kernel", "a port"),
        ("dense_gemm", "_w8a8_block_fp8_matmul", "a port"),
        ("moe_gemm", "void marlin_moe_wna16::Marlin<1l>", "configuration"),
    ],
)
def test_fallbacks_are_recognised_by_name_family_and_capability(family: str, name: str, words: str) -> None:
    made = findings((point(64, {family: 400.0}),), (kernel(family, 400.0, name=name),), gpu=PRO_6000)
    found = judge("fallback-kernels", made)
    assert found.saving_us is None
    assert "at most 400.0 us" in found.basis
    assert words in found.evidence


def test_a_fallback_for_missing_hardware_is_no_port() -> None:
    made = findings(
        (point(64, {"moe_gemm": 4207.0}),), (kernel("moe_gemm", 4207.0, name="marlin_moe_wna16::Marlin"),)
    )
    assert "needs FP4 tensor cores, which 9.0 does not have" in judge("fallback-kernels", made).evidence


def test_the_heads_of_a_kernel_are_read_from_its_name() -> None:
    name = "void sm90::decode::sparse_fp8::kernel<sm90::decode::sparse_fp8::KernelTemplate<(ModelType)1, 64>, P>(P)"
    made = findings((point(64, {"attention_split": 230.0}),), (kernel("attention_split", 230.0, name=name),))
    assert judge("native-head-width", made, heads_per_gpu=64).saving_us == 0.0
    assert judge("native-head-width", made, heads_per_gpu=16).saving_us == pytest.approx(230 * 0.75 / 2)
    assert judge("native-head-width", made).saving_us is None


def test_a_schedule_is_kept_once_for_each_kind_of_layer() -> None:
    found = judge("helper-kernels", schedule_sweep(), attention_kinds=3)
    assert found.saving_us == pytest.approx(253.0 * 5 / 8)


def test_fused_kernels_are_no_fallbacks() -> None:
    made = findings(
        (point(64, {"attention_split": 230.0, "dense_gemm": 100.0}),),
        (
            kernel(
                "attention_split",
                230.0,
                name="sm90::decode::sparse_fp8::flash_fwd_splitkv_mla_fp8_sparse_kernel",
            ),
            kernel("dense_gemm", 100.0, name="deep_gemm::sm90_fp8_gemm_1d2d_impl"),
        ),
    )
    assert judge("fallback-kernels", made).saving_us == 0.0


def test_every_evaluator_of_the_catalogue_answers_on_a_bare_point() -> None:
    made = findings((point(1, {"other": 10.0}, boundary_us=None),))
    for spec in load_catalogue():
        if spec.evaluator is not None:
            found = evaluator(spec)(views(made, Known())[0], spec)
            assert (found.saving_us is None) == (found.needs is not None)
            assert found.basis


def test_the_tiles_of_sparse_mla_come_from_the_models_shape() -> None:
    # Scopes of 128 and 512 tokens in tiles of 32: 4 + 16 tiles, each scope starting a tile of its own.
    made = split_sweep()
    kernels = tuple(
        structs.replace(k, name="_mma_sparse_decode_split_kernel") for k in made.traces[0].kernels
    )
    sparse = structs.replace(made, traces=(structs.replace(made.traces[0], kernels=kernels),))
    found = judge("wave-aware-splits", sparse, attended_scopes=(128, 512))
    assert "20 tiles of 32 tokens a request" in found.evidence
    best = best_split(128, 188, 1, now=2, largest=16, tiles=20)
    assert found.saving_us == pytest.approx(1000.0 * (1 - best.ratio))
    assert (
        "16 tiles a request assumed" in judge("wave-aware-splits", made, attended_scopes=(128, 512)).evidence
    )


def test_an_all_reduce_that_is_not_latency_is_not_judged() -> None:
    rows = (kernel("all_reduce", 800.0, 4, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),)
    found = judge(
        "all-reduce-algorithm", findings((point(64, {"all_reduce": 800.0, "moe_gemm": 9.0}),), rows)
    )
    assert found.saving_us is None
    assert found.needs is not None
    assert "message sizes" in found.needs


def test_buckets_of_speculating_steps_count_tokens_and_are_no_padding() -> None:
    made = bucketed({(32, 64): 10}, {32: 4000.0, 64: 6000.0})
    steps = tuple(structs.replace(s, batch_size=32, generation_tokens=64) for s in made.traces[0].steps)
    points = tuple(
        structs.replace(p, batch_size=32, bucket=64, verified_tokens_per_step=64.0)
        for p in made.operating_points
    )
    told = structs.replace(
        made, operating_points=points, traces=(structs.replace(made.traces[0], steps=steps, decode=()),)
    )
    assert judge("finer-buckets", told).saving_us is None
    assert judge("mask-padding-experts", told).saving_us is None
    speculation = judge("speculative-decoding", told)
    assert speculation.saving_us == 0.0
    assert "64 tokens already" in speculation.basis


def test_the_shipped_planner_speaks_where_shape_and_gpu_are_known() -> None:
    made = split_sweep()
    kernels = tuple(
        structs.replace(k, name="_mma_sparse_decode_split_kernel") for k in made.traces[0].kernels
    )
    sparse = structs.replace(made, traces=(structs.replace(made.traces[0], kernels=kernels),))
    found = judge("wave-aware-splits", sparse, attended_scopes=(128, 512), heads_per_gpu=16)
    assert "the shipped kernel's planner would launch" in found.evidence
    assert "640 tokens" in found.evidence
