"""Plans: the split covers every tile once, the choice is the best there is, the model behaves."""

import itertools
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavewise.attention.configurations import (
    COMPUTE_CAPABILITIES,
    MEASURED_COMPILER,
    SUPPORTED_HEADS,
    configurations,
    footprints_for,
    shipped_footprints,
)
from wavewise.attention.plan import (
    MAX_SPLITS,
    DecodeShape,
    plan_decode,
    predict_us,
    shipped_coefficients,
    split_range,
    tiles_of,
)
from wavewise.errors import InputError, UsageError
from wavewise.hardware import catalogue
from wavewise.occupancy import residency, waves

GPUS = {"9.0": "h200", "10.0": "b200", "12.0": "rtx-pro-6000"}


def gpu(name="rtx-pro-6000"):
    return catalogue().find(name)


@given(tiles=st.integers(0, 500), splits=st.integers(1, 64))
def test_every_tile_is_attended_exactly_once(tiles, splits):
    walked = [tile for split in range(splits) for tile in split_range(tiles, splits, split)]
    assert walked == list(range(tiles))
    sizes = [len(split_range(tiles, splits, split)) for split in range(splits)]
    assert max(sizes) == math.ceil(tiles / splits)
    assert max(sizes) - min(sizes) <= 1


@given(
    window=st.integers(0, 300),
    extra=st.integers(0, 1100),
    block=st.sampled_from([16, 32, 64]),
    splits=st.integers(1, 20),
)
def test_every_index_is_attended_exactly_once(window, extra, block, splits):
    """Tiles to indices, as the kernels count them: window tiles first, a scope never shares a tile."""
    if window + extra == 0:
        return
    shape = DecodeShape(1, 64, 300, 1100)
    tiles = int(tiles_of(shape, [(window, extra)], block)[0])
    window_tiles = math.ceil(window / block)
    seen = []
    for split in range(splits):
        for tile in split_range(tiles, splits, split):
            scope, place, length = (
                ("w", tile, window) if tile < window_tiles else ("e", tile - window_tiles, extra)
            )
            seen += [(scope, t) for t in range(place * block, min((place + 1) * block, length))]
    expected = [("w", t) for t in range(window)] + [("e", t) for t in range(extra)]
    assert seen == expected


@given(
    scores=st.lists(st.floats(-30, 30), min_size=1, max_size=60),
    splits=st.integers(1, 8),
    sink=st.floats(-20, 20),
)
def test_partials_merge_to_the_whole(scores, splits, sink):
    """The combine's formula over splits, one value dimension, against the softmax over all with a sink."""
    values = [math.sin(i) for i in range(len(scores))]
    partials = []
    for split in range(splits):
        mine = split_range(len(scores), splits, split)
        if not mine:
            partials.append((-math.inf, math.nan))
            continue
        top = max(scores[i] for i in mine)
        total = sum(math.exp(scores[i] - top) for i in mine)
        partials.append(
            (top + math.log(total), sum(math.exp(scores[i] - top) * values[i] for i in mine) / total)
        )
    top = max(lse for lse, _ in partials)
    total = sum(math.exp(lse - top) for lse, _ in partials)
    merged = sum(math.exp(lse - top) * value for lse, value in partials if lse > -math.inf) / total
    lse = top + math.log(total)
    merged /= 1 + math.exp(sink - lse)
    everything = sum(math.exp(s) for s in scores)
    expected = sum(math.exp(s) * v for s, v in zip(scores, values, strict=True)) / (
        everything + math.exp(sink)
    )
    assert lse == pytest.approx(math.log(everything), abs=1e-9)
    assert merged == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("heads", [64, 16])
@pytest.mark.parametrize("name", ["rtx-pro-6000", "h200"])
def test_the_plan_is_the_best_by_brute_force_for_every_batch(name, heads):
    """Issue: within 5 % of the best over all split counts and tiles, for every B from 1 to 128."""
    spec = gpu(name)
    figures = shipped_coefficients()
    candidates = [
        (f, residency(spec, f.launch((1, 1, 1))).ctas_per_sm)
        for f in footprints_for(spec)
        if heads % f.config.block_h == 0 and not f.spill_bytes
    ]
    for batch in range(1, 129):
        shape = DecodeShape(batch, heads, 128, 512)
        best = math.inf
        for footprint, resident in candidates:
            tiles = tiles_of(shape, None, footprint.config.block_t)
            for splits in range(1, min(MAX_SPLITS, int(tiles.max())) + 1):
                total = predict_us(shape, tiles, splits, footprint.config, spec, resident, figures)[0]
                best = min(best, total)
        plan = plan_decode(shape, None, spec)
        assert plan.predicted_us <= 1.05 * best
        assert plan.num_splits == plan.grid[1]


