"""Measures the decode kernels on a GPU: correctness first, then graph replays over index sets that rotate.

Peers run in the same process where they can be imported: FlashMLA (`vllm.third_party.flashmla`) and SGLang's
tiled Triton kernel (`sglang_tiled`).
"""

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from wavewise._version import __version__
from wavewise.attention.configurations import KernelConfig, configurations
from wavewise.attention.decode import plan_for, sparse_mla_decode
from wavewise.attention.launch import Problem, Scope, launch_baseline
from wavewise.attention.layout import DATA_BYTES, TOKEN_BYTES, page_stride_bytes
from wavewise.attention.plan import DecodeShape
from wavewise.attention.reference import reference_decode
from wavewise.bench.attention_cases import CASES, GATE, Inputs, Verdict, build, judge
from wavewise.errors import InputError

BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 256)
HEADS = (64, 16, 128)
SCOPES = ((128, 512), (512,))
CHECKED_REQUESTS = 32
"""A timed call is checked on its first so many requests: the fp64 reference is slow."""

_SETS = 8
_SAMPLES = 20
_WINDOW_PAGE, _EXTRA_PAGE = 256, 64


@dataclass(frozen=True, slots=True)
class Settings:
    """What to measure.

    Attributes:
        pool_tokens: tokens of each cache; the default's 0.9 GB are many times any L2.
        sweep: every shipped configuration at several split counts instead of the plan's choice alone.
        peers: FlashMLA, SGLang's kernel and the baseline too, where they are there.
    """

    batches: Sequence[int] = BATCHES
    heads: Sequence[int] = HEADS
    scopes: Sequence[tuple[int, ...]] = SCOPES
    pool_tokens: int = 800_000
    sweep: bool = False
    peers: bool = True


Row = dict[str, Any]
Call = Callable[[Inputs], tuple[torch.Tensor, torch.Tensor]]


def check(
    device: torch.device | str, heads: Sequence[int] = (8, 16, 32, 64, 128), part: int = 0, parts: int = 1
) -> list[Row]:
    """Every case at every head count, for each shipped configuration unsplit and split, kernel before reference.

    Args:
        device: the GPU.
        heads: head counts.
        part: with `parts`, only every so manieth configuration (to compile in several processes at once).
        parts: how many parts there are.

    Returns:
        One row per run: case, heads, config, num_splits, relative_error, lse_error, faults.
    """
    capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
    rows: list[Row] = []
    for count in heads:
        for spec in CASES:
            inputs = build(spec, count, device)
            answers = [
                (config, splits, _run(inputs, config, splits))
                for config in configurations(capability)[part::parts]
                if config.serves(count)
                for splits in (1, 4)
            ]
            expected = _reference(inputs)
            for config, splits, (out, lse) in answers:
                verdict = judge(out, lse, *expected)
                rows.append(
                    {
                        "case": spec.name,
                        "heads": count,
                        "config": config.id,
                        "num_splits": splits,
                        "relative_error": verdict.relative_error,
                        "lse_error": verdict.lse_error,
                        "faults": list(verdict.faults),
                    }
                )
    return rows


def _run(
    inputs: Inputs, config: KernelConfig | None = None, splits: int | None = None, out: Any = None
) -> Any:
    if out is None:
        out = torch.full(tuple(inputs.q.shape), math.nan, dtype=torch.bfloat16, device=inputs.q.device)
    return sparse_mla_decode(
        inputs.q,
        inputs.k_cache,
        inputs.indices,
        topk_length=inputs.topk_length,
        attn_sink=inputs.attn_sink,
        extra_k_cache=inputs.extra_k_cache,
        extra_indices=inputs.extra_indices,
        extra_topk_length=inputs.extra_topk_length,
        config=config,
        num_splits=splits,
        out=out,
    )


