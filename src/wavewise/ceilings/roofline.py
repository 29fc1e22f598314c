"""Roofline floors: the least time a family's step can take, by bytes from memory and tensor operations.

A floor is a lower bound, so everything uncertain is left out of it: activations (they may stay in L2), the
output projection of the vocabulary (it may run outside the replay), launch latency. Peak rates are the data
sheet's; no kernel reaches them.
Williams, Waterman & Patterson, "Roofline", CACM 52(4), 2009.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from wavewise.ceilings.shapes import ModelShape
from wavewise.hardware import GpuSpec

MS_PER_S = 1e3


@dataclass(frozen=True)
class Floor:
    """A family's floor per step, or why there is none.

    Attributes:
        bound: "memory" or "compute", whichever takes longer over the step.
    """

    ms: float | None = None
    bytes: float | None = None
    flops: float | None = None
    bound: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class StepSetting:
    """What a floor depends on besides the model and the GPU.

    Attributes:
        batch_size: requests, for attention.
        bucket: tokens that the replay computes, padding included, for the GEMMs.
        context_length: tokens per request, None where not known.
        tensor_parallel: GPUs that share every layer.
        expert_parallel: GPUs that share the experts; 1 where tensor parallelism cuts each expert instead.
    """

    batch_size: int
    bucket: int
    context_length: int | None
    tensor_parallel: int = 1
    expert_parallel: int = 1


Work = tuple[float, float, tuple[str, ...]]
"""Bytes, operations and the precisions that they may run in, of one kernel's worth of work."""


def expected_distinct(experts: int, active: int, tokens: int) -> float:
    """Distinct experts that `tokens` tokens activate under uniform routing: N (1 - (1 - k/N)^tokens)."""
    if active >= experts:
        return float(experts)
    return -experts * math.expm1(tokens * math.log1p(-active / experts))


def floors(shape: ModelShape | None, gpu: GpuSpec | None, setting: StepSetting) -> dict[str, Floor]:
    """Floors by family: attention, indexer, MoE and dense GEMM, as far as the shape describes them.

    "attention" stands for the kernel that reads the keys, split or not.
    """
    if shape is None:
        return _refused("the model's shape is not known; name one with --model")
    if gpu is None or gpu.memory_bytes_per_s is None:
        return _refused("the GPU's memory bandwidth is not known")
    if not shape.layers_counted:
        return _refused("the model's layer count cannot be told from the trace; name the model with --model")
    rates = (gpu.memory_bytes_per_s, gpu)
    found: dict[str, Floor] = {}
    if shape.gemm:
        found["dense_gemm"] = _floor(_dense(shape, setting), *rates)
    if shape.experts is not None:
        found["moe_gemm"] = _floor(_moe(shape, setting), *rates)
    by_context: list[tuple[str, Callable[[ModelShape, StepSetting, int], list[Work]], bool]] = [
        ("attention", _attention, shape.attention is not None),
        ("indexer", _indexer, shape.indexer is not None),
    ]
    for family, work, described in by_context:
        if not described:
            continue
        if setting.context_length is None:
            found[family] = Floor(reason="the context length is not known; give it with --label context=4k")
        else:
            found[family] = _floor(work(shape, setting, setting.context_length), *rates)
    return found


def _refused(reason: str) -> dict[str, Floor]:
    return {family: Floor(reason=reason) for family in ("attention", "indexer", "moe_gemm", "dense_gemm")}


def _floor(work: list[Work], bytes_per_s: float, gpu: GpuSpec) -> Floor:
    """Each piece takes the longer of its memory and compute time; pieces follow one another."""
    total = memory = compute = 0.0
    for size, operations, precisions in work:
        reading = size / bytes_per_s
        rate = max((gpu.tensor_flops.get(p, 0.0) for p in precisions), default=0.0)
        computing = operations / rate if rate > 0.0 else 0.0
        total += max(reading, computing)
        memory += reading
        compute += computing
    return Floor(
        ms=total * MS_PER_S,
        bytes=sum(size for size, _, _ in work),
        flops=sum(operations for _, operations, _ in work),
        bound="memory" if memory >= compute else "compute",
    )


def _dense(shape: ModelShape, setting: StepSetting) -> list[Work]:
    """Every projection's weights once, and its products for the whole bucket."""
    work: list[Work] = []
    for kind in shape.layers:
        for gemm in shape.gemm:
            if gemm.kinds and kind not in gemm.kinds:
                continue
            weights = gemm.inputs * gemm.outputs * gemm.groups / setting.tensor_parallel
            work.append((weights * gemm.bits / 8, 2.0 * weights * setting.bucket, gemm.compute))
    return work


def _moe(shape: ModelShape, setting: StepSetting) -> list[Work]:
    """Each distinct expert's weights once.

    Distinct experts are those of the requests, not of the bucket: an engine may mask padding tokens.
    """
    experts = shape.experts
    assert experts is not None
    weights = 3 * shape.hidden * experts.intermediate / (setting.tensor_parallel * setting.expert_parallel)
    tokens = setting.batch_size * experts.active
    uniform = expected_distinct(experts.count, experts.active, setting.batch_size)
    work: list[Work] = []
    for layer in range(experts.dense_layers, len(shape.layers)):
        distinct = float(experts.active) if layer < experts.hash_routed_layers else uniform
        size = distinct * weights * experts.bits_per_weight / 8
        work.append((size, 2.0 * weights * tokens, experts.compute))
    return work


def _attention(shape: ModelShape, setting: StepSetting, context: int) -> list[Work]:
    """Each request's attended keys once for all its query heads."""
    attention = shape.attention
    assert attention is not None
    heads = attention.heads / setting.tensor_parallel
    cached = attention.kv_bytes_per_token / min(setting.tensor_parallel, attention.kv_heads)
    work: list[Work] = []
    for kind in shape.layers:
        tokens = setting.batch_size * attention.kinds[kind].tokens(context)
        operations = 2.0 * tokens * heads * (attention.query_dim + attention.value_dim)
        work.append((tokens * cached, operations, attention.compute))
    return work


def _indexer(shape: ModelShape, setting: StepSetting, context: int) -> list[Work]:
    """Each request's compressed index keys once for all index heads."""
    indexer = shape.indexer
    assert indexer is not None
    keys = setting.batch_size * float(context // indexer.ratio)
    operations = 2.0 * keys * indexer.heads * indexer.dim / setting.tensor_parallel
    return [
        (keys * indexer.bytes_per_key, operations, indexer.compute)
        for kind in shape.layers
        if kind in indexer.kinds
    ]