def test_waves_are_those_of_occupancy():
    for batch, heads in itertools.product((1, 7, 64, 128), (8, 64)):
        plan = plan_decode(DecodeShape(batch, heads, 128, 512), None, gpu())
        ctas = math.prod(plan.grid)
        laid = waves(ctas, 188, plan.ctas_per_sm)
        assert (plan.waves, plan.wave_efficiency) == (laid.waves, laid.wave_efficiency)
        assert ctas == batch * (heads // plan.config.block_h) * plan.num_splits


def test_sm_120_has_two_ctas_per_sm_without_spills():
    """Issue: at least one shipped configuration, for each audited Triton."""
    for compiler in {f.compiler for f in shipped_footprints()}:
        fine = [
            f.config.id
            for f in footprints_for(gpu(), compiler)
            if not f.spill_bytes and (residency(gpu(), f.launch((1, 1, 1))).ctas_per_sm or 0) >= 2
        ]
        assert fine, compiler


def test_every_shipped_configuration_has_a_footprint_and_a_time_model():
    for capability in COMPUTE_CAPABILITIES:
        shipped = [f.config for f in footprints_for(gpu(GPUS[capability]))]
        assert tuple(shipped) == configurations(capability)
        for config in shipped:
            assert shipped_coefficients().model(config).tile_latency_us > 0
        for heads in SUPPORTED_HEADS:
            assert any(config.serves(heads) for config in shipped)
    measured = [f for f in shipped_footprints() if f.compiler == MEASURED_COMPILER]
    assert not any(f.wgmma_serialised or f.spill_bytes for f in measured)


@given(
    batch=st.integers(1, 200),
    heads=st.sampled_from(SUPPORTED_HEADS),
    window=st.integers(0, 300),
    extra=st.integers(0, 2048),
    queries=st.integers(1, 4),
    name=st.sampled_from(["h200", "b200", "rtx-pro-6000", "rtx-5090"]),
)
@settings(max_examples=60)
def test_any_shape_has_a_plan(batch, heads, window, extra, queries, name):
    if window + extra == 0:
        return
    shape = DecodeShape(batch, heads, window, extra, queries)
    plan = plan_decode(shape, None, gpu(name))
    config = plan.config
    most = math.ceil(window / config.block_t) + math.ceil(extra / config.block_t)
    assert 1 <= plan.num_splits <= min(most, MAX_SPLITS)
    assert plan.grid == (heads // config.block_h, plan.num_splits, batch * queries)
    assert plan.predicted_us == pytest.approx(
        plan.body_us + plan.combine_us + shipped_coefficients().model(config).launch_us
    )
    assert (plan.combine_us > 0) or plan.num_splits == 1
    assert config.id in str(plan)


def test_ragged_lengths_are_planned_for_and_never_cost_more_than_the_bounds():
    shape = DecodeShape(32, 64, 128, 512)
    full = plan_decode(shape, None, gpu())
    assert plan_decode(shape, [(128, 512)] * 32, gpu()) == full
    one_long = [(128, 512)] + [(16, 0)] * 31
    ragged = plan_decode(shape, one_long, gpu())
    assert ragged.predicted_us < full.predicted_us
    assert ragged.num_splits > full.num_splits  # one long request among short ones wants many splits
    assert plan_decode(shape, [(999, 9999)] * 32, gpu()) == full  # cut to the bounds
    empty = plan_decode(shape, [(0, 0)] * 32, gpu())
    assert empty.num_splits == 1
    single = DecodeShape(3, 64, 512)
    assert plan_decode(single, [512, 512, 512], gpu()) == plan_decode(single, None, gpu())


def test_predicted_time_grows_with_the_batch():
    for name in ("h200", "rtx-pro-6000"):
        times = [
            plan_decode(DecodeShape(b, 64, 128, 512), None, gpu(name)).predicted_us for b in range(1, 257)
        ]
        assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(times))


def test_one_footprint_or_a_fixed_split_count_can_be_given():
    footprint = footprints_for(gpu())[2]
    plan = plan_decode(DecodeShape(8, 64, 128, 512), None, gpu(), footprint, num_splits=3)
    assert plan.config == footprint.config
    assert plan.num_splits == 3
    with pytest.raises(UsageError, match="41 splits: between 1 and"):
        plan_decode(DecodeShape(8, 64, 128, 512), None, gpu(), footprint, num_splits=41)


def test_what_cannot_be_planned_says_why():
    with pytest.raises(UsageError, match="24 query heads: supported are 8, 16, 32, 64, 128"):
        DecodeShape(1, 24, 128)
    with pytest.raises(UsageError, match="no key"):
        DecodeShape(1, 64, 0)
    with pytest.raises(UsageError, match="batch 0"):
        DecodeShape(0, 64, 128)
    shape = DecodeShape(4, 64, 128)
    with pytest.raises(UsageError, match="2 lengths for a batch of 4"):
        plan_decode(shape, [1, 2], gpu())
    with pytest.raises(InputError, match=r"no audited attention kernel for compute capability 8\.0"):
        plan_decode(shape, None, gpu("a100-80gb"))
    with pytest.raises(InputError, match="SM count"):
        plan_decode(shape, None, replace(gpu(), sm_count=None))
    tiny = replace(gpu(), shared_memory_per_cta=8192, shared_memory_per_sm=16384)
    with pytest.raises(InputError, match="fits on an SM"):
        plan_decode(shape, None, tiny)


def test_planning_imports_neither_torch_nor_triton():
    code = (
        "import sys; from wavewise.attention import plan_decode, DecodeShape; "
        "from wavewise.hardware import catalogue; "
        "print(plan_decode(DecodeShape(8, 64, 128, 512), None, catalogue().find('h200'))); "
        "assert not {'torch', 'triton'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CTAs/SM" in done.stdout