def _reference(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    return reference_decode(
        inputs.q,
        inputs.k_cache,
        inputs.indices,
        inputs.topk_length,
        inputs.attn_sink,
        None,
        inputs.extra_k_cache,
        inputs.extra_indices,
        inputs.extra_topk_length,
    )


def random_cache(tokens: int, page_size: int, device: torch.device | str, seed: int) -> torch.Tensor:
    """A footer cache of random bytes that are all numbers: made on the device, a gigabyte in a moment."""
    g = torch.Generator(device=device).manual_seed(seed)
    pages = -(-tokens // page_size)
    count = pages * page_size
    cache = torch.zeros((pages, page_stride_bytes(page_size)), dtype=torch.uint8, device=device)
    codes = torch.randint(0, 256, (count, 448), generator=g, device=device, dtype=torch.uint8)
    codes = torch.where((codes & 0x7F) > 0x68, codes & 0xE7, codes)
    rope = torch.randn((count, 64), generator=g, device=device).to(torch.bfloat16)
    data = torch.cat([codes, rope.view(torch.uint8).reshape(count, 128)], dim=1)
    cache[:, : page_size * DATA_BYTES] = data.view(pages, -1)
    scales = torch.randint(117, 124, (count, 8), generator=g, device=device, dtype=torch.uint8)
    cache[:, page_size * DATA_BYTES : page_size * TOKEN_BYTES] = scales.view(pages, -1)
    return cache[:, : page_size * TOKEN_BYTES].view(pages, page_size, 1, TOKEN_BYTES)


def _inputs(
    batch: int, heads: int, scopes: tuple[int, ...], pools: tuple[torch.Tensor, torch.Tensor], seed: int
) -> Inputs:
    window, extra = pools
    device = window.device
    g = torch.Generator(device=device).manual_seed(seed)

    def indices(width: int, cache: torch.Tensor) -> torch.Tensor:
        slots = cache.shape[0] * cache.shape[1]
        return torch.randint(0, slots, (batch, 1, width), generator=g, device=device, dtype=torch.int32)

    def full(width: int) -> torch.Tensor:
        return torch.full((batch,), width, dtype=torch.int32, device=device)

    q = torch.randn((batch, 1, heads, 512), generator=g, device=device).to(torch.bfloat16)
    sink = torch.randn(heads, generator=g, device=device)
    if len(scopes) == 1:
        return Inputs(q, extra, indices(scopes[0], extra), full(scopes[0]), sink)
    first, second = scopes
    return Inputs(
        q, window, indices(first, window), full(first), sink, extra, indices(second, extra), full(second)
    )


def replay_us(calls: Sequence[Callable[[], Any]], samples: int = _SAMPLES) -> list[float]:
    """Microseconds per call: all calls in one CUDA graph, replayed; one figure per replay.

    A call whose single run takes over 2 ms is sampled less often: it needs no statistics.
    """
    calls[0]()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    calls[0]()
    torch.cuda.synchronize()
    if time.perf_counter() - begun > 2e-3:
        calls, samples = calls[:2], 3
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    for _ in range(1 if samples == 3 else 3):
        graph.replay()
    found: list[float] = []
    for _ in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / len(calls))
    return found


def _flashmla() -> tuple[Call, Callable[[Any], Call]] | None:
    """(call that schedules anew, maker of a call that reuses its metadata), or None where it is not installed."""
    try:
        interface: Any = importlib.import_module("vllm.third_party.flashmla.flash_mla_interface")
    except (ImportError, OSError):
        return None

    def with_metadata(metadata: Any) -> Call:
        def call(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
            eight = torch.float8_e4m3fn
            return interface.flash_mla_with_kvcache(
                x.q, x.k_cache.view(eight), None, None, 512, metadata or interface.get_mla_metadata()[0],
                None, 512**-0.5, False, True, x.indices, x.attn_sink,
                None if x.extra_k_cache is None else x.extra_k_cache.view(eight), x.extra_indices,
                x.topk_length, x.extra_topk_length,
            )  # fmt: skip

        return call

    return with_metadata(None), lambda _: with_metadata(interface.get_mla_metadata()[0])


def _sglang() -> Call | None:
    try:
        module: Any = importlib.import_module("sglang_tiled")
    except ImportError:
        return None

    def call(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
        return module.flash_mla_sparse_decode_triton(
            x.q, x.k_cache, x.indices, x.topk_length, x.attn_sink, 512, 512**-0.5,
            x.extra_k_cache, x.extra_indices, x.extra_topk_length,
        )  # fmt: skip

    return call


def _baseline(x: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    batch, _, heads, _ = x.q.shape
    out = torch.empty((batch, heads, 512), dtype=torch.bfloat16, device=x.q.device)
    lse = torch.empty((batch, heads), dtype=torch.float32, device=x.q.device)
    extra = None
    if x.extra_k_cache is not None and x.extra_indices is not None:
        extra = Scope(x.extra_k_cache, x.extra_indices, x.extra_topk_length)
    scope = Scope(x.k_cache, x.indices, x.topk_length)
    launch_baseline(Problem(x.q, scope, extra, x.attn_sink, 512**-0.5), out, lse)
    return out.unsqueeze(1), lse.unsqueeze(2)


def _median_us(call: Callable[[], Any], warm_up: int = 20, samples: int = 20) -> float:
    """Microseconds of a long operation, launched one by one."""
    for _ in range(warm_up):
        call()
    found: list[float] = []
    for _ in range(samples):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e3)
    return statistics.median(found)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Rates measured in the same run: a large copy, a large bf16 product."""

    bytes_per_s: float
    flops_per_s: float

    @classmethod
    def measure(cls, device: torch.device | str) -> "Ceilings":
        """Copies of 4 GB and products of 8192 x 8192, on random data, after a warm-up that brings the clocks up.

        Launched one by one, not from a graph: a graph would hand the copy to the copy engine, which is slower.
        """
        a = torch.randn((8192, 8192), device=device).to(torch.bfloat16)
        big = torch.empty(1 << 32, dtype=torch.uint8, device=device).random_()
        other = torch.empty_like(big)
        product = _median_us(lambda: torch.mm(a, a))
        copy = _median_us(lambda: other.copy_(big))
        return cls(2 * big.numel() / copy * 1e6, 2 * 8192**3 / product * 1e6)

    def floor_us(self, batch: int, heads: int, scopes: tuple[int, ...]) -> float:
        """No kernel is faster: each row, query and output once through memory, or the products' arithmetic."""
        tokens = sum(scopes)
        moved = batch * (tokens * TOKEN_BYTES + 2 * heads * 512 * 2)
        flops = batch * heads * tokens * 512 * 2 * 2
        return max(moved / self.bytes_per_s, flops / self.flops_per_s) * 1e6


def _row(
    kernel: str, call: Call, sets: Sequence[Inputs], expected: tuple[torch.Tensor, torch.Tensor], facts: Row
) -> Row:
    """Check one call, then time it. A wrong answer is recorded without a time."""
    batch = len(expected[0])
    try:
        out, lse = call(sets[0])
        verdict: Verdict = judge(out[:batch], lse[:batch], *expected, strict=False)
    except (RuntimeError, ValueError, AssertionError, InputError) as error:
        return {"kernel": kernel, **facts, "median_us": None, "reason": str(error).splitlines()[0][:200]}
    row = {"kernel": kernel, **facts, "max_rel_err": verdict.relative_error}
    # Peers are held to the gate alone: SGLang's lse has the sink in it, FlashMLA's is +inf for empty queries.
    faults = verdict.faults if kernel == "wavewise" else ()
    if faults or not verdict.relative_error <= GATE:
        return {**row, "median_us": None, "reason": "; ".join(verdict.faults)}
    samples = replay_us([lambda x=x: call(x) for x in sets])
    return {**row, "median_us": statistics.median(samples), "samples_us": [round(s, 3) for s in samples]}


def _sweep_splits(tiles: int, ctas: int) -> list[int]:
    return [s for s in (1, 2, 3, 4, 5, 7, 10, 16, 20) if s <= tiles and (ctas * s <= 1000 or s == 1)]


def measure(settings: Settings, device: torch.device | str, say: Callable[[Row], None]) -> dict[str, Any]:
    """Time everything that the settings name; `say` hears each row as it is done.

    Returns:
        gpu, versions, ceilings, rows: what the results file holds (the caller adds its commit).
    """
    import triton

    properties: Any = torch.cuda.get_device_properties(device)
    capability = f"{properties.major}.{properties.minor}"
    ceilings = Ceilings.measure(device)
    pools = (
        random_cache(settings.pool_tokens, _WINDOW_PAGE, device, 1),
        random_cache(settings.pool_tokens, _EXTRA_PAGE, device, 2),
    )
    flash, tiled = (_flashmla(), _sglang()) if settings.peers else (None, None)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        say(row)

    for heads in settings.heads:
        for scopes in settings.scopes:
            for batch in settings.batches:
                sets = [_inputs(batch, heads, scopes, pools, seed) for seed in range(_SETS)]
                expected = _reference(sets[0].head(CHECKED_REQUESTS))
                floor = ceilings.floor_us(batch, heads, scopes)
                facts: Row = {"batch": batch, "heads": heads, "scopes": list(scopes), "floor_us": floor}
                out = torch.empty(tuple(sets[0].q.shape), dtype=torch.bfloat16, device=device)
                if settings.sweep:
                    for config in configurations(capability):
                        if not config.serves(heads):
                            continue
                        tiles = sum(-(-width // config.block_t) for width in scopes)
                        for splits in _sweep_splits(tiles, batch * heads // config.block_h):
                            call = partial(_run, config=config, splits=splits, out=out)
                            chosen = {"config": config.id, "num_splits": splits}
                            add(_row("wavewise", call, sets, expected, facts | chosen))
                    continue
                shape = DecodeShape(batch, heads, scopes[0], sum(scopes[1:]))
                plan = plan_for(shape, torch.device(device))
                chosen = {"config": plan.config.id, "num_splits": plan.num_splits}
                chosen |= {"predicted_us": plan.predicted_us}
                add(_row("wavewise", partial(_run, out=out), sets, expected, facts | chosen))
                if flash is not None and heads in (64, 128):
                    scheduling, reusing = flash
                    add(_row("flashmla", reusing(None), sets, expected, facts))
                    add(_row("flashmla+schedule", scheduling, sets, expected, facts))
                if tiled is not None and heads <= 64:
                    add(_row("sglang_tiled", tiled, sets, expected, facts))
                if settings.peers and heads <= 64:
                    add(_row("baseline", _baseline, sets, expected, facts))
    return {
        "schema": "wavewise.attention_bench/1",
        "gpu": properties.name,
        "compute_capability": capability,
        "versions": {
            "wavewise": __version__,
            "torch": str(torch.__version__),
            "triton": triton.__version__,
            "cuda": torch.version.cuda,
        },
        "ceilings": {"bytes_per_s": ceilings.bytes_per_s, "flops_per_s": ceilings.flops_per_s},
        "rows": rows,
    }
