"""Options that several commands share: declared once, parsed once."""

import re
from pathlib import Path
from typing import Annotated

import typer

from wavewise.errors import UsageError

GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="The GPU, where the trace does not say or is wrong."),
]
GpusOption = Annotated[
    Path | None,
    typer.Option("--gpus", metavar="FILE", help="GPU catalogue (TOML) to add to the built-in one."),
]
RulesOption = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Kernel family rules (TOML), tried first.")
]
RecursiveOption = Annotated[bool, typer.Option("--recursive", help="Search folders below the given ones.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME|FILE", help="Model shape: a shipped one, or a TOML file."),
]
ExpertsOption = Annotated[
    str | None,
    typer.Option("--experts", metavar="N,K", help="Routed experts, and active ones per token: 256,6."),
]
TensorParallelOption = Annotated[
    int | None,
    typer.Option(
        "--tensor-parallel", metavar="GPUS", min=1, help="GPUs that share every layer, for roofline floors."
    ),
]
ExtrapolateOption = Annotated[
    str | None, typer.Option("--extrapolate", metavar="SIZES", help="Batch sizes to predict: 96,128,160.")
]
LatencyTargetOption = Annotated[
    str | None,
    typer.Option("--latency-target", metavar="TIME", help="Largest batch whose step meets it: 30ms."),
]
ThroughputTargetOption = Annotated[
    str | None,
    typer.Option(
        "--throughput-target", metavar="TOKENS/S", help="Can it be reached, and what forbids it: 1000."
    ),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="An earlier findings.json whose premises to check."),
]
TelemetryOption = Annotated[
    Path | None,
    typer.Option(
        "--telemetry",
        metavar="FILE",
        help="GPU telemetry: the recorder's CSV, nvidia-smi CSV or dmon output.",
    ),
]
PowerLimitOption = Annotated[
    float | None,
    typer.Option("--power-limit", metavar="W", help="The board's power limit, which dmon does not hold."),
]
ThresholdsOption = Annotated[
    Path | None,
    typer.Option(
        "--thresholds", metavar="FILE", help="What telemetry means (TOML), in the built-in's place."
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="DIR", help="Your ledger; the packaged entries count beside it."),
]
EngineVersionOption = Annotated[
    str | None,
    typer.Option(
        "--engine-version", metavar="V", help="The engine's version, to match and expire ledger entries."
    ),
]
InterconnectOption = Annotated[
    str | None,
    typer.Option(
        "--interconnect", metavar="LINK", help="pcie, nvlink or xgmi, where the GPU leaves it open."
    ),
]
TriedOption = Annotated[
    str | None,
    typer.Option(
        "--tried", metavar="NAMES", help="Levers tried or asked about, by commas: nccl-tuning,cuda-graphs."
    ),
]

_MS = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "": 1.0}


def names(text: str | None) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def experts(text: str | None) -> tuple[int, int] | None:
    """`256,6` as (256, 6)."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+)\s*[,/x]\s*(\d+)\s*", text)
    if not found or not 0 < int(found[2]) <= int(found[1]):
        raise UsageError(f"--experts {text!r}: write N,K with 0 < K <= N, for example 256,6")
    return int(found[1]), int(found[2])


def sizes(text: str | None) -> tuple[int, ...]:
    """`96,128` as batch sizes."""
    if text is None:
        return ()
    parts = names(text)
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"--extrapolate {text!r}: write batch sizes, for example 96,128,160")
    return tuple(int(part) for part in parts)


def milliseconds(text: str | None) -> float | None:
    """`30ms`, `0.03s` or `30` as milliseconds."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s)?\s*", text)
    value = float(found[1]) * _MS[found[2] or ""] if found else 0.0
    if value <= 0.0:
        raise UsageError(f"--latency-target {text!r}: write a time, for example 30ms")
    return value


def tokens_per_s(text: str | None) -> float | None:
    """`1000`, `1k` or `1000 tok/s` as tokens per second."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(k?)\s*(?:tok(?:ens)?/s)?\s*", text.replace("_", ""))
    value = float(found[1]) * (1e3 if found[2] else 1.0) if found else 0.0
    if value <= 0.0:
        raise UsageError(f"--throughput-target {text!r}: write tokens per second, for example 1000")
    return value
