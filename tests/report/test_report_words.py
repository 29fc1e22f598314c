"""Wording of names and quantities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavewise.report.section import code, listing, number, plain, spans
from wavewise.report.words import (
    amount,
    bound,
    families_in_words,
    grid_text,
    middle,
    ms,
    percent,
    plural,
    printable,
    short_kernel,
    short_path,
    tell_apart,
)


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (
            "void marlin_moe_wna16::Marlin<112l, 56l, 128, true>(int4 const*, int4*)",
            "marlin_moe_wna16::Marlin",
        ),
        ("smxx::decode::get_mla_metadata_kernel(Params)", "decode::get_mla_metadata_kernel"),
        ("_fused_inv_rope_fp8_quant_per_head", "_fused_inv_rope_fp8_quant_per_head"),
        ("nvjet_sm90_tss_64x32_64x16_4x2_h_bz_splitK_TNT", "nvjet_sm90_tss_64x32_64x16_4x2_h_bz_splitK_TNT"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, "
            "std::array<char*, 1ul> >(int, at::native::FillFunctor<int>, std::array<char*, 1ul>)",
            "native::vectorized_elementwise_kernel<FillFunctor>",
        ),
        ("void (anonymous namespace)::elementwise<float>(float*)", "elementwise"),
        (
            "void cutlass::Kernel<sm90::KernelTemplate<(ModelType)1, 64>, (cute::Major)0>(Params)",
            "cutlass::Kernel",
        ),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD"),
        ("operator<<", "operator"),
        ("<lambda>", "<lambda>"),
    ],
)
def test_a_kernel_is_called_by_its_own_name(full: str, short: str) -> None:
    assert short_kernel(full) == short


@given(st.text(max_size=300))
def test_a_short_name_is_printable_and_fits_or_names_its_functor(name: str) -> None:
    short = short_kernel(name, 40)
    assert len(short) <= 40
    assert short.replace("\n", "").isprintable()


def test_template_variants_keep_the_values_that_differ() -> None:
    names = [
        "void gemm<(cute::Major)0, 4096u, 8192u, 1u>(float*)",
        "void gemm<(cute::Major)0, 1024u, 8192u, 8u>(float*)",
        "void norm<4096u>(float*)",
    ]
    assert tell_apart(names) == {
        names[0]: "gemm<4096u, 1u>",
        names[1]: "gemm<1024u, 8u>",
        names[2]: "norm",
    }


@given(st.lists(st.text(max_size=80), max_size=12))
def test_every_kernel_gets_a_name(names: list[str]) -> None:
    assert set(tell_apart(names)) == set(names)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.0001, "< 0.1 %"),
        (0.0044, "0.4 %"),
        (0.66, "66 %"),
        (0.9914, "99.1 %"),
        (0.99998, "> 99.9 %"),
        (1.0, "100.0 %"),
        (1.5, "150.0 %"),
    ],
)
def test_shares_never_round_to_nothing_or_everything(share: float, text: str) -> None:
    assert percent(share) == text


def test_counts_agree_with_their_nouns() -> None:
    assert plural(1, "step") == "1 step"
    assert plural(2300, "step") == "2,300 steps"
    assert plural(2, "family", "families") == "2 families"
    assert plural(2.5, "launch", "launches") == "2.5 launches"


def test_families_are_called_by_their_words() -> None:
    assert (
        families_in_words("`moe_gemm` is the slope, `other` is not")
        == "MoE GEMM is the slope, `other` is not"
    )
    assert families_in_words("moe_gemm and `moe_gemms`") == "moe_gemm and `moe_gemms`"


def test_small_helpers() -> None:
    assert grid_text((1, 1, 132)) == "1 x 1 x 132"
    assert grid_text((132, 1, 1)) == "132"
    assert grid_text(None) == "-"
    assert middle("abcdefghij", 7) == "abc..ij"
    assert short_path("/data/run/context4k/bs064.json.gz") == "context4k/bs064.json.gz"
    assert short_path("/bs064.json.gz") == "/bs064.json.gz"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing([]) == ""


def test_numbers_stay_with_their_units() -> None:
    assert (
        bound("takes 253 us, 99.1 % busy, <= 80 registers", "_")
        == "takes 253_us, 99.1_% busy, <=_80 registers"
    )
    assert bound("6 clean steps", "_") == "6 clean steps"


def test_what_was_not_measured_is_never_zero() -> None:
    cell = number(None, hover="no registers recorded")
    assert cell.text == "-"
    assert cell.hover == "no registers recorded"
    assert number(0.0, "0").text == "0"


@given(st.text())
def test_sentences_keep_their_text(text: str) -> None:
    assert plain(text) == printable(text).replace("`", "") or text.count("`") % 2 == 1


@given(st.text(max_size=60))
def test_a_name_can_never_end_its_own_quoting(name: str) -> None:
    (piece,) = spans(code(name))
    assert piece[1]
    assert "`" not in piece[0]


@given(st.text())
def test_control_characters_and_surrogates_never_survive(text: str) -> None:
    cleaned = printable(text)
    assert not any((ord(char) < 32 and char != "\n") or 127 <= ord(char) < 160 for char in cleaned)
    cleaned.encode("utf-8")
    assert printable("\x1b[31mred\udc80") == "?[31mred?"


def test_a_family_that_begins_a_sentence_has_a_capital() -> None:
    assert families_in_words(
        "`attention_split` grows. `dense_gemm` and `kv_cache` do not. `moe_gemm` does."
    ) == ("Attention split grows. Dense GEMM and KV cache do not. MoE GEMM does.")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0000005, "ms", "0"),  # half a nanosecond: a median of two whole ones
        (0.000001, "ms", "0.000001"),
        (0.00000149, "ms", "0.000001"),
        (0.0123456, "ms", "0.0123"),
        (0.0123456, "us", "0.012"),
        (0.0004, "us", "0"),
        (0.384, "us", "0.384"),
        (-0.0000004, "ms", "0"),
        (12345.678, "us", "12,346"),
        (0.0, "ms", "0"),
    ],
)
def test_times_have_no_digits_below_a_nanosecond(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text


@given(st.floats(-1e9, 1e9), st.sampled_from(["ms", "us", "ns", "s", "tokens/s"]))
def test_an_amount_reads_back_to_its_resolution(value: float, unit: str) -> None:
    text = amount(value, unit)
    least = {"ms": 1e-6, "us": 1e-3, "ns": 1.0, "s": 1e-9}.get(unit, 1e-6)
    assert abs(float(text.replace(",", "")) - value) <= max(0.51 * least, 0.0051 * abs(value))
    assert len(text.partition(".")[2]) <= {"ms": 6, "us": 3, "ns": 0, "s": 9}.get(unit, 6)


def test_a_time_below_the_resolution_is_not_called_none() -> None:
    assert ms(0.0) == "0 ns"
    assert ms(0.0000003) == "under 1 ns"
    assert ms(0.000001) == "1 ns"
