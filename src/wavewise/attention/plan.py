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
PARTIAL_BYTES = 2
"""Partials are bf16: half the combine's traffic for 5e-4 of relative error (design/attention-study)."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


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
            raise UsageError(f"{self.heads} query heads: supported are {', '.join(map(str, SUPPORTED_HEADS))}")
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
    """Coefficients of one kernel on one architecture, microseconds unless the name says otherwise.

    Attributes:
        kernel: "portable", "hopper" or "hopper_narrow".
        compute_capability: exact.
        launch_us: from the launch to the first CTA's first instruction, and the tail after its last.
        prologue_us: per CTA, before the first tile: lengths, indices, Q, the first gather's latency.
        epilogue_us: per CTA, after the last tile: normalise and write.
        tile_latency_us: one CTA alone on its SM, per tile, at the configuration's reference tile.
        tile_sm_us: what one tile takes of the SM's own throughput; CTAs that share an SM add these up.
        combine_us: fixed cost of a second, dependent launch.
        combine_bytes_per_s: rate at which partials are written and read back (mostly L2).
        memory_bytes_per_s: rate at which cold KV rows arrive when every SM asks.
        source: measured where, or estimated how.
    """

    kernel: str
    compute_capability: str
    block_h: int
    block_t: int
    launch_us: float
    prologue_us: float
    epilogue_us: float
    tile_latency_us: float
    tile_sm_us: float
    combine_us: float
    combine_bytes_per_s: float
    memory_bytes_per_s: float
    source: str


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
def shipped_models() -> tuple[TimeModel, ...]:
    """The coefficients that ship, as `time_model.toml` holds them."""
    text = resources.files("wavewise.attention").joinpath("time_model.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text)["models"], tuple[TimeModel, ...])


def model_for(config: KernelConfig, compute_capability: str) -> TimeModel:
    """The coefficients of this kernel at this tile on this architecture.

    Raises:
        InputError: there are none.
    """
    for model in shipped_models():
        if (
            model.kernel == config.kernel
            and model.compute_capability == compute_capability
            and model.block_h == config.block_h
            and model.block_t == config.block_t
        ):
            return model
    raise InputError(f"no time model for {config.id} on compute capability {compute_capability}")


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


def _body_us(cta_tiles: Ints, sm_count: int, ctas_per_sm: int, model: TimeModel) -> float:
    """Time of the split kernel's CTAs, wave by wave; a wave lasts as long as its longest CTA.

    CTAs go to empty SMs first, so a wave of n CTAs puts ceil(n / SMs) on the fullest SM. What they share is the
    SM's throughput and the memory; what each has for itself is latency.
    """
    slots = sm_count * ctas_per_sm
    waves = -(-len(cta_tiles) // slots)
    padded = np.zeros(waves * slots, dtype=np.int64)
    padded[: len(cta_tiles)] = cta_tiles
    by_wave = padded.reshape(waves, slots)
    present = np.minimum(len(cta_tiles) - np.arange(waves) * slots, slots)
    sharing = -(-present // sm_count)
    longest = by_wave.max(axis=1)
    # Every SM's share of the wave's work, if it were spread evenly: the longest CTA can't be the whole story
    # where many CTAs of unequal length share an SM.
    per_sm = np.maximum(by_wave.sum(axis=1) / np.minimum(present, sm_count), longest)
    by_latency = longest * model.tile_latency_us
    by_throughput = np.minimum(per_sm, longest * sharing) * model.tile_sm_us
    row_bytes = by_wave.sum(axis=1) * model.block_t * TOKEN_BYTES
    by_memory = row_bytes / model.memory_bytes_per_s * 1e6
    busy = np.maximum(np.maximum(by_latency, by_throughput), by_memory)
    fixed = (model.prologue_us + model.epilogue_us) * np.where(longest > 0, 1.0, 0.5)
    return float((busy + fixed).sum())


def predict_us(
    shape: DecodeShape, tiles: Ints, splits: int, footprint: Footprint, gpu: GpuSpec, resident: int
) -> tuple[float, float, float]:
    """(total, body, combine) of one candidate, in microseconds."""
    model = model_for(footprint.config, footprint.compute_capability)
    assert gpu.sm_count is not None
    head_blocks = shape.heads // footprint.config.block_h
    body = _body_us(_cta_tiles(tiles, splits, head_blocks), gpu.sm_count, resident, model)
    combine = 0.0
    if splits > 1:
        partials = 2 * shape.queries * splits * shape.heads * HEAD_DIM * PARTIAL_BYTES
        combine = model.combine_us + partials / model.combine_bytes_per_s * 1e6
    return model.launch_us + body + combine, body, combine


def _fitting(gpu: GpuSpec, footprints: Iterable[Footprint], shape: DecodeShape) -> list[tuple[Footprint, int, str]]:
    """Footprints that serve the shape and fit on an SM, each with its residency and what limits it."""
    found: list[tuple[Footprint, int, str]] = []
    for footprint in footprints:
        if not footprint.config.serves(shape.heads):
            continue
        held = residency(gpu, footprint.launch((1, 1, 1)))
        if held.ctas_per_sm:
            found.append((footprint, held.ctas_per_sm, held.limiter or "unknown"))
    if not found:
        raise InputError(f"no attention kernel for {shape.heads} heads fits on an SM of {gpu.name}")
    return found


def plan_decode(
    shape: DecodeShape,
    lengths: Sequence[Length] | None,
    gpu: GpuSpec,
    footprint: Footprint | Iterable[Footprint] | None = None,
    num_splits: int | None = None,
) -> DecodePlan:
    """The cheapest launch by the model, over all footprints given and all split counts.

    Args:
        shape: what is attended, bounds included.
        lengths: keys of each request where they are known; None plans for the bounds, which is what a graph
            capture knows. The kernels stop at the actual lengths either way.
        gpu: where it runs; its SM count and limits must be known.
        footprint: one, several, or None for all that ship for the GPU's architecture.
        num_splits: fixes the split count; None searches all.

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
    best: DecodePlan | None = None
    for candidate, resident, limiter in _fitting(gpu, choices, shape):
        config = candidate.config
        tiles = tiles_of(shape, lengths, config.block_t)
        most = max(1, int(tiles.max()))
        if num_splits is not None and not 1 <= num_splits <= most:
            raise UsageError(f"{num_splits} splits: between 1 and the {most} tiles of the longest query")
        for splits in range(1, most + 1) if num_splits is None else (num_splits,):
            total, body, combine = predict_us(shape, tiles, splits, candidate, gpu, resident)
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
