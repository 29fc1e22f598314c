"""Inputs that belong together, and those that do not."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wavewise
from support.recorded import CONTEXT4K, SWEEP
from wavewise.analysis import Settings
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError
from wavewise.findings import Findings


def changed_copy(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(gzip.decompress(source.read_bytes()))
    change(document)
    target.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return target


def codes(findings: Findings) -> dict[str, str]:
    return {note.code: note.level for note in findings.notes}


@pytest.fixture(scope="module")
def sweep() -> Findings:
    return wavewise.analyze([CONTEXT4K])


def test_the_sweep_is_one_investigation(sweep: Findings) -> None:
    assert [p.batch_size for p in sweep.operating_points] == [1, 8, 16, 32, 64, 80]
    assert codes(sweep) == {"context_assumed": "info"}
    assert len(sweep.traces) == 7
    assert sweep.scaling is not None
    assert sweep.scaling_reason is None


def test_progress_tells_what_is_done_and_never_falls() -> None:
    said: list[tuple[str, float]] = []
    wavewise.analyze([CONTEXT4K], progress=lambda what, share: said.append((what, share)))
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {what for what, _ in said} == {"reading", "finding the steps"} | {
        f"described {path.name}" for path in CONTEXT4K.glob("*.gz")
    }


def test_moe_follows_expert_activation_and_the_span_too(sweep: Findings) -> None:
    assert sweep.scaling is not None
    moe = next(fit for fit in sweep.scaling.families if fit.family == "moe_gemm")
    assert moe.model == "expert_activation"
    assert moe.max_abs_residual_ms is not None
    assert moe.max_abs_residual_ms < 0.080
    assert moe.line_max_abs_residual_ms is not None
    assert moe.line_max_abs_residual_ms > 0.300
    assert sweep.scaling.span is not None
    assert sweep.scaling.span.model == "expert_activation"
    assert {"power_law", "quadratic"} <= set(moe.reference)


def test_slopes_add_up(sweep: Findings) -> None:
    scaling = sweep.scaling
    assert scaling is not None
    families = sum(fit.slope_ms_per_request or 0.0 for fit in scaling.families)
    assert scaling.overlap_slope_ms_per_request is not None
    assert scaling.unattributed_slope_ms_per_request is not None
    total = families - scaling.overlap_slope_ms_per_request + scaling.unattributed_slope_ms_per_request
    assert total == pytest.approx(scaling.step.slope_ms_per_request, rel=1e-9)


def test_the_first_lever_is_moe_or_the_host(sweep: Findings) -> None:
    assert sweep.levers is not None
    first = sweep.levers[0]
    assert first.id == "host-boundary" or first.family == "moe_gemm"
    assert any(lever.id == "helper-kernels" for lever in sweep.levers)


def test_repeats_of_one_point_are_pooled(tmp_path: Path, sweep: Findings) -> None:
    again = changed_copy(CONTEXT4K / "bs008.json.gz", tmp_path / "again.json.gz", lambda _: None)
    pooled = wavewise.analyze([CONTEXT4K / "bs008.json.gz", again])
    (point,) = pooled.operating_points
    single = next(p for p in sweep.operating_points if p.batch_size == 8)
    assert point.clean_steps == 2 * single.clean_steps
    assert point.step_ms.median == single.step_ms.median
    assert point.samples.step_ns == single.samples.step_ns * 2
    assert codes(pooled)["repeats_pooled"] == "info"


def test_a_file_named_twice_counts_once(tmp_path: Path, sweep: Findings) -> None:
    named = CONTEXT4K / "bs008.json.gz"
    link = tmp_path / "link.json.gz"
    link.symlink_to(named.resolve())
    for paths in ([named, named], [named, link], [CONTEXT4K, named]):
        found = wavewise.analyze(paths)
        point = next(p for p in found.operating_points if p.batch_size == 8)
        single = next(p for p in sweep.operating_points if p.batch_size == 8)
        assert point.clean_steps == single.clean_steps
        assert len(found.traces) == (7 if CONTEXT4K in paths else 1)
        (note,) = [n for n in found.notes if n.code == "named_again"]
        assert "bs008.json.gz is named 2 times" in note.message
        assert "repeats_pooled" not in codes(found)
    # Its own label holds rather than its folder's, in whatever order they are given.
    labels = {named: {"context": "4k"}, CONTEXT4K: {"context": "12k"}}
    for paths in ([named, CONTEXT4K], [CONTEXT4K, named]):
        points = wavewise.analyze(paths, settings=Settings(labels=labels)).operating_points
        assert {p.batch_size for p in points if p.context_length == 4096} == {8}
    # What is known of it by one of its names holds for the file.
    labels = {named: {"context": "4k"}}
    (point,) = wavewise.analyze([link, named], settings=Settings(labels=labels)).operating_points
    assert point.context_length == 4096


def test_other_gpus_are_said_first_even_without_a_clean_step(tmp_path: Path) -> None:
    def to_h100(document: dict[str, Any]) -> None:
        document["deviceProperties"][0] |= {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}
        document["distributedInfo"] = {"backend": "nccl", "rank": 5, "world_size": 8}

    def to_rank_7(document: dict[str, Any]) -> None:
        document["distributedInfo"] = {"backend": "nccl", "rank": 7, "world_size": 8}

    other = changed_copy(CONTEXT4K / "falling-bucket096.json.gz", tmp_path / "other.json.gz", to_h100)
    rank_7 = changed_copy(CONTEXT4K / "bs008.json.gz", tmp_path / "seven.json.gz", to_rank_7)
    found = wavewise.analyze([rank_7, other])
    (note,) = [n for n in found.notes if n.code == "different_gpus"]
    assert note.level == "caution"
    assert "H100" in note.message
    assert "H200" in note.message
    # Rank 5 of another GPU's run does not stand for rank 7 of this one.
    assert [p.batch_size for p in found.operating_points] == [8]
    assert "one_rank_stands_for_all" not in codes(found)


def test_an_empty_gpu_name_is_no_name() -> None:
    with pytest.raises(UsageError, match="unknown GPU ''"):
        wavewise.analyze([CONTEXT4K / "bs008.json.gz"], settings=Settings(gpu=""))


def test_unlabelled_contexts_that_differ_are_noticed() -> None:
    found = wavewise.analyze([CONTEXT4K / "bs064.json.gz", SWEEP / "context12k"])
    (note,) = [n for n in found.notes if n.code == "repeats_differ"]
    assert "`attention_split` 230 to 253 us" in note.message


def test_labelled_contexts_are_an_axis_of_their_own() -> None:
    labels = {CONTEXT4K / "bs064.json.gz": {"context": "4k"}, SWEEP / "context12k": {"context": "12k"}}
    found = wavewise.analyze(list(labels), settings=Settings(labels=labels))
    assert [(p.batch_size, p.context_length) for p in found.operating_points] == [(64, 4096), (64, 12288)]
    assert codes(found)["different_contexts"] == "caution"
    assert found.scaling is None
    (fit,) = found.context_scaling
    split = next(f for f in fit.families if f.family == "attention_split")
    points = {p.context_length: p.value_ms for p in split.points}
    # 230 and 253 us: the slope per thousand tokens is their difference over 8.192 thousand tokens.
    assert split.slope_ms_per_thousand_tokens == pytest.approx(
        (points[12288] - points[4096]) / 8.192, rel=1e-6
    )


def test_different_gpus_are_never_fitted_together(tmp_path: Path) -> None:
    def to_h100(document: dict[str, Any]) -> None:
        document["deviceProperties"][0] |= {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}

    other = changed_copy(CONTEXT4K / "bs016.json.gz", tmp_path / "other.json.gz", to_h100)
    found = wavewise.analyze([CONTEXT4K / "bs008.json.gz", other])
    assert codes(found)["different_gpus"] == "stop"
    assert found.scaling is None
    assert found.scaling_reason is not None
    assert "H100" in found.scaling_reason


def test_different_models_are_never_fitted_together(tmp_path: Path) -> None:
    def half_the_layers(document: dict[str, Any]) -> None:
        seen: dict[int, int] = {}
        kept = []
        for event in document["traceEvents"]:
            if "splitkv_mla" in event.get("name", ""):
                correlation = event["args"]["correlation"]
                seen[correlation] = seen.get(correlation, 0) + 1
                if seen[correlation] % 2:
                    continue
            kept.append(event)
        document["traceEvents"] = kept

    other = changed_copy(CONTEXT4K / "bs016.json.gz", tmp_path / "other.json.gz", half_the_layers)
    found = wavewise.analyze([CONTEXT4K / "bs008.json.gz", other])
    assert codes(found)["different_models"] == "stop"
    assert found.scaling is None


def test_the_last_of_a_folder_without_readable_files_is_named_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("junk")
    left_out: list[str] = []
    with pytest.raises(InputError, match=r"b\.json"):
        wavewise.analyze([tmp_path], unreadable=lambda path, _: left_out.append(path.name))
    assert left_out == ["a.json"]


def test_an_unreadable_file_of_a_folder_is_reported_and_the_rest_analysed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{broken")
    changed_copy(CONTEXT4K / "bs008.json.gz", tmp_path / "b.json.gz", lambda _: None)
    left_out: list[str] = []
    found = wavewise.analyze([tmp_path], unreadable=lambda path, _: left_out.append(path.name))
    assert left_out == ["a.json"]
    assert len(found.traces) == 1
    with pytest.raises(InputError, match=r"a\.json"):
        wavewise.analyze([tmp_path / "a.json", tmp_path / "b.json.gz"])


def test_a_folder_with_nothing_readable_fails(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{broken")
    with pytest.raises(InputError):
        wavewise.analyze([tmp_path])


def test_no_gpu_activity_is_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(
        '{"schemaVersion": 1, "traceEvents": '
        '[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'
    )
    with pytest.raises(NothingToAnalyzeError):
        wavewise.analyze([tmp_path / "cpu.json"])


def test_the_gpu_can_be_named_and_is_checked() -> None:
    found = wavewise.analyze([CONTEXT4K / "bs008.json.gz"], settings=Settings(gpu="rtx-pro-6000"))
    assert found.traces[0].gpu.sm_count == 188
    assert found.traces[0].gpu.source == "argument"
    with pytest.raises(UsageError, match="h200"):
        wavewise.analyze([CONTEXT4K / "bs008.json.gz"], settings=Settings(gpu="h20"))


def test_targets_are_answered(sweep: Findings) -> None:
    found = wavewise.analyze([CONTEXT4K], settings=Settings(latency_target_ms=10.0, throughput_target=1e9))
    assert found.latency_target is not None
    assert found.latency_target.measured_batch_size == 64
    assert found.throughput_target is not None
    assert found.throughput_target.reachable is False
    assert sweep.latency_target is None


def test_contexts_within_five_per_cent_are_one() -> None:
    # A recording's batches decode a little further each while the others are recorded.
    labels = {
        CONTEXT4K / "bs008.json.gz": {"context": "4200"},
        CONTEXT4K / "bs016.json.gz": {"context": "4400"},
    }
    found = wavewise.analyze(list(labels), settings=Settings(labels=labels))
    assert [(p.batch_size, p.context_length) for p in found.operating_points] == [(8, 4300), (16, 4300)]
    assert "different_contexts" not in codes(found)
    assert found.scaling is not None
