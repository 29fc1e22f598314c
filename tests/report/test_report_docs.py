"""The page that defines the numbers knows every name in findings.json, and the glossary agrees with it."""

import re
import typing
from pathlib import Path

import msgspec
import pytest

from wavewise.findings import Findings
from wavewise.report.compose import compose
from wavewise.report.glossary import forms, glossary, pattern

DOCS = Path(__file__).parents[2] / "docs"


def field_names() -> set[str]:
    """Every key of findings.json."""
    seen: set[object] = set()
    names: set[str] = set()

    def walk(kind: object) -> None:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind in seen:
                return
            seen.add(kind)
            names.update(field.encode_name for field in msgspec.structs.fields(kind))
            for each in typing.get_type_hints(kind).values():
                walk(each)
        for each in typing.get_args(kind):
            walk(each)

    walk(Findings)
    return names


def test_every_key_of_findings_json_is_defined() -> None:
    text = (DOCS / "findings.md").read_text("utf-8")
    named = {part for quoted in re.findall(r"`([^`]+)`", text) for part in re.split(r"\W+", quoted)}
    assert field_names() - named == set()


def test_every_term_explains_itself_in_a_sentence() -> None:
    for term, meaning in glossary().items():
        assert meaning.endswith("."), term
        assert len(meaning) <= 240, term
    assert set(forms().values()) == set(glossary())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("two clean steps of a replay", ["clean steps", "replay"]),
        ("the non-clean ones and busyness", []),
        ("CTAs per SM, then SMs", ["CTAs per SM", "SMs"]),
    ],
)
def test_terms_are_found_as_whole_words_the_longest_first(text: str, found: list[str]) -> None:
    assert pattern().findall(text) == found


def test_every_column_that_claims_an_explanation_has_one() -> None:
    import report_builder as build

    for section in compose(build.sweep_findings()).sections:
        for table in section.tables:
            for column in table.columns:
                assert column.term is None or column.term in glossary(), (table.name, column)


def test_the_first_report_quotes_what_the_program_prints() -> None:
    import io

    from rich.console import Console

    from wavewise.analysis import analyze
    from wavewise.report import render_terminal

    sweep = DOCS.parent / "examples" / "h200-vllm-dsv4" / "context4k"
    if not sweep.is_dir():
        pytest.skip("the example sweep is not in this checkout")
    out = io.StringIO()
    render_terminal(analyze([sweep]), Console(file=out))
    quoted = re.findall(
        r"^```text\n(.*?)^```$", (DOCS / "reading-your-first-report.md").read_text("utf-8"), re.M | re.S
    )
    assert len(quoted) == 10
    for block in quoted:
        assert block in out.getvalue()
