"""What a trace cannot tell and its owner may know, or its model's shape says; handed to evaluators and ledger."""

from dataclasses import dataclass, replace

from wavewise.ceilings import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts from outside the trace; None where nobody said. An evaluator that needs one says so.

    Attributes:
        model: the model's name, to match ledger entries.
        engine_version: of the serving engine, to match and expire ledger entries.
        interconnect: "pcie", "nvlink", ...; taken from the GPU's form factor where that leaves no choice.
        gpus: that share every layer (tensor parallel).
        heads_per_gpu: query heads of this GPU's shard.
        kernel_heads: heads that the attention kernel computes, padding included.
        attended_scopes: tokens of the two scopes (window, selected) of the layers that attend to most of them.
        attention_kinds: how many kinds of layers attend to different numbers of tokens.
        expert_bytes: weight bytes of one routed expert in one layer, this GPU's share of it.
        moe_layers: layers with routed experts.
        l2_bytes: the GPU's L2 cache.
    """

    model: str | None = None
    engine_version: str | None = None
    interconnect: str | None = None
    gpus: int | None = None
    heads_per_gpu: int | None = None
    kernel_heads: int | None = None
    attended_scopes: tuple[int, int] | None = None
    attention_kinds: int | None = None
    expert_bytes: int | None = None
    moe_layers: int | None = None
    l2_bytes: int | None = None

    def with_shape(self, shape: ModelShape | None) -> "Known":
        """These facts, completed by a model's shape; what was stated stands.

        Figures of one GPU's share are left out where `gpus` is unknown.
        """
        if shape is None:
            return self
        gpus = self.gpus
        kinds = {
            kind for kind in shape.layers if shape.attention is not None and kind in shape.attention.kinds
        }
        filled = replace(self, model=self.model or shape.name)
        if kinds and self.attention_kinds is None:
            filled = replace(filled, attention_kinds=len(kinds))
        if kinds and self.attended_scopes is None:
            filled = replace(filled, attended_scopes=_scopes(shape, kinds))
        if shape.experts is not None and shape.layers_counted:
            layers = max(0, shape.layer_count - shape.experts.dense_layers)
            filled = replace(filled, moe_layers=self.moe_layers or layers)
        if shape.experts is not None and gpus is not None and self.expert_bytes is None:
            weights = 3 * shape.hidden * shape.experts.intermediate
            filled = replace(filled, expert_bytes=round(weights * shape.experts.bits_per_weight / 8 / gpus))
        if shape.attention is not None and gpus is not None and self.heads_per_gpu is None:
            filled = replace(filled, heads_per_gpu=max(1, shape.attention.heads // gpus))
        return filled


def _scopes(shape: ModelShape, kinds: set[str]) -> tuple[int, int] | None:
    """Window and selected tokens of the sparse layers; None for a model without both."""
    assert shape.attention is not None
    pairs = [
        (kind.window, kind.top_k)
        for name in kinds
        if (kind := shape.attention.kinds[name]).window is not None and kind.top_k is not None
    ]
    return max(((window or 0, top_k or 0) for window, top_k in pairs), key=sum, default=None)
