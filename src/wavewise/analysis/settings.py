"""How to analyse: everything a caller can choose, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from wavewise.levers import Known

Label = Mapping[str, str]
"""What the user says of one input: `context` is the context length (tokens, or with a k for 1,024), `model` its
model's name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to analyse.

    Attributes:
        gpu: catalogue name of the GPU, overriding what the traces say.
        gpus: a GPU catalogue file to add.
        rules: a family rule file to add (or to use instead, if it says so).
        labels: what is known of a path given on the command line.
        recursive: search folders below the given ones.
        model: a shipped model shape by name, or a TOML file; recognised by kernel names where not given.
        experts: routed experts and active experts per token, for the expert-activation law.
        tensor_parallel: GPUs that share every layer, for the roofline floors; not told by a trace.
        extrapolate: batch sizes to predict.
        latency_target_ms, throughput_target: the two questions people bring.
        baseline: an earlier findings.json whose premises to check.
        telemetry: a file of GPU telemetry; a recording's own is used where none is named.
        power_limit_w: the board's power limit, where the telemetry does not hold it.
        thresholds: a file of telemetry thresholds in the packaged ones' place.
        ledger: a team's ledger folder; the shipped entries take part in any case.
        tried: names of levers that somebody tried.
        known: facts that no trace holds, for the levers.
    """

    gpu: str | None = None
    gpus: Path | None = None
    rules: Path | None = None
    labels: Mapping[Path, Label] = field(default_factory=dict[Path, Label])
    recursive: bool = False
    model: str | None = None
    experts: tuple[int, int] | None = None
    tensor_parallel: int | None = None
    extrapolate: tuple[int, ...] = ()
    latency_target_ms: float | None = None
    throughput_target: float | None = None
    baseline: Path | None = None
    telemetry: Path | None = None
    power_limit_w: float | None = None
    thresholds: Path | None = None
    ledger: Path | None = None
    tried: tuple[str, ...] = ()
    known: Known = field(default_factory=Known)
