"""Model shapes and roofline floors, against sums written out here and against the recorded sweep."""

import dataclasses
import math
from functools import cache
from pathlib import Path

import pytest

from support.recorded import CONTEXT4K, SWEEP
from wavewise.ceilings import (
    StepSetting,
    ceilings,
    cut_to_layers,
    floors,
    load_shape,
    recognise,
    shipped,
    what_ifs,
)
from wavewise.errors import InputError, UsageError
from wavewise.findings import KernelRow
from wavewise.hardware import GpuSpec, catalogue

# NVIDIA's H200 data sheet: 4.8 TB/s; dense BF16 989 and FP8 1,979 TFLOP/s.
H200 = GpuSpec(
    id="h200", name="NVIDIA H200", vendor="nvidia", memory_bytes_per_s=4.8e12,
    tensor_flops={"bf16": 989e12, "fp8": 1979e12},
)  # fmt: skip

TINY = """
id = "tiny"
name = "Tiny"
hidden = 1000
layer_count = 3
first_layers = ["near"]
repeated_layers = ["all"]

[experts]
count = 8
active = 2
intermediate = 100
bits_per_weight = 8
compute = ["bf16"]
dense_layers = 1

[attention]
heads = 10
kv_heads = 2
query_dim = 50
value_dim = 30
kv_bytes_per_token = 320

[attention.kinds.near]
window = 64

[attention.kinds.all]

[[gemm]]
name = "in"
inputs = 1000
outputs = 500
bits = 16
compute = ["bf16"]

[[gemm]]
name = "only near"
inputs = 100
outputs = 100
kinds = ["near"]
"""

SLOW = GpuSpec(id="slow", name="Slow", vendor="x", memory_bytes_per_s=1e9, tensor_flops={"bf16": 1e12})


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    return file


def test_floors_of_a_tiny_model_by_hand(tiny: Path) -> None:
    shape = load_shape(str(tiny))
    assert shape.layers == ("near", "all", "all")
    found = floors(shape, SLOW, StepSetting(batch_size=4, bucket=8, context_length=100))
    # Dense: 3 layers x 500,000 weights x 2 bytes, one layer 10,000 x 2; memory-bound at 1 GB/s.
    assert found["dense_gemm"].bytes == 3 * 500_000 * 2 + 10_000 * 2
    assert found["dense_gemm"].flops == 2 * (3 * 500_000 + 10_000) * 8
    assert found["dense_gemm"].ms == pytest.approx(3.02)
    # MoE: the last two layers, 8 (1 - (3/4)^4) distinct experts of 3 x 1000 x 100 bytes.
    distinct = 8 * (1 - 0.75**4)
    assert found["moe_gemm"].bytes == pytest.approx(2 * distinct * 300_000)
    assert found["moe_gemm"].flops == 2 * 2 * 300_000 * 4 * 2
    # Attention: 4 requests x (64 + 100 + 100) keys x 320 bytes; 10 heads x (50 + 30) multiply-adds each.
    assert found["attention"].bytes == 4 * 264 * 320
    assert found["attention"].flops == 2 * 4 * 264 * 10 * 80
    assert found["attention"].ms == pytest.approx(4 * 264 * 320 / 1e9 * 1e3)
    assert found["attention"].bound == "memory"
    assert "indexer" not in found


def test_compute_can_bind(tiny: Path) -> None:
    shape = load_shape(str(tiny))
    weak = dataclasses.replace(SLOW, tensor_flops={"bf16": 1e6})
    found = floors(shape, weak, StepSetting(batch_size=4, bucket=8, context_length=100))
    assert found["attention"].bound == "compute"
    assert found["attention"].ms == pytest.approx(2 * 4 * 264 * 10 * 80 / 1e6 * 1e3)


def test_parallel_layers_are_shared_but_a_single_kv_head_is_not(tiny: Path) -> None:
    shape = load_shape(str(tiny))
    one = floors(shape, SLOW, StepSetting(batch_size=4, bucket=8, context_length=100))
    four = floors(shape, SLOW, StepSetting(batch_size=4, bucket=8, context_length=100, tensor_parallel=4))
    assert four["dense_gemm"].bytes == one["dense_gemm"].bytes / 4
    assert four["moe_gemm"].bytes == pytest.approx(one["moe_gemm"].bytes / 4)
    assert four["attention"].bytes == one["attention"].bytes / 2  # two key-value heads
    assert four["attention"].flops == one["attention"].flops / 4


def test_what_is_not_known_gives_no_floor(tiny: Path) -> None:
    shape = load_shape(str(tiny))
    setting = StepSetting(batch_size=4, bucket=8, context_length=None)
    assert floors(shape, SLOW, setting)["attention"].reason is not None
    assert floors(shape, SLOW, setting)["attention"].ms is None
    assert floors(shape, SLOW, setting)["moe_gemm"].ms is not None
    for refused in (floors(None, SLOW, setting), floors(shape, None, setting)):
        assert all(floor.ms is None and floor.reason for floor in refused.values())


