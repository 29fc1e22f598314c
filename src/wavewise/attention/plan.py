"""How to cut a decode call into CTAs: an analytic model of its time, and the cheapest launch by it.

A plan is a value. It depends on shapes, length bounds, the GPU's description and audited footprints, all known
when a CUDA graph is captured; nothing here looks at a device, and no schedule kernel runs before the attention.
README.md derives the model; `time_model.toml` holds its coefficients and says where each comes from.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import msgspec
import numpy as np
from numpy.typing import NDArray

from wavewise.attention.configurations import SUPPORTED_HEADS, Footprint, KernelConfig, footprints_for
from wavewise.errors import InputError, UsageError
from wavewise.hardware import GpuSpec
from wavewise.occupancy import residency, wave_table

HEAD_DIM = 512
TOKEN_BYTES = 584
QUERY_BYTES = 2
PARTIAL_BYTES = 2
"""Partials are bf16: half the combine's traffic, for about 5e-4 of relative error."""

MAX_SPLITS = 32
"""The combine holds a row of every split in registers at once: more do not fit."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """What a decode call attends, as far as it is known when a graph is captured.

    Attributes:
        batch: requests.
        heads: query heads; 8, 16, 32, 64 or 128.
        topk: width of the first scope's indices (the sliding window, where there are two).
        extra_topk: width of the second scope's indices; 0 with one scope.
        queries_per_request: s_q; 1, or up to 4 for speculative verification.
    """

    batch: int
    heads: int
    topk: int
    extra_topk: int = 0
    queries_per_request: int = 1

    def __post_init__(self) -> None:
        """Refuses shapes that no kernel serves."""
        if self.heads not in SUPPORTED_HEADS:
            raise UsageError(
                f"{self.heads} query heads: supported are {', '.join(map(str, SUPPORTED_HEADS))}"
            )
        if self.batch < 1:
            raise UsageError(f"batch {self.batch}: at least 1")
        if self.topk < 0 or self.extra_topk < 0 or self.topk + self.extra_topk < 1:
            raise UsageError(f"topk {self.topk} and {self.extra_topk}: no key to attend to")
        if self.queries_per_request < 1:
            raise UsageError(f"{self.queries_per_request} queries a request: at least 1")

    @property
    def queries(self) -> int:
        """Requests times queries a request."""
        return self.batch * self.queries_per_request


Length = int | tuple[int, int]


@dataclass(frozen=True, slots=True)
class TimeModel:
    """Coefficients of one kernel at one tile, microseconds.

    Attributes:
        kernel: "portable", "hopper" or "hopper_narrow".
        block_h, block_t, warps: the tile and who works on it.
        launch_us: a launch's own cost, once per call.
        cta_us: per CTA, outside its tiles: lengths, first indices, first rows, Q, and the write at the end.
        tile_latency_us: one tile, by a CTA that has its SM to itself.
        tile_sm_us: what one tile takes of an SM's throughput; CTAs that share the SM add these up.
        combine_us: a second, dependent launch.
        combine_split_us: what each split adds to it, beside its bytes.
    """

    kernel: str
    block_h: int
    block_t: int
    warps: int
    launch_us: float
    cta_us: float
    tile_latency_us: float
    tile_sm_us: float
    combine_us: float
    combine_split_us: float


@dataclass(frozen=True, slots=True)
class Rates:
    """What a call's bytes move at, as shares of the memory's rate in the GPU catalogue.

    Attributes:
        memory: cold rows and queries.
        partials: partials, written by one kernel and read by the next; mostly in the L2.
    """

    memory: float
    partials: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """`time_model.toml`, whole: where the figures come from, and the figures."""

    source: str
    rates: Rates
    models: tuple[TimeModel, ...]

    def model(self, config: KernelConfig) -> TimeModel:
        """The coefficients of a configuration's kernel and tile.

        Raises:
            InputError: there are none.
        """
        for model in self.models:
            if (model.kernel, model.block_h, model.block_t, model.warps) == (
                config.kernel,
                config.block_h,
                config.block_t,
                config.warps,
            ):
                return model
        raise InputError(f"no time model for {config.id}")


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """One way to launch a decode call, and what the model says of it.

    Attributes:
        shape: what is attended.
        config: the kernel and how it is compiled.
        num_splits: CTAs that share one query and one block of heads; 1 writes the output directly.
        grid: (blocks of heads, splits, queries).
        ctas_per_sm: residency of the audited footprint.
        limiter: the resource that sets it.
        waves: whole waves of the split kernel.
        wave_efficiency: share of the slots in those waves that hold a CTA.
        predicted_us: split kernel and combine.
        body_us: of that, the walk over tiles.
        combine_us: of that, the combine.
    """

    shape: DecodeShape
    config: KernelConfig
    num_splits: int
    grid: tuple[int, int, int]
    ctas_per_sm: int
    limiter: str
    waves: int
    wave_efficiency: float
    predicted_us: float
    body_us: float
    combine_us: float

    def __str__(self) -> str:
        """One line: what is launched, how it fills the GPU, what it should take."""
        return (
            f"{self.config.id}, {self.num_splits} splits, grid {self.grid}, {self.ctas_per_sm} CTAs/SM, "
            f"{self.waves} waves at {self.wave_efficiency:.1%}, {self.predicted_us:.1f} us"
        )


@lru_cache(maxsize=1)
def shipped_coefficients() -> Coefficients:
    """The coefficients that ship, as `time_model.toml` holds them."""
    text = resources.files("wavewise.attention").joinpath("time_model.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Coefficients)


def tiles_of(shape: DecodeShape, lengths: Sequence[Length] | None, block_t: int) -> Ints:
    """Tiles that each query walks over, int64 [queries]; a scope starts a tile of its own.

    Args:
        shape: bounds; what counts where no lengths are given.
        lengths: one per request: keys in the first scope, or (first, second). Beyond the bounds they are cut.
        block_t: tokens of a tile.

    Raises:
        UsageError: not one length per request.
    """
    if lengths is None:
        pairs = np.array([[shape.topk, shape.extra_topk]] * shape.batch, dtype=np.int64)
    else:
        if len(lengths) != shape.batch:
            raise UsageError(f"{len(lengths)} lengths for a batch of {shape.batch}")
        pairs = np.array([(n, 0) if isinstance(n, int) else n for n in lengths], dtype=np.int64)
        pairs = np.clip(pairs, 0, [shape.topk, shape.extra_topk])
    return np.repeat((-(-pairs // block_t)).sum(axis=1), shape.queries_per_request)


def split_range(tiles: int, splits: int, split: int) -> range:
    """The tiles that CTA `split` of `splits` walks over: the kernels' own arithmetic."""
    return range(tiles * split // splits, tiles * (split + 1) // splits)


def _cta_tiles(tiles: Ints, splits: int, head_blocks: int) -> Ints:
    """Tiles of every CTA in launch order: blocks of heads fastest, then splits, then queries."""
    edges = tiles[:, None] * np.arange(splits + 1, dtype=np.int64)[None, :] // splits
    return np.repeat(np.diff(edges, axis=1).ravel(), head_blocks)


def _body_us(
    cta_tiles: Ints, head_blocks: int, gpu: GpuSpec, resident: int, model: TimeModel, rates: Rates
) -> float:
    """Time of the split kernel's CTAs, wave by wave; a wave lasts as long as its slowest SM.

    CTAs go to empty SMs first, so a wave of n CTAs puts ceil(n / SMs) on the fullest SM. What they share is the
    SM's throughput and the memory; what each has for itself is latency. Rows are cold once per wave, for all
    blocks of heads together; queries are cold for every CTA.
    """
    sm_count = gpu.sm_count or 1
    slots = sm_count * resident
    waves = -(-len(cta_tiles) // slots)
    padded = np.zeros(waves * slots, dtype=np.int64)
    padded[: len(cta_tiles)] = cta_tiles
    by_wave = padded.reshape(waves, slots)
    present = np.minimum(len(cta_tiles) - np.arange(waves) * slots, slots)
    longest = by_wave.max(axis=1)
    sharing = -(-present // sm_count)
    evenly = by_wave.sum(axis=1) / np.minimum(present, sm_count)
    by_sm = np.maximum(evenly, np.minimum(longest * sharing, evenly + longest)) * model.tile_sm_us
    busy = np.maximum(longest * model.tile_latency_us, by_sm)
    if gpu.memory_bytes_per_s is not None:
        bytes_per_us = gpu.memory_bytes_per_s * rates.memory / 1e6
        rows = by_wave.sum(axis=1) * model.block_t * TOKEN_BYTES / head_blocks
        busy = np.maximum(busy, rows / bytes_per_us)
        busy = busy + present * (model.block_h * HEAD_DIM * QUERY_BYTES) / bytes_per_us
    return float((busy + model.cta_us).sum())


def predict_us(
    shape: DecodeShape,
    tiles: Ints,
    splits: int,
    config: KernelConfig,
    gpu: GpuSpec,
    resident: int,
    coefficients: Coefficients,
) -> tuple[float, float, float]:
    """(total, body, combine) of one candidate, in microseconds.

    Args:
        shape: what is attended.
        tiles: of each query, from `tiles_of`.
        splits: CTAs that share a query and a block of heads.
        config: the kernel and its tile.
        gpu: SM count and memory rate.
        resident: CTAs per SM.
        coefficients: of the model.
    """
    model = coefficients.model(config)
    head_blocks = shape.heads // config.block_h
    ctas = _cta_tiles(tiles, splits, head_blocks)
    body = _body_us(ctas, head_blocks, gpu, resident, model, coefficients.rates)
    combine = 0.0
    if splits > 1:
        combine = model.combine_us + splits * model.combine_split_us
        if gpu.memory_bytes_per_s is not None:
            moved = 2 * shape.queries * splits * shape.heads * HEAD_DIM * PARTIAL_BYTES
            combine += moved / (gpu.memory_bytes_per_s * coefficients.rates.partials) * 1e6
    return model.launch_us + body + combine, body, combine


def _fitting(
    gpu: GpuSpec, footprints: Iterable[Footprint], shape: DecodeShape
) -> list[tuple[Footprint, int, str]]:
    """Footprints that serve the shape and fit on an SM, each with its residency and what limits it.

    The model knows nothing of spills, so a footprint that spills counts only where its kernel has none without.
    """
    found: list[tuple[Footprint, int, str]] = []
    for footprint in footprints:
        if not footprint.config.serves(shape.heads):
            continue
        held = residency(gpu, footprint.launch((1, 1, 1)))
        if held.ctas_per_sm:
            found.append((footprint, held.ctas_per_sm, held.limiter or "unknown"))
    if not found:
        raise InputError(f"no attention kernel for {shape.heads} heads fits on an SM of {gpu.name}")
    clean = {footprint.config.kernel for footprint, _, _ in found if not footprint.spill_bytes}
    return [row for row in found if not row[0].spill_bytes or row[0].config.kernel not in clean]


def plan_decode(
    shape: DecodeShape,
    lengths: Sequence[Length] | None,
    gpu: GpuSpec,
    footprint: Footprint | Iterable[Footprint] | None = None,
    num_splits: int | None = None,
    coefficients: Coefficients | None = None,
) -> DecodePlan:
    """The cheapest launch by the model, over all footprints given and all split counts.

    Args:
        shape: what is attended, bounds included.
        lengths: keys of each request where they are known; None plans for the bounds, which is what a graph
            capture knows. The kernels stop at the actual lengths either way.
        gpu: where it runs; its SM count and limits must be known.
        footprint: one, several, or None for all that ship for the GPU's architecture.
        num_splits: fixes the split count; None searches all.
        coefficients: of the time model; None for those that ship.

    Raises:
        UsageError: lengths don't match the batch, or `num_splits` is out of range.
        InputError: no footprint serves the shape on this GPU.
    """
    if gpu.sm_count is None:
        raise InputError(f"the SM count of {gpu.name} is not known")
    if footprint is None:
        choices: Iterable[Footprint] = footprints_for(gpu)
    elif isinstance(footprint, Footprint):
        choices = (footprint,)
    else:
        choices = footprint
    figures = coefficients or shipped_coefficients()
    best: DecodePlan | None = None
    for candidate, resident, limiter in _fitting(gpu, choices, shape):
        config = candidate.config
        tiles = tiles_of(shape, lengths, config.block_t)
        most = min(MAX_SPLITS, max(1, int(tiles.max())))
        if num_splits is not None and not 1 <= num_splits <= most:
            raise UsageError(
                f"{num_splits} splits: between 1 and {most} (tiles of the longest query, at most {MAX_SPLITS})"
            )
        for splits in range(1, most + 1) if num_splits is None else (num_splits,):
            total, body, combine = predict_us(shape, tiles, splits, config, gpu, resident, figures)
            if best is not None and total >= best.predicted_us:
                continue
            grid = (shape.heads // config.block_h, splits, shape.queries)
            laid = wave_table(grid[0] * grid[1] * grid[2], gpu.sm_count, resident)
            best = DecodePlan(
                shape=shape,
                config=config,
                num_splits=splits,
                grid=grid,
                ctas_per_sm=resident,
                limiter=limiter,
                waves=int(laid.waves),
                wave_efficiency=float(laid.wave_efficiency),
                predicted_us=total,
                body_us=body,
                combine_us=combine,
            )
    assert best is not None
    return best
