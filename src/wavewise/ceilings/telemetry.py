"""Reads GPU telemetry: the recorder's CSV, `nvidia-smi --query-gpu` CSV, and `nvidia-smi dmon` text."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wavewise.errors import InputError

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("gpu", "index"),
    "sm": ("sm_activity_percent", "utilization.gpu", "sm"),
    "memory": ("memory_activity_percent", "utilization.memory", "mem"),
    "power": ("power_w", "power.draw", "power.draw.instant", "power.draw.average", "pwr"),
    "limit": ("power_limit_w", "power.limit", "enforced.power.limit"),
    "sm_active": ("gpm_sm_active_percent",),
    "occupancy": ("gpm_sm_occupancy_percent",),
    "tensor": ("gpm_tensor_active_percent",),
    "dram": ("gpm_dram_bandwidth_percent",),
}
"""What is read -> the names that the recorder, `--query-gpu` and `dmon` give it."""

_HINT = (
    "expected the recorder's telemetry.csv, `nvidia-smi --query-gpu=... --format=csv` or `nvidia-smi dmon`"
)


@dataclass(frozen=True, kw_only=True)
class TelemetrySample:
    """One GPU at one moment; shares are 0 to 1, None where not measured.

    Attributes:
        sm: share of time with a kernel running (NVML).
        memory: share of time with the memory being read or written (NVML).
        sm_active, occupancy, tensor, dram: hardware counters (GPM), where the GPU offers them.
    """

    gpu: str = "0"
    sm: float | None = None
    memory: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_active: float | None = None
    occupancy: float | None = None
    tensor: float | None = None
    dram: float | None = None


def read_telemetry(path: Path, within: Sequence[tuple[float, float]] = ()) -> tuple[TelemetrySample, ...]:
    """The samples of a telemetry file, in order.

    Args:
        path: the file.
        within: spans of Unix seconds; only samples in them count, where the file has the recorder's
            `ts_unix_s` (a recording's telemetry holds its prefill too).

    Raises:
        InputError: it cannot be read, or holds no SM activity.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"telemetry {path}: cannot be read ({error})") from error
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise InputError(f"telemetry {path}: {error}; {_HINT}") from error
    if within and any("ts_unix_s" in row for row in rows):
        rows = [row for row in rows if _in_spans(_number(row.get("ts_unix_s")), within)]
    samples = [sample for row in rows if (sample := _sample(row)) is not None]
    if not samples:
        raise InputError(f"telemetry {path}: no SM activity in it; {_HINT}")
    return tuple(samples)


def _rows(text: str) -> list[dict[str, str]]:
    """Rows as column -> text. `dmon` repeats its header, and puts a line of units below it."""
    lines = [line for line in text.splitlines() if line.strip()]
    header = next((line for line in lines if _is_header(line)), None)
    if header is None:
        return []
    split = _comma_cells if "," in header else _blank_cells
    names = [_name(cell) for cell in split(header)]
    rows: list[dict[str, str]] = []
    for line in lines[lines.index(header) + 1 :]:
        cells = split(line)
        if line.lstrip().startswith("#") or len(cells) != len(names):
            continue  # dmon's repeated header and units, or a line cut off by the end of the recording
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _is_header(line: str) -> bool:
    cells = {_name(cell) for cell in (_comma_cells(line) if "," in line else _blank_cells(line))}
    return any(name in cells for name in _COLUMNS["sm"])


def _comma_cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line.lstrip("# ")]))]


def _blank_cells(line: str) -> list[str]:
    return line.lstrip("# ").split()


def _name(cell: str) -> str:
    """A column's bare name: "utilization.gpu [%]" -> "utilization.gpu"."""
    return re.sub(r"\s*\[.*\]$", "", cell.strip().lower())


def _sample(row: Mapping[str, str]) -> TelemetrySample | None:
    """The row as a sample; None without SM activity (a lost sample)."""
    values = {key: _number(_first(row, names)) for key, names in _COLUMNS.items()}
    if values["sm"] is None:
        return None
    return TelemetrySample(
        gpu=_first(row, _COLUMNS["gpu"]) or "0",
        sm=_share(values["sm"]),
        memory=_share(values["memory"]),
        power_w=values["power"],
        power_limit_w=values["limit"],
        sm_active=_share(values["sm_active"]),
        occupancy=_share(values["occupancy"]),
        tensor=_share(values["tensor"]),
        dram=_share(values["dram"]),
    )


def _in_spans(at: float | None, spans: Sequence[tuple[float, float]]) -> bool:
    return at is not None and any(start <= at <= end for start, end in spans)


def _first(row: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((row[name] for name in names if row.get(name)), None)


def _number(text: str | None) -> float | None:
    """The figure at the start of a cell ("340.12 W", "97 %"); None for "-", "[N/A]" and the like."""
    found = re.match(r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)", text or "")
    return None if found is None else float(found[1])


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0
