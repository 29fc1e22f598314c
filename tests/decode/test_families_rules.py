"""Every family's rules, on the names that profilers write for the kernels of public projects."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavewise.decode.families import FAMILIES, FamilyRules, required_literals
from wavewise.errors import UsageError


def known() -> list[tuple[str, str, str]]:
    """Project, family and name of kernels as traces name them, template arguments shortened."""
    lines = Path(__file__).with_name("families_known.tsv").read_text(encoding="utf-8").splitlines()
    return [(project, name, family) for project, family, name in (line.split("\t") for line in lines[1:])]


CASES = known()


@pytest.mark.parametrize(("project", "name", "family"), CASES, ids=[f"{p}: {n[:60]}" for p, n, _ in CASES])
def test_names_of_public_kernels(project: str, name: str, family: str) -> None:
    assert FamilyRules.load().classify([name]) == [family]


def test_every_family_has_a_name_that_reaches_it() -> None:
    assert {family for _, _, family in CASES} == set(FAMILIES)


def test_built_in_rules_are_sound_and_cheap() -> None:
    for rule in FamilyRules.load().rules:
        re.compile(rule.pattern)
        assert rule.family in FAMILIES
        assert rule.note, rule.pattern
        assert required_literals(rule.pattern), f"tried on every name, so slow: {rule.pattern}"


def test_no_two_rules_are_the_same() -> None:
    patterns = [rule.pattern for rule in FamilyRules.load().rules]
    assert len(patterns) == len(set(patterns))


def test_kind_goes_before_name() -> None:
    names = ["nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"]
    assert FamilyRules.load().classify(names, ["kernel", "memcpy", "memset"]) == [
        "dense_gemm",
        "memcpy",
        "memset",
    ]
    assert FamilyRules.load().classify(names) == ["dense_gemm", "memcpy", "memset"]
    assert FamilyRules.load().classify(["nvjet_x"], ["memcpy"]) == ["memcpy"]
    assert FamilyRules.load().classify([], []) == []


def test_repeated_names_keep_their_order() -> None:
    names = ["fused_moe_kernel", "nobody_knows", "fused_moe_kernel", "nvjet_a"]
    assert FamilyRules.load().classify(names) == ["moe_gemm", "other", "moe_gemm", "dense_gemm"]


def first_match(rules: FamilyRules, name: str) -> str:
    """What the contract says, without any sifting: the first rule whose pattern is found."""
    return next((rule.family for rule in rules.rules if re.search(rule.pattern, name)), "other")


WORDS = sorted({word for _, name, _ in CASES for word in re.findall(r"\w+|\W+", name)})


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=8).map("".join))
def test_sifting_changes_no_verdict(name: str) -> None:
    rules = FamilyRules.load()
    assert rules.classify([name]) == [first_match(rules, name)]


PIECES = st.sampled_from(
    [
        *"abcXY01_ ",
        "abc",
        "kernel",
        "gemm",
        r"\.",
        r"\(",
        r"\\",
        r"\w",
        r"\d+",
        ".",
        ".*",
        "[a-c]",
        "[^<>]*",
        "[]x]",
    ]
)


def _patterns(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.lists(inner, min_size=1, max_size=4).map("".join)
    alternatives = st.lists(joined, min_size=2, max_size=3).map("|".join)
    group = st.tuples(st.sampled_from(["(", "(?:", "(?i:", "(?P<g>"]), joined | alternatives).map(
        lambda parts: f"{parts[0]}{parts[1]})"
    )
    around = st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda parts: f"{parts[0]}{parts[1]})")
    quantified = st.tuples(
        group | st.sampled_from(["a", "b", "_", r"\w", "[ab]"]),
        st.sampled_from(["?", "*", "+", "{2}", "{0,2}", "{,1}", "+?", "*?"]),
    ).map("".join)
    return joined | alternatives.map(lambda text: f"(?:{text})") | group | around | quantified


@settings(max_examples=500)
@given(st.recursive(PIECES, _patterns, max_leaves=12), st.data())
def test_required_literals_are_required(pattern: str, data: st.DataObject) -> None:
    try:
        compiled = re.compile(pattern)
    except re.error:
        return  # a group name used twice
    literals = required_literals(pattern)
    if literals is None:
        return
    text = data.draw(st.from_regex(compiled))
    assert any(literal in text.lower() for literal in literals), (pattern, literals, text)


def test_required_literals_of_what_rules_use() -> None:
    assert required_literals("fused_moe_kernel") == {"fused_moe_kernel"}
    assert required_literals("moe_sum|TopK(Gating)?Softmax") == {"moe_sum", "softmax"}
    assert required_literals("(?i)all_?reduce") == {"reduce"}
    assert required_literals(r"flash_c\d+_decode") == {"flash_c"}
    assert required_literals("(silu|gelu)_and") == {"silu", "gelu"}
    assert required_literals("ab|cdef") is None
    assert required_literals("(?<!never)yes_it_is") == {"yes_it_is"}
    assert required_literals("(?x) fused kernel") is None


# ---------------------------------------------------------------- a user's own file


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_user_rules_come_first(tmp_path: Path) -> None:
    own = write(tmp_path / "own.toml", "[[rule]]\npattern = 'super_fast'\nfamily = 'moe_gemm'\n"
                "[[rule]]\npattern = 'rms_norm'\nfamily = 'quant'\nnote = 'ours quantises'\n")  # fmt: skip
    rules = FamilyRules.load(own)
    names = ["super_fast_kernel", "void vllm::rms_norm_kernel<1>()", "nvjet_a"]
    assert rules.classify(names) == ["moe_gemm", "quant", "dense_gemm"]
    assert FamilyRules.load().classify(names) == ["other", "norm", "dense_gemm"]
    assert str(own) in rules.source


@pytest.mark.parametrize("inside", [True, False])
def test_user_rules_can_replace(tmp_path: Path, inside: bool) -> None:
    text = "[[rule]]\npattern = 'super_fast'\nfamily = 'moe_gemm'\n"
    own = write(tmp_path / "own.toml", ("replace = true\n" if inside else "") + text)
    rules = FamilyRules.load(own, replace=not inside)
    assert rules.classify(["super_fast_kernel", "nvjet_a"]) == ["moe_gemm", "other"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]\npattern = 'x'\n", "line 1"),
        (
            "[[rule]]\npattern = 'abc'\nfamily = 'moe_gemm'\n\n[[rule]]\npattern = 'a(b'\nfamily = 'norm'\n",
            "rule 2",
        ),
        ("[[rule]]\npattern = 'abc'\nfamily = 'moe'\n", "rule 1: unknown family 'moe'"),
        ("[[rule]]\nfamily = 'norm'\n", "rule 1: needs a pattern"),
        ("[[rule]]\npattern = 'abc'\n", "rule 1: needs a family"),
        ("[[rule]]\npattern = 7\nfamily = 'norm'\n", "rule 1: needs a pattern"),
        ("[[rule]]\npattern = 'abc'\nfamily = 'norm'\nprio = 3\n", "unknown key 'prio'"),
        ("[[rules]]\npattern = 'abc'\nfamily = 'norm'\n", "unknown key 'rules'"),
        ("replace = 'yes'\n[[rule]]\npattern = 'abc'\nfamily = 'norm'\n", "`replace` must be true or false"),
        ("rule = 3\n", "[[rule]] tables"),
        ("", "holds no [[rule]]"),
    ],
)
def test_bad_user_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    own = write(tmp_path / "own.toml", text)
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        FamilyRules.load(own)
    assert str(own) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_user_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such"):
        FamilyRules.load(tmp_path / "no-such.toml")
    with pytest.raises(UsageError, match="cannot read"):
        FamilyRules.load(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        FamilyRules.load(binary)
    with pytest.raises(UsageError, match="--rules"):
        FamilyRules.load(None, replace=True)
