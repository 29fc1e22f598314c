"""What a trace cannot tell and its owner may know: stated once, handed to the evaluators and the ledger."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts from outside the trace; None where nobody said. An evaluator that needs one says so.

    Attributes:
        model: the model's name, to match ledger entries.
        engine_version: of the serving engine, to match and expire ledger entries.
        interconnect: "pcie", "nvlink", ...; taken from the GPU's form factor where that leaves no choice.
        heads_per_gpu: query heads of this GPU's shard.
        kernel_heads: heads that the attention kernel computes, padding included.
        expert_bytes: weight bytes of one routed expert in one layer, this GPU's share of it.
        moe_layers: layers with routed experts.
        l2_bytes: the GPU's L2 cache.
    """

    model: str | None = None
    engine_version: str | None = None
    interconnect: str | None = None
    heads_per_gpu: int | None = None
    kernel_heads: int | None = None
    expert_bytes: int | None = None
    moe_layers: int | None = None
    l2_bytes: int | None = None
