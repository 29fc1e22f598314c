"""Model shapes: what one decode step has to read and compute. TOML, shipped ones and the user's own."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path

import msgspec

from wavewise.errors import InputError, UsageError
from wavewise.findings import ExpertShape, KernelRow


class Experts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The routed experts of one layer.

    Attributes:
        count, active: N, and k of them per token.
        intermediate: an expert holds 3 x hidden x intermediate weights (gate, up, down).
        bits_per_weight: scales included.
        compute: precisions in which the product may run, by the names of `GpuSpec.tensor_flops`.
        hash_routed_layers: leading layers that route by token id.
        dense_layers: leading layers without routed experts.
    """

    count: int
    active: int
    intermediate: int
    bits_per_weight: float
    compute: tuple[str, ...] = ("bf16",)
    hash_routed_layers: int = 0
    dense_layers: int = 0


class AttentionKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens one kind of layer attends to.

    Attributes:
        window: latest tokens attended to; None with `ratio` None means all of them.
        ratio: the rest is compressed by this factor; None: the rest is not attended to.
        top_k: of the compressed tokens, at most this many.
    """

    window: int | None = None
    ratio: int | None = None
    top_k: int | None = None

    def tokens(self, context: int) -> float:
        """Keys that one request reads at this context length."""
        if self.window is None and self.ratio is None:
            return float(context)
        near = min(context, self.window or 0)
        if self.ratio is None:
            return float(near)
        far = context // self.ratio
        return float(near + (far if self.top_k is None else min(far, self.top_k)))


class Attention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The attention of all layers; `kinds` tells them apart.

    Attributes:
        query_dim, value_dim: per head.
        kv_bytes_per_token: keys and values of all heads in one layer's cache.
    """

    heads: int
    kv_heads: int
    query_dim: int
    value_dim: int
    kv_bytes_per_token: float
    kinds: dict[str, AttentionKind]
    compute: tuple[str, ...] = ("bf16",)


class Indexer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores every compressed key of a request to pick those that attention reads."""

    kinds: tuple[str, ...]
    heads: int
    dim: int
    ratio: int
    bytes_per_key: float
    compute: tuple[str, ...] = ("bf16",)


class Gemm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dense projection of a layer; `kinds` empty means every layer."""

    name: str
    inputs: int
    outputs: int
    groups: int = 1
    bits: float = 16
    kinds: tuple[str, ...] = ()
    compute: tuple[str, ...] = ("fp8", "bf16")


