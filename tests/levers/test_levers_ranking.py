"""Ranking, ceilings, what was tried, and the ledger's verdicts beside the savings."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from levers_builders import H200, PRO_6000, expert_fit, findings, kernel, next_cta, point

from wavewise.ceilings import load_shape
from wavewise.errors import InputError, UsageError
from wavewise.findings import Findings, Lever
from wavewise.levers import Known, Ledger, load_catalogue, load_ledger, rank
from wavewise.levers.ledger import Entry, Setting
from wavewise.levers.ledger.setting import version_key
from wavewise.report.levers_text import sections


def h200_like() -> Findings:
    """Two batch sizes with the proportions of the recorded sweep."""
    figures = {32: (2633.0, 172.0, 231.0), 64: (4207.0, 230.0, 253.0)}
    points = tuple(
        point(
            b,
            {"moe_gemm": moe, "attention_split": split, "attention_schedule": schedule, "dense_gemm": 600.0},
            boundary_us=1800.0,
            launch_us=30.0,
            launches={"attention_schedule": 8.0, "attention_split": 8.0},
        )
        for b, (moe, split, schedule) in figures.items()
    )
    kernels = tuple(
        k
        for b, (moe, split, schedule) in figures.items()
        for k in (
            kernel(
                "moe_gemm", moe, 16, batch=b, name="Marlin", grid=(528, 1, 1), ctas_per_sm=4, persistent=True
            ),
            kernel("attention_split", split, 8, batch=b, name="flash_mla", grid=(1, 1, 132), persistent=True),
            kernel(
                "attention_schedule", schedule, 8, batch=b, name="get_mla_metadata_kernel", grid=(1, 1, 1)
            ),
        )
    )
    return findings(points, kernels, fits=(expert_fit(18.0),))


def by_id(levers: tuple[Lever, ...]) -> dict[str, Lever]:
    return {lever.id: lever for lever in levers}


def test_the_dearest_saving_at_the_largest_batch_comes_first() -> None:
    levers = rank(h200_like())
    assert [lever.id for lever in levers[:3]] == [
        "host-boundary",
        "opportunistic-expert-activation",
        "helper-kernels",
    ]
    assert levers[0].predicted_saving_us_per_step == pytest.approx(1800.0 - 30.0)
    assert levers[2].predicted_saving_us_per_step == pytest.approx(253.0 * 7 / 8)
    assert "253 against 230 us at batch 64" in levers[2].evidence
    # Speculation can be judged at batch 32 only (64 tokens were measured): it ranks behind all savings at 64.
    at_64 = [lever.predicted_saving_us_per_step or 0.0 for lever in levers if lever.batch_size == 64]
    assert [s for s in at_64 if s] == sorted((s for s in at_64 if s), reverse=True)
    ids = [lever.id for lever in levers]
    assert by_id(levers)["speculative-decoding"].batch_size == 32
    assert ids.index("speculative-decoding") == sum(s > 0.0 for s in at_64)
    judged = [lever.predicted_saving_us_per_step is not None for lever in levers]
    assert judged == sorted(judged, reverse=True)


def test_every_lever_of_the_catalogue_with_an_evaluator_is_answered_once() -> None:
    levers = rank(h200_like())
    assert sorted(lever.id for lever in levers) == sorted(s.id for s in load_catalogue() if s.evaluator)
    for lever in levers:
        assert lever.basis
        assert (lever.predicted_saving_us_per_step is None) == (lever.needs is not None)


def test_a_saving_is_recomputed_from_its_basis() -> None:
    lever = by_id(rank(h200_like()))["opportunistic-expert-activation"]
    share = {k: 1 - (1 - k / 256) ** 64 for k in (6, 4)}
    assert lever.predicted_saving_us_per_step == pytest.approx(18.0 * 256 * (share[6] - share[4]))
    assert f"{18.0 * 256:.1f} us" in lever.basis
    assert f"{share[6]:.4f}" in lever.basis
    assert f"{share[4]:.4f}" in lever.basis


def test_a_models_shape_completes_what_is_known() -> None:
    shape = load_shape("deepseek-v4-flash")
    filled = Known(kernel_heads=64, gpus=4).with_shape(shape)
    # 43 layers: window, sparse and heavy ones; 64 heads over 4 GPUs; 3 x 4096 x 2048 weights of 4.25 bits over 4.
    assert (filled.attention_kinds, filled.moe_layers, filled.heads_per_gpu) == (3, 43, 16)
    assert filled.expert_bytes == round(3 * 4096 * 2048 * 4.25 / 8 / 4)
    assert filled.model == "DeepSeek-V4-Flash"
    unknown = Known().with_shape(shape)
    assert (unknown.heads_per_gpu, unknown.expert_bytes) == (None, None)
    assert Known(model="mine", heads_per_gpu=8, gpus=4).with_shape(shape).heads_per_gpu == 8


def test_no_saving_passes_the_ceiling_of_its_families() -> None:
    # Half of the schedule's time is hidden behind other kernels: only 126 us would vanish if it were free.
    made = point(
        64,
        {"attention_schedule": 253.0, "attention_split": 230.0},
        launches={"attention_schedule": 8.0},
        exclusive={"attention_schedule": 126.0, "attention_split": 230.0},
    )
    lever = by_id(rank(findings((made,))))["helper-kernels"]
    assert lever.predicted_saving_us_per_step == pytest.approx(126.0)
    assert lever.ceiling_us_per_step == pytest.approx(126.0)
    assert "held at the ceiling" in lever.basis


def test_a_lever_of_small_batches_is_shown_where_it_saves_and_ranks_behind() -> None:
    points = (point(1, {"attention": 60_000.0}), point(64, {"attention": 70_000.0, "moe_gemm": 10.0}))
    kernels = (
        kernel("attention", 60_000.0, 42, batch=1, grid=(1, 64, 1)),
        kernel("attention", 70_000.0, 42, batch=64, grid=(94, 64, 1)),
    )
    levers = rank(findings(points, kernels, gpu=PRO_6000))
    split = by_id(levers)["split-kv"]
    assert split.batch_size == 1
    assert split.predicted_saving_us_per_step == pytest.approx(60_000.0 * (1 - 5 / 14) - 42 * 4.2)
    ahead = levers[: [lever.id for lever in levers].index("split-kv")]
    assert all(lever.batch_size == 64 for lever in ahead)


def test_a_named_batch_size_is_judged() -> None:
    levers = by_id(rank(h200_like(), batch_size=32))
    assert levers["helper-kernels"].predicted_saving_us_per_step == pytest.approx(231.0 * 7 / 8)
    with pytest.raises(UsageError, match="batch size 48"):
        rank(h200_like(), batch_size=48)


def test_nothing_to_judge_gives_no_levers() -> None:
    assert rank(Findings(traces=())) == ()


# --- tried ------------------------------------------------------------------------------------------------------


def profile_of_the_mission() -> Findings:
    """3,830 ms of kernels: attention 2,412, MoE 380, communication 85; graphs on, 2.6 % of the step idle."""
    families = {"attention": 2412e3, "moe_gemm": 380e3, "all_reduce": 85e3, "dense_gemm": 953e3}
    return findings(
        (point(1, families, boundary_us=0.0),), (kernel("attention", 2412e3, batch=1),), gpu=PRO_6000
    )


def test_what_was_tried_is_bounded_by_its_familys_share() -> None:
    levers = by_id(rank(profile_of_the_mission(), tried=["nccl-tuning", "cuda-graphs", "EP4"]))
    nccl = levers["nccl-tuning"].tried
    assert nccl is not None
    assert nccl.share == pytest.approx(85 / 3830)
    assert nccl.at_most_speedup == pytest.approx(3830 / 3745)
    assert nccl.sentence.startswith("communication is 2.2 % of the step at batch 1")
    assert nccl.sentence.endswith("at most 1.02x")
    graphs = levers["cuda-graphs"].tried
    assert graphs is not None
    assert graphs.at_most_speedup == pytest.approx(1.0)
    parallel = levers["expert-parallel"].tried
    assert parallel is not None
    assert parallel.name == "EP4"
    assert parallel.at_most_speedup == pytest.approx(3830 / (3830 - 465))


def test_a_host_lever_is_bounded_by_the_step_boundary() -> None:
    found = by_id(rank(h200_like(), tried=["numa pinning"]))["host-pinning"].tried
    assert found is not None
    step = 4207.0 + 230.0 + 253.0 + 600.0 + 1800.0
    assert found.at_most_speedup == pytest.approx(step / (step - 1800.0))


def test_a_family_that_is_not_there_could_buy_nothing() -> None:
    found = by_id(rank(h200_like(), tried=["mscclpp"]))["mscclpp"].tried
    assert found is not None
    assert found.at_most_speedup == pytest.approx(1.0)
    assert "no communication in the replay" in found.sentence


def test_an_unknown_tried_lever_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="nearest: nccl-tuning"):
        rank(h200_like(), tried=["nccl-tunning"])


# --- ledger -----------------------------------------------------------------------------------------------------


def entry(**more: object) -> Entry:
    base = {"id": "x", "lever": "helper-kernels", "verdict": "no gain", "evidence": "e", "source": "s"}
    return Entry(**{**base, **more})  # type: ignore[arg-type]


def test_the_packaged_verdicts_hold_on_their_platform_alone() -> None:
    book = load_ledger()
    here = by_id(rank(profile_of_the_mission(), ledger=book, tried=["nccl-tuning", "mscclpp"]))
    # The trace is of vLLM, the entries of SGLang: they are shown, and do not hold.
    assert here["nccl-tuning"].verdict_in_ledger is None
    assert {m.holds for m in here["nccl-tuning"].ledger} == {"elsewhere"}
    made = profile_of_the_mission()
    sglang = findings(
        tuple(_with_engine(p) for p in made.operating_points),
        made.traces[0].kernels,
        gpu=PRO_6000,
        engine="sglang",
    )
    there = by_id(rank(sglang, ledger=book, tried=["nccl-tuning", "mscclpp"]))
    assert there["nccl-tuning"].verdict_in_ledger == "no gain"
    assert there["mscclpp"].verdict_in_ledger == "contradicted"
    on_hopper = by_id(rank(h200_like(), ledger=book, tried=["nccl-tuning", "mscclpp"]))
    assert on_hopper["nccl-tuning"].verdict_in_ledger is None
    assert "not for NVIDIA H200" in on_hopper["nccl-tuning"].ledger[0].why


def _with_engine(made):
    from msgspec.structs import replace as replaced

    return replaced(made, engine="sglang")


@pytest.mark.parametrize(
    ("platform", "setting", "holds"),
    [
        ({}, {}, "here"),
        ({"gpu": "H200"}, {}, "here"),
        ({"gpu": "h200"}, {}, "here"),
        ({"gpu": "RTX PRO 6000"}, {}, "elsewhere"),
        ({"gpu": "H20"}, {}, "elsewhere"),
        ({"gpu": "H200"}, {"gpu": None, "gpu_id": None}, "elsewhere"),
        ({"interconnect": "pcie"}, {}, "elsewhere"),
        ({"interconnect": "NVLink"}, {}, "here"),
        ({"model": "DeepSeek-V4"}, {}, "here"),
        ({"model": "DeepSeek-V4"}, {"model": "DeepSeek-V4-Flash"}, "here"),
        ({"model": "DeepSeek-V4"}, {"model": "Qwen3-30B"}, "elsewhere"),
        ({"engine": "sglang"}, {}, "elsewhere"),
        ({"engine": "vllm", "reopens_at": "0.27"}, {"engine_version": "0.26.0"}, "here"),
        ({"engine": "vllm", "reopens_at": "0.27"}, {"engine_version": "0.27.1rc1"}, "expired"),
        ({"engine": "vllm", "reopens_at": "0.27"}, {}, "here"),
        ({"expires": dt.date(2026, 1, 1)}, {}, "expired"),
        ({"expires": dt.date(2027, 1, 1)}, {}, "here"),
    ],
)
def test_an_entry_holds_where_its_platform_does(
    platform: dict[str, object], setting: dict[str, object], holds: str
) -> None:
    here = replace(Setting.of(H200, "vllm", Known()), today=dt.date(2026, 11, 29), **setting)  # type: ignore[arg-type]
    assert here.holds(entry(**platform))[0] == holds


def test_versions_compare_by_release_numbers() -> None:
    assert version_key("0.10") > version_key("0.9.9")
    assert version_key("v0.27.0") == version_key("0.27")
    assert version_key("0.26.0rc1") == version_key("0.26")


def test_contradictions_are_shown_and_not_resolved() -> None:
    book = Ledger((entry(id="a", verdict="works"), entry(id="b", verdict="worse")))
    lever = by_id(rank(h200_like(), ledger=book))["helper-kernels"]
    assert lever.verdict_in_ledger == "contradicted"
    assert {m.verdict for m in lever.ledger} == {"works", "worse"}
    assert [c.subject for c in book.conflicts()] == ["helper-kernels"]


def test_entries_for_different_platforms_do_not_contradict() -> None:
    book = Ledger((entry(id="a", verdict="works", gpu="H200"), entry(id="b", verdict="worse", gpu="L40S")))
    assert book.conflicts() == ()
    assert book.verdict("helper-kernels", Setting.of(H200, "vllm", Known())) == "works"


def test_a_third_entry_does_not_tie_two_platforms_together() -> None:
    book = Ledger(
        (
            entry(id="a", verdict="works", gpu="H200"),
            entry(id="b", verdict="worse", gpu="L40S"),
            entry(id="c", verdict="works"),
        )
    )
    assert [[s.id for s in c.statements] for c in book.conflicts()] == [["b", "c"]]


def test_drafts_never_count() -> None:
    book = Ledger((entry(verdict="worse", status="draft"),))
    assert book.verdict("helper-kernels", Setting.of(H200, "vllm", Known())) is None
    assert book.drafts


def test_the_packaged_ledger_holds_both_sides_of_every_contradiction() -> None:
    subjects = {c.subject: c for c in load_ledger().conflicts()}
    for lever in ("single-batch-overlap", "expert-parallel", "mscclpp", "all-reduce-fusion"):
        assert len(subjects[lever].statements) == 2
    assert any("attention grow" in subject for subject in subjects)
    known = {lever.id for lever in load_catalogue()}
    assert {e.lever for e in load_ledger().entries} <= known


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[entry]]\nid='a'", "lever"),
        ("[[entry]]\nid='a'\nlever='x'\nverdict='great'\nevidence='e'\nsource='s'", "none of works"),
        ("[[entry]]\nid='a'\nlever='x'\nverdict='works'\nevidence=' '\nsource='s'", "must not be empty"),
        ("[[entry]]\nid='a'\nlever='x'\nverdict='works'\nevidence='e'\nsource='s'\nspeed=3", "speed"),
        ("[[entries]]\nid='a'", "unknown 'entries'"),
        ("entry = 3", "tables"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_malformed_ledger_is_refused_by_file_and_entry(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_ledger(tmp_path)


def test_ids_are_unique_over_files(tmp_path: Path) -> None:
    text = "[[entry]]\nid='a'\nlever='x'\nverdict='works'\nevidence='e'\nsource='s'\n"
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "two.toml").write_text(text)
    with pytest.raises(InputError, match="twice"):
        load_ledger(tmp_path)


# --- catalogue and report -----------------------------------------------------------------------------------------


def test_own_levers_are_added_and_replace_packaged_ones(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        "[[lever]]\nid='fpga'\ntitle='FPGA'\nfamilies=[]\nacts_on='step'\nrisk='high'\nnames=['FPGA offload']\n"
        "[[lever]]\nid='mscclpp'\ntitle='Mine'\nfamilies=['all_reduce']\nrisk='low'\nnames=['mscclpp']\n"
    )
    merged = load_catalogue(own)
    assert merged.find("fpga offload").title == "FPGA"
    assert merged.find("mscclpp").title == "Mine"
    own.write_text("[[lever]]\nid='x'\ntitle='X'\nfamilies=[]\nrisk='none'\nnames=['x']\n")
    with pytest.raises(InputError, match="risk"):
        load_catalogue(own)


def test_catalogue_ids_overlaps_and_evaluators_are_consistent() -> None:
    levers = load_catalogue()
    ids = {lever.id for lever in levers}
    for lever in levers:
        assert set(lever.overlaps) <= ids
        for name in (*lever.names, *lever.acronyms, lever.id):
            assert levers.find(name).id == lever.id


def test_the_report_section_tells_savings_ledger_and_open_questions() -> None:
    from msgspec.structs import replace as replaced

    made = h200_like()
    levers = rank(made, ledger=Ledger((entry(verdict="worse"),)), tried=["nccl-tuning"])
    (section,) = sections(replaced(made, levers=levers))
    words = " ".join(section.sentences)
    assert section.sentences[0].startswith("1. Overlap the host's work")
    assert "Tried: nccl-tuning." in words
    assert "Known dead ends on this platform: helper-kernels (worse)." in words
    names = [table.name for table in section.tables]
    assert names == ["levers", "lever-bases", "levers-idle", "levers-open", "lever-ledger"]
    for table in section.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_next_cta_row_is_understood_by_the_section() -> None:
    row = kernel(
        "attention_split", 51_200.0, 42, batch=80, grid=(80, 2, 2), occupancy=4 / 48, next_cta=next_cta()
    )
    levers = rank(findings((point(80, {"attention_split": 51_200.0}),), (row,), gpu=PRO_6000))
    assert levers[0].id == "more-ctas-per-sm"
    assert levers[0].overlaps_with == ("wave-aware-splits",)
