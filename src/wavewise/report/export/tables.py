"""Findings -> flat tables: one polars frame for each kind of row, with stable columns even when it is empty.

Columns follow from the result types: a nested record becomes columns with its name before them
(`step_ms_median`), a grid becomes three (`grid_x`). Rows of a trace carry its number, its path and its device.
"""

import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import polars as pl

from wavewise.findings import (
    BucketUse,
    Candidate,
    Ceiling,
    ContextFit,
    ContextPoint,
    DecodeRow,
    FamilyRow,
    Findings,
    Fit,
    KernelRow,
    LedgerMatch,
    Lever,
    Note,
    OperatingPoint,
    Point,
    RankRow,
    RecordedPoint,
    Samples,
    StepRow,
    Throughput,
    TraceFindings,
    Warning,
    WhatIf,
)

_AXES = ("x", "y", "z")
_SCALARS: dict[type, pl.DataType] = {
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
}

_TEXTS = (tuple[str, ...], tuple[int, ...], dict[str, str], dict[str, float])
"""What becomes one text, "a, b" or "key=value, ...": a CSV cell holds nothing else."""

Columns = dict[str, pl.DataType]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of one record type, each with keys that say where it belongs."""

    record: type[msgspec.Struct]
    keys: Columns
    rows: Callable[[Findings], Iterable[tuple[Row, msgspec.Struct]]]


_TRACE: Columns = {"trace": pl.Int64(), "path": pl.String(), "device": pl.Int64()}
_BATCH: Columns = {"batch_size": pl.Int64(), "bucket": pl.Int64(), "context_length": pl.Int64()}


def tables(findings: Findings) -> dict[str, pl.DataFrame]:
    """Every table by name.

    Returns:
        traces, warnings, steps, decode, decode_families, kernels, bucket_use, samples, sample_families,
        unexplained_names, operating_points, operating_point_families, fits, fit_points, fit_candidates,
        context_fits, context_points, throughput, ceilings, what_ifs, levers, lever_ledger, ranks, recorded, notes.
    """
    frames = {name: _frame(table, findings) for name, table in _TABLES.items()}
    return frames | {"samples": _samples(findings), "sample_families": _sample_families(findings)}


def _frame(table: _Table, findings: Findings) -> pl.DataFrame:
    own = _columns(table.record)
    schema = {**table.keys, **own}
    rows = [{**_values(record), **keys} for keys, record in table.rows(findings)]
    return pl.DataFrame(
        [{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row"
    )


@cache
def _columns(record: type[msgspec.Struct]) -> Columns:
    """The columns of a record type; lists of records, and samples, have tables of their own."""
    columns: Columns = {}
    hints = get_type_hints(record)
    for field in record.__struct_fields__:
        kind = _without_none(hints[field])
        if kind in _SCALARS:
            columns[field] = _SCALARS[kind]
        elif kind is Samples:
            continue
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            columns |= {f"{field}_{name}": inner for name, inner in _columns(kind).items()}
        elif get_origin(kind) is tuple and kind == tuple[int, int, int]:
            columns |= {f"{field}_{axis}": pl.Int64() for axis in _AXES}
        elif get_origin(kind) is tuple and kind == tuple[float, float]:
            columns |= {f"{field}_low": pl.Float64(), f"{field}_high": pl.Float64()}
        elif kind in _TEXTS:
            columns[field] = pl.String()
    return columns


def _without_none(kind: Any) -> Any:
    """`X` for `X | None`."""
    if get_origin(kind) in (types.UnionType, typing.Union):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


def _values(record: msgspec.Struct) -> Row:
    """The values of a record under the names of `_columns`."""
    values: Row = {}
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if isinstance(value, msgspec.Struct):
            values |= {f"{field}_{name}": inner for name, inner in _values(value).items()}
        elif isinstance(value, tuple) and len(value) == 3 and all(isinstance(each, int) for each in value):
            values |= {f"{field}_{axis}": each for axis, each in zip(_AXES, value, strict=True)}
        elif isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, float) for each in value):
            values |= {f"{field}_low": value[0], f"{field}_high": value[1]}
        elif isinstance(value, dict):
            values[field] = ", ".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, tuple):
            values[field] = ", ".join(map(str, value))
        else:
            values[field] = value
    return values


# ---------------------------------------------------------------- where rows come from


def _keys(index: int, trace: TraceFindings) -> Row:
    return {"trace": index, "path": trace.path, "device": trace.device}


def _of_traces(
    take: Callable[[TraceFindings], Sequence[msgspec.Struct]],
) -> Callable[[Findings], Iterable[tuple[Row, msgspec.Struct]]]:
    return lambda findings: [
        (_keys(index, trace), record) for index, trace in enumerate(findings.traces) for record in take(trace)
    ]


def _size(row: DecodeRow | OperatingPoint) -> Row:
    return {"batch_size": row.batch_size, "bucket": row.bucket, "context_length": row.context_length}


def _decode_families(findings: Findings) -> Iterable[tuple[Row, msgspec.Struct]]:
    for index, trace in enumerate(findings.traces):
        for row in trace.decode:
            yield from (({**_keys(index, trace), **_size(row)}, family) for family in row.families)


def _point_families(findings: Findings) -> Iterable[tuple[Row, msgspec.Struct]]:
    for number, point in enumerate(findings.operating_points):
        yield from (({"operating_point": number, **_size(point)}, family) for family in point.families)


def _fits(findings: Findings) -> list[tuple[Row, Fit]]:
    """Every fit with what it is of: "step", "span" or a family."""
    scaling = findings.scaling
    if scaling is None:
        return []
    found = [({"quantity": "step"}, scaling.step)]
    found += [({"quantity": "span"}, scaling.span)] if scaling.span is not None else []
    return found + [({"quantity": f"family.{fit.family}"}, fit) for fit in scaling.families]


def _context_fits(findings: Findings) -> list[tuple[Row, ContextFit]]:
    """Every line over context lengths, with its batch size and what it is of."""
    found: list[tuple[Row, ContextFit]] = []
    for scaling in findings.context_scaling:
        fits = [("step", scaling.step), *([("span", scaling.span)] if scaling.span is not None else [])]
        fits += [(f"family.{fit.family}", fit) for fit in scaling.families]
        found += [({"batch_size": scaling.batch_size, "quantity": name}, fit) for name, fit in fits]
    return found


def _unexplained(trace: TraceFindings) -> list["_UnexplainedName"]:
    return [_UnexplainedName(name=name, share_of_busy=share) for name, share in trace.unexplained_names]


class _UnexplainedName(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    share_of_busy: float


_QUANTITY: Columns = {"quantity": pl.String()}
_AT_BATCH: Columns = {"batch_size": pl.Int64(), **_QUANTITY}

_TABLES: Mapping[str, _Table] = {
    "traces": _Table(TraceFindings, {"trace": pl.Int64()}, _of_traces(lambda trace: [trace])),
    "warnings": _Table(Warning, _TRACE, _of_traces(lambda trace: trace.events.warnings)),
    "steps": _Table(StepRow, _TRACE, _of_traces(lambda trace: trace.steps)),
    "decode": _Table(DecodeRow, _TRACE, _of_traces(lambda trace: trace.decode)),
    "decode_families": _Table(FamilyRow, {**_TRACE, **_BATCH}, _decode_families),
    "kernels": _Table(KernelRow, _TRACE, _of_traces(lambda trace: trace.kernels)),
    "bucket_use": _Table(BucketUse, _TRACE, _of_traces(lambda trace: trace.bucket_use)),
    "unexplained_names": _Table(_UnexplainedName, _TRACE, _of_traces(_unexplained)),
    "operating_points": _Table(
        OperatingPoint,
        {"operating_point": pl.Int64()},
        lambda findings: [
            ({"operating_point": number}, point) for number, point in enumerate(findings.operating_points)
        ],
    ),
    "operating_point_families": _Table(FamilyRow, {"operating_point": pl.Int64(), **_BATCH}, _point_families),
    "fits": _Table(Fit, _QUANTITY, _fits),
    "fit_points": _Table(
        Point,
        _QUANTITY,
        lambda findings: [(keys, point) for keys, fit in _fits(findings) for point in fit.points],
    ),
    "fit_candidates": _Table(
        Candidate,
        _QUANTITY,
        lambda findings: [(keys, each) for keys, fit in _fits(findings) for each in fit.candidates],
    ),
    "context_fits": _Table(ContextFit, _AT_BATCH, _context_fits),
    "context_points": _Table(
        ContextPoint,
        _AT_BATCH,
        lambda findings: [(keys, point) for keys, fit in _context_fits(findings) for point in fit.points],
    ),
    "throughput": _Table(
        Throughput,
        {},
        lambda findings: [({}, row) for row in (findings.scaling.throughput if findings.scaling else ())],
    ),
    "ceilings": _Table(Ceiling, {}, lambda findings: [({}, row) for row in findings.ceilings or ()]),
    "what_ifs": _Table(WhatIf, {}, lambda findings: [({}, row) for row in findings.what_ifs or ()]),
    "levers": _Table(Lever, {}, lambda findings: [({}, row) for row in findings.levers or ()]),
    "lever_ledger": _Table(
        LedgerMatch,
        {"lever": pl.String()},
        lambda findings: [
            ({"lever": lever.id}, each) for lever in findings.levers or () for each in lever.ledger
        ],
    ),
    "ranks": _Table(
        RankRow, {}, lambda findings: [({}, row) for row in findings.ranks.rows] if findings.ranks else []
    ),
    "recorded": _Table(RecordedPoint, {}, lambda findings: [({}, row) for row in findings.recorded]),
    "notes": _Table(Note, {}, lambda findings: [({}, row) for row in findings.notes]),
}


def _samples(findings: Findings) -> pl.DataFrame:
    """One row per clean step: the raw figures behind the medians, in nanoseconds."""
    schema: Columns = {**_TRACE, **_BATCH, "step": pl.Int64()}
    schema |= dict.fromkeys(("step_ns", "span_ns", "busy_ns", "sum_ns", "boundary_ns"), pl.Int64())
    rows: list[Row] = []
    for keys, row in _sampled(findings):
        samples = row.samples
        assert samples is not None
        columns = (samples.step_ns, samples.span_ns, samples.busy_ns, samples.sum_ns, samples.boundary_ns)
        for number, figures in enumerate(zip(*columns, strict=True)):
            rows.append({**keys, "step": number, **dict(zip(list(schema)[-5:], figures, strict=True))})
    return pl.DataFrame(rows, schema=schema, orient="row")


def _sample_families(findings: Findings) -> pl.DataFrame:
    """One row per clean step and family: its summed kernel time, in nanoseconds."""
    schema: Columns = {**_TRACE, **_BATCH, "step": pl.Int64(), "family": pl.String(), "sum_ns": pl.Int64()}
    rows = [
        {**keys, "step": number, "family": family, "sum_ns": value}
        for keys, row in _sampled(findings)
        if row.samples is not None
        for family, values in row.samples.families.items()
        for number, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _sampled(findings: Findings) -> list[tuple[Row, DecodeRow]]:
    return [
        ({**_keys(index, trace), **_size(row)}, row)
        for index, trace in enumerate(findings.traces)
        for row in trace.decode
        if row.samples is not None
    ]
