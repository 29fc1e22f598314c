"""Any figure may be missing: whatever is null in findings.json, every rendering still renders."""

import io
import random
import typing
from types import UnionType

import msgspec
import pytest
import report_builder as build
from rich.console import Console

from wavewise.findings import (
    BucketUse,
    DecodeRow,
    FamilyRow,
    Findings,
    KernelRow,
    Lever,
    Note,
    StepRow,
    Warning,
)
from wavewise.report import render_html, render_json, render_markdown, render_terminal
from wavewise.report.charts import pictures
from wavewise.scaling import fit_scaling

MAY_BE_ABSENT = (StepRow, KernelRow, DecodeRow, FamilyRow, BucketUse, Warning, Lever, Note)
"""Rows that stand for themselves; others come in sets (a family's ceilings, a fit's points)."""


IDENTITY = {"batch_size", "context_length", "family"}
"""What tells rows apart, or always stands beside a figure, as a reason does."""


def with_holes(value: object, hint: object, dice: random.Random, chance: float) -> object:
    """`value` with fields that may be None set to None, and sequences emptied, by chance."""
    if isinstance(value, msgspec.Struct):
        hints = typing.get_type_hints(type(value))
        changed: dict[str, object] = {}
        for field in msgspec.structs.fields(type(value)):
            own = hints[field.name]
            may = field.name not in IDENTITY and "reason" not in field.name
            optional = may and type(None) in typing.get_args(own) and isinstance(own, UnionType)
            if optional and dice.random() < chance:
                changed[field.name] = None
            else:
                changed[field.name] = with_holes(getattr(value, field.name), own, dice, chance)
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        kept = [item for item in value if not isinstance(item, MAY_BE_ABSENT) or dice.random() >= chance / 4]
        return tuple(with_holes(item, None, dice, chance) for item in kept)
    return value


@pytest.fixture(scope="module")
def whole() -> Findings:
    findings = build.sweep_findings()
    scaling, _ = fit_scaling(findings.operating_points)
    return msgspec.structs.replace(findings, scaling=scaling)


@pytest.mark.parametrize("chance", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("seed", range(6))
def test_every_text_survives_missing_figures(whole: Findings, seed: int, chance: float) -> None:
    findings = with_holes(whole, None, random.Random(seed), chance)
    assert isinstance(findings, Findings)
    out = io.StringIO()
    render_terminal(findings, Console(file=out))
    assert "None" not in out.getvalue()
    assert "nan" not in out.getvalue()
    render_markdown(findings)
    render_json(findings)
    pictures(findings)


@pytest.mark.parametrize("seed", range(6))
def test_the_page_survives_missing_figures(whole: Findings, seed: int) -> None:
    findings = with_holes(whole, None, random.Random(seed), 0.3)
    assert isinstance(findings, Findings)
    findings = msgspec.structs.replace(findings, operating_points=())
    assert render_html(findings).endswith("</html>")