def test_flash_shape_by_its_published_dimensions() -> None:
    """Weights that one decode step at batch 1 reads, summed from the model's dimensions a second way."""
    shape = load_shape("deepseek-v4-flash")
    assert shape.layers.count("window") == 2
    assert shape.layers[2:6] == ("sparse", "heavy", "sparse", "heavy")
    assert (shape.layers.count("sparse"), shape.layers.count("heavy")) == (21, 20)
    assert shape.expert_shape is not None
    assert (shape.expert_shape.experts, shape.expert_shape.active) == (256, 6)
    h, q, d, heads = 4096, 1024, 512, 64
    per_layer = h * q + q * heads * d + h * d + (heads * d) * 1024 + 8 * 1024 * h + 3 * h * 2048 + 2 * h * 256
    sparse = 2 * (2 * h * 2 * d + 2 * h * 2 * 128) + q * 64 * 128
    heavy = 2 * (2 * h * d)
    found = floors(shape, H200, StepSetting(batch_size=1, bucket=1, context_length=4096))
    assert found["dense_gemm"].bytes == 43 * per_layer + 21 * sparse + 20 * heavy
    assert found["moe_gemm"].bytes == pytest.approx(43 * 6 * 3 * h * 2048 * 4.25 / 8)
    keys = 2 * 128 + 21 * (128 + 512) + 20 * (128 + 32)
    assert found["attention"].bytes == keys * 584
    assert found["indexer"].bytes == 21 * 1024 * 132


@pytest.mark.parametrize(
    ("batch", "table_us"), [(8, 0.94), (16, 1.9), (32, 3.8), (48, 5.6), (64, 7.5), (80, 9.4), (128, 15.0)]
)
def test_attention_floor_of_one_call_stays_under_a_looser_one(batch: int, table_us: float) -> None:
    """One call over 128 + 512 keys at 4.27 TB/s and 790 TFLOP/s, as computed for the kernel study, which also
    counts queries and outputs: ours must lie below, but not by more than those bytes."""
    shape = load_shape("deepseek-v4-flash")
    one_layer = dataclasses.replace(H200, memory_bytes_per_s=4.27e12, tensor_flops={"bf16": 790e12})
    import msgspec

    one = msgspec.structs.replace(shape, layer_count=1, first_layers=("sparse",))
    found = floors(one, one_layer, StepSetting(batch_size=batch, bucket=batch, context_length=8192))
    assert 0.7 * table_us < found["attention"].ms * 1e3 <= table_us * 1.01


def test_distinct_experts_by_simulation() -> None:
    """Uniform routing of 64 tokens: 256 (1 - (1 - 6/256)^64) distinct experts on average."""
    import numpy as np

    from wavewise.ceilings.roofline import expected_distinct

    rng = np.random.default_rng(0)
    seen = [len({int(e) for _ in range(64) for e in rng.choice(256, 6, replace=False)}) for _ in range(200)]
    # 200 draws with a standard deviation of about 5 experts: four standard errors.
    assert expected_distinct(256, 6, 64) == pytest.approx(np.mean(seen), abs=1.5)
    assert expected_distinct(8, 8, 3) == 8.0


def test_unknown_and_broken_shapes_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean deepseek-v4-flash"):
        load_shape("deepseek-v4-flsh")
    with pytest.raises(InputError, match="cannot be read"):
        load_shape(str(tmp_path / "none.toml"))
    for text in ("id = 3", TINY.replace("hidden", "hiden"), TINY.replace("active = 2", "active = 9"), "[["):
        file = tmp_path / "broken.toml"
        file.write_text(text)
        with pytest.raises(UsageError, match=r"broken\.toml"):
            load_shape(str(file))
    file.write_text(TINY.replace("[attention.kinds.all]", "[attention.kinds.far]"))
    with pytest.raises(UsageError, match=r"attention\.kinds\.all"):
        load_shape(str(file))
    file.write_text(TINY.replace("layer_count = 3", 'layer_count = 3\nrecognise = ["("]'))
    with pytest.raises(UsageError, match=r"broken\.toml"):
        load_shape(str(file))
    assert "deepseek-v4-flash" in shipped()


def kernel(name: str, launches: float, batch: int = 8) -> KernelRow:
    return KernelRow(
        name=name, family="x", batch_size=batch, launches_per_step=launches, median_us=1, sum_us_per_step=1,
        grid=None, block=None, registers_per_thread=None, shared_memory_bytes=None,
    )  # fmt: skip


HC = "deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u>"
OPS = "vllm::deepseek_v4_fused_ops::fused"
LAYER = "sm90::decode::flash_fwd_splitkv_mla_fp8_sparse_kernel<x>"