class ModelShape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model, as far as a decode step's bytes and operations depend on it.

    Attributes:
        first_layers: kinds of the first layers; the others repeat `repeated_layers`.
        recognise: patterns that must each be found in some kernel's name.
        layer_kernel: a kernel that runs once per layer.
        layers_counted: the layer count comes from the trace (or from the user naming the model).
        origin: how the shape was come by, for the report.
    """

    id: str
    name: str
    hidden: int
    layer_count: int
    repeated_layers: tuple[str, ...]
    first_layers: tuple[str, ...] = ()
    recognise: tuple[str, ...] = ()
    layer_kernel: str | None = None
    experts: Experts | None = None
    attention: Attention | None = None
    indexer: Indexer | None = None
    gemm: tuple[Gemm, ...] = ()
    layers_counted: bool = True
    origin: str = "named"

    @property
    def layers(self) -> tuple[str, ...]:
        """The kind of every layer."""
        first = self.first_layers[: self.layer_count]
        rest = self.layer_count - len(first)
        return first + tuple(self.repeated_layers[i % len(self.repeated_layers)] for i in range(rest))

    @property
    def expert_shape(self) -> ExpertShape | None:
        """The constants of the expert-activation law, None for a model without routed experts."""
        if self.experts is None:
            return None
        return ExpertShape(
            experts=self.experts.count,
            active=self.experts.active,
            source=f"model shape {self.id} ({self.origin})",
        )


def shipped() -> tuple[str, ...]:
    """Ids of the shapes that come with the package."""
    return tuple(_shipped())


def load_shape(name: str) -> ModelShape:
    """A shipped shape by its id, or the user's own from a TOML file.

    Raises:
        UsageError: no such shape, or the file says something that means nothing here.
        InputError: the file cannot be read.
    """
    known = _shipped()
    if name.lower() in known:
        return known[name.lower()]
    path = Path(name)
    if path.suffix != ".toml":
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"shipped: {', '.join(known)}"
        raise UsageError(f"unknown model {name!r} ({hint}); a shape of your own is a .toml file")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"model shape {name}: cannot be read ({error})") from error
    return _parse(text, f"model shape {name}")


def recognise(recordings: Iterable[Iterable[KernelRow]]) -> ModelShape | None:
    """The shipped shape that the kernels' names give away, cut to the layers that run; else None.

    Args:
        recordings: the kernels of each trace.

    The layer count is that of `layer_kernel`'s launches per step. Where no such kernel is found, the experts'
    constants stand, but `layers_counted` is False and no roofline floor is computed from the shape.
    """
    traces = tuple(map(tuple, recordings))
    names = {row.name for rows in traces for row in rows}
    for shape in _shipped().values():
        if not shape.recognise or not all(
            any(re.search(pattern, name) for name in names) for pattern in shape.recognise
        ):
            continue
        found = msgspec.structs.replace(shape, layers_counted=False, origin="recognised by kernel names")
        return cut_to_layers(found, traces)
    return None


def cut_to_layers(shape: ModelShape, recordings: Iterable[Iterable[KernelRow]]) -> ModelShape:
    """The shape with the layers that each trace's launches show, where `layer_kernel` tells them."""
    layers = _layers(shape, recordings)
    if layers is None:
        return shape
    cut = "" if layers == shape.layer_count else f", {layers} of {shape.layer_count} layers"
    return msgspec.structs.replace(
        shape, layer_count=layers, layers_counted=True, origin=f"{shape.origin}{cut}"
    )


def _layers(shape: ModelShape, recordings: Iterable[Iterable[KernelRow]]) -> int | None:
    """Layers by the launches of the layer kernel, alike in every trace at every batch size."""
    if shape.layer_kernel is None:
        return None
    launches: dict[tuple[int, int | None], float] = {}
    for trace, rows in enumerate(recordings):
        for row in rows:
            if re.search(shape.layer_kernel, row.name):
                where = trace, row.batch_size
                launches[where] = launches.get(where, 0.0) + row.launches_per_step
    counts = set(launches.values())
    if len(counts) != 1:
        return None
    count = counts.pop()
    return int(count) if count.is_integer() and 0 < count <= shape.layer_count else None


@lru_cache(maxsize=1)
def _shipped() -> Mapping[str, ModelShape]:
    folder = resources.files("wavewise.ceilings") / "models"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda f: f.name)
    shapes = [_parse(file.read_text(encoding="utf-8"), f"shipped shape {file.name}") for file in files]
    return {shape.id: shape for shape in shapes}


def _parse(text: str, where: str) -> ModelShape:
    try:
        table = tomllib.loads(text)
        shape = msgspec.convert(table, ModelShape)
        for pattern in (*shape.recognise, *([shape.layer_kernel] if shape.layer_kernel else [])):
            re.compile(pattern)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, re.error) as error:
        raise UsageError(f"{where}: {error}; see docs/models.md") from error
    _check(shape, where)
    return shape


def _check(shape: ModelShape, where: str) -> None:
    if not shape.repeated_layers or shape.layer_count < 1:
        raise UsageError(f"{where}: layer_count and repeated_layers must not be empty")
    kinds = set(shape.layers)
    if shape.attention is not None and (missing := kinds - set(shape.attention.kinds)):
        raise UsageError(f"{where}: no [attention.kinds.{sorted(missing)[0]}]")
    if shape.experts is not None and not 0 < shape.experts.active <= shape.experts.count:
        raise UsageError(f"{where}: {shape.experts.active} active of {shape.experts.count} experts")
