"""Sentences on ceilings name what they are about: the family that has no floor, the size of the host floor."""

from pathlib import Path

import pytest

from wavewise.analysis import Settings, analyze
from wavewise.findings import Findings
from wavewise.report import ceilings_text

BS8 = Path(__file__).parents[2] / "examples" / "h200-vllm-dsv4" / "context4k" / "bs008.json.gz"


def sentences(findings: Findings) -> list[str]:
    return [line for section in ceilings_text.sections(findings) for line in section.sentences]


@pytest.fixture(scope="module")
def unlabelled() -> Findings:
    if not BS8.is_file():
        pytest.skip("the example sweep is not in this checkout")
    return analyze([BS8])


def test_families_without_a_floor_are_named_beside_those_with_one(unlabelled: Findings) -> None:
    said = sentences(unlabelled)
    floored = {line.split("`")[1] for line in said if "roofline floor is" in line}
    (without,) = (line for line in said if line.startswith("No roofline floor"))
    assert floored == {"moe_gemm", "dense_gemm"}
    assert without.startswith("No roofline floor for `attention_split` and `indexer`: the context length")


def test_a_known_context_leaves_no_family_without_a_floor() -> None:
    if not BS8.is_file():
        pytest.skip("the example sweep is not in this checkout")
    told = analyze([BS8], settings=Settings(labels={BS8: {"context": "4k"}}))
    assert not [line for line in sentences(told) if line.startswith("No roofline floor")]


def test_the_host_floor_says_at_which_size(unlabelled: Findings) -> None:
    (floor,) = (line for line in sentences(unlabelled) if line.startswith("The host floor"))
    assert floor.startswith("The host floor of a step at batch 8, its smallest clean boundary")