def test_recognition_needs_every_pattern_and_counts_layers() -> None:
    found = recognise([[kernel(HC, 43), kernel(OPS, 43), kernel(LAYER, 43)]])
    assert found is not None
    assert (found.layer_count, found.layers_counted) == (43, True)
    cut = recognise([[kernel(HC, 8), kernel(OPS, 8), kernel(LAYER, 8), kernel(LAYER, 8, 16)]])
    assert cut is not None
    assert cut.layers == ("window", "window", "sparse", "heavy", "sparse", "heavy", "sparse", "heavy")
    assert "8 of 43 layers" in cut.origin
    assert (
        recognise([[kernel(OPS, 43), kernel(LAYER, 43)]]) is None
    )  # the larger model has another hidden size
    assert recognise([[kernel(HC.replace("16384u", "28672u"), 61), kernel(OPS, 61)]]) is None
    assert recognise([]) is None
    again = recognise([[kernel(HC, 8), kernel(OPS, 8), kernel(LAYER, 3), kernel(LAYER, 5)]] * 2)
    assert again is not None  # two recordings of one batch size have eight layers each, not sixteen
    assert again.layer_count == 8


def test_a_named_shape_is_cut_to_the_layers_that_ran() -> None:
    named = load_shape("deepseek-v4-flash")
    assert cut_to_layers(named, [[kernel(LAYER, 8)]]).layer_count == 8
    assert cut_to_layers(named, [[kernel("other", 8)]]).layer_count == 43
    # Different counts at different batch sizes, or more than the model has, tell nothing.
    assert cut_to_layers(named, [[kernel(LAYER, 8), kernel(LAYER, 9, 16)]]).layer_count == 43
    assert cut_to_layers(named, [[kernel(LAYER, 86)]]).layer_count == 43


def test_uncounted_layers_keep_the_experts_but_give_no_floor() -> None:
    found = recognise([[kernel(HC, 43), kernel(OPS, 43)]])
    assert found is not None
    assert not found.layers_counted
    assert found.expert_shape is not None
    refused = floors(found, H200, StepSetting(batch_size=1, bucket=1, context_length=4096))
    assert all(floor.ms is None and "layer count" in (floor.reason or "") for floor in refused.values())


recorded = pytest.mark.skipif(not SWEEP.exists(), reason="the recorded sweep is not in this checkout")


@cache
def sweep():
    from wavewise.analysis import Settings, analyze

    return analyze([CONTEXT4K], settings=Settings(labels={CONTEXT4K: {"context": "4k"}}))


@recorded
def test_recorded_floors_lie_below_what_was_measured_and_close_enough_to_mean_something() -> None:
    found = sweep()
    shape = recognise(trace.kernels for trace in found.traces)
    assert shape is not None
    assert shape.layer_count == 8
    rows = [row for row in ceilings(found.operating_points, shape, H200) if row.basis == "kernel_sum"]
    floored = {(row.family, row.batch_size): row for row in rows if row.floor_ms is not None}
    for size in (1, 8, 16, 32, 64, 80):
        for family in ("moe_gemm", "dense_gemm", "attention_split", "indexer"):
            row = floored[family, size]
            assert 0.0 < row.floor_ms < row.family_ms
            assert row.speedup_if_at_floor < row.speedup_if_free
        share = floored["moe_gemm", size].floor_ms / floored["moe_gemm", size].family_ms
        assert 0.3 < share < 0.8
        assert floored["moe_gemm", size].floor_bound == "memory"
    asked = {w.name: w for w in what_ifs(found.operating_points[-1:], shape, H200) if w.basis == "kernel_sum"}
    assert asked["every family with a roofline floor at it"].speedup > 1.4


@recorded
def test_a_floor_above_the_measured_time_is_refuted_not_printed() -> None:
    found = sweep()
    whole = load_shape("deepseek-v4-flash")  # 43 layers, where 8 ran
    rows = [row for row in ceilings(found.operating_points, whole, H200) if row.basis == "kernel_sum"]
    moe = [row for row in rows if row.family == "moe_gemm"]
    assert all(row.floor_ms is None for row in moe)
    assert all("above the measured time" in (row.floor_reason or "") for row in moe)
    assert all(row.speedup_if_at_floor is None for row in moe)


@recorded
def test_all_reduce_without_a_width_gives_no_floor() -> None:
    from msgspec.structs import replace

    point = sweep().operating_points[0]
    shape = load_shape("deepseek-v4-flash")
    families = (*point.families, replace(point.families[0], family="all_reduce"))
    several = replace(point, families=families)
    row = next(r for r in ceilings([several], shape, H200) if r.family == "moe_gemm")
    assert row.floor_ms is None
    assert "--tensor-parallel" in (row.floor_reason or "")
    row = next(r for r in ceilings([several], shape, H200, tensor_parallel=8) if r.family == "moe_gemm")
    assert row.floor_ms is not None


def test_the_catalogues_rates_are_used_where_it_has_them() -> None:
    spec = catalogue().find("h200")
    found = floors(
        load_shape("deepseek-v4-flash"), spec, StepSetting(batch_size=1, bucket=1, context_length=4096)
    )
    if spec.memory_bytes_per_s is None:
        assert "bandwidth" in (found["moe_gemm"].reason or "")
    else:
        assert found["moe_gemm"].ms == pytest.approx(found["moe_gemm"].bytes / spec.memory_bytes_per_s * 1e3)
    assert math.isfinite(spec.sm_count or 0)
