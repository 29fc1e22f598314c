"""What a recording adds to the analysis of its traces."""

import json
import shutil
import statistics
from pathlib import Path

import pytest

import wavewise
from wavewise.analysis.files import sources
from wavewise.analysis.recordings import known_with, runs_of
from wavewise.analysis.settings import Settings
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError
from wavewise.levers import Known

RUN = Path(__file__).parents[2] / "examples" / "h200-vllm-llama-recorded"


def test_the_servers_version_reaches_the_levers_unless_the_user_names_one() -> None:
    runs = runs_of(sources([RUN], Settings()), {})
    (run,) = runs.values()
    assert known_with(Known(), runs.values()).engine_version == run.server.version
    assert known_with(Known(engine_version="9.9"), runs.values()).engine_version == "9.9"


def test_recorded_points_stand_beside_traced_ones() -> None:
    findings = wavewise.analyze(RUN)
    assert [point.batch_size for point in findings.recorded] == [1, 8, 16, 32, 64, 96]
    for point in findings.recorded:
        assert point.traced_step_ms is not None
        # The recording's own table: traced and un-profiled step differ by at most 3.3 % plus the window's drift.
        assert abs(point.traced_step_ms / point.unprofiled_step_ms - 1) < 0.06
        # The context grows between the two un-profiled windows; against their mean 3.3 % is the most there is.
        assert point.around_window_ms is not None
        assert point.traced_over_unprofiled == pytest.approx(point.traced_step_ms / point.around_window_ms)
        assert 0.999 < point.traced_over_unprofiled < 1.034
        assert point.around_window_ms > point.inter_token_ms_p50
    assert findings.signature is not None
    (recording,) = findings.recordings
    assert (recording.engine, recording.gpus) == ("vllm", ("NVIDIA H200",))
    assert recording.traced_batch_sizes == (1, 8, 16, 32, 64, 96)
    assert (recording.trace_reason, recording.inter_token) == (None, None)
    assert "its traces tell" in (recording.inter_token_reason or "")


@pytest.fixture
def without_traces(tmp_path: Path) -> Path:
    """The example's folder as somebody leaves it who keeps only the small files."""
    for name in ("run.json", "telemetry.csv"):
        shutil.copyfile(RUN / name, tmp_path / name)
    return tmp_path


def test_a_recording_without_its_traces_tells_latencies_and_nothing_of_steps(without_traces: Path) -> None:
    whole, found = wavewise.analyze(RUN), wavewise.analyze(without_traces)
    assert found.traces == ()
    assert found.operating_points == ()
    for name in ("scaling", "ceilings", "levers", "premise", "what_ifs"):
        assert getattr(found, name) is None
    assert "no trace" in (found.scaling_reason or "")
    assert found.ceilings_reason == found.levers_reason == "there is no trace"
    assert found.signature == whole.signature, "telemetry needs no trace"
    for before, now in zip(whole.recorded, found.recorded, strict=True):
        assert now.unprofiled_tokens_per_s == before.unprofiled_tokens_per_s
        assert now.inter_token_ms_p99 == before.inter_token_ms_p99
        assert (now.traced_step_ms, now.traced_over_unprofiled) == (None, None)
        assert now.reason == "its trace is not among those analysed"
    (recording,) = found.recordings
    assert recording.traced_batch_sizes == ()
    assert recording.trace_reason == "run.json names bs1.json.gz and 5 more, which the folder does not hold"
    assert "back beside" in (recording.trace_remedy or "")
    fit = recording.inter_token
    assert fit is not None
    slope, floor = statistics.linear_regression(
        [point.batch_size for point in found.recorded], [point.inter_token_ms_p50 for point in found.recorded]
    )
    assert (fit.floor_ms, fit.slope_ms_per_request) == pytest.approx((floor, slope))
    assert "one median per batch size" in (fit.interval_reason or "")
    # The traces' own line, of which this one knows nothing: 5.70 ms + 0.162 ms per request.
    assert whole.scaling is not None
    assert fit.slope_ms_per_request == pytest.approx(whole.scaling.step.slope_ms_per_request, rel=0.02)


def test_one_traced_batch_leaves_the_fit_to_the_latencies(without_traces: Path) -> None:
    shutil.copyfile(RUN / "bs8.json.gz", without_traces / "bs8.json.gz")
    found = wavewise.analyze(without_traces)
    assert found.scaling is None
    (recording,) = found.recordings
    assert recording.traced_batch_sizes == (8,)
    assert recording.trace_reason is None
    assert recording.inter_token is not None
    assert [point.traced_step_ms is not None for point in found.recorded].count(True) == 1


def test_a_recording_that_ended_early_says_so(without_traces: Path) -> None:
    path = without_traces / "run.json"
    text = path.read_text().replace('"state": "complete"', '"state": "interrupted"')
    path.write_text(text.replace('"profile": "recorded"', '"profile": "missing"', 1))
    (note,) = wavewise.analyze(without_traces).notes
    assert (note.level, note.code) == ("caution", "recording_unfinished")
    assert "5 of 6 batches are whole" in note.message


def test_a_recording_without_a_batch_is_nothing_to_analyse(without_traces: Path) -> None:
    run = json.loads((without_traces / "run.json").read_text())
    (without_traces / "run.json").write_text(json.dumps({**run, "batches": []}))
    with pytest.raises(NothingToAnalyzeError, match="without a measured batch yet"):
        wavewise.analyze(without_traces)


def test_somebody_elses_run_json_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "other"}')
    with pytest.raises(InputError, match="no trace in this folder"):
        wavewise.analyze(tmp_path)


def test_an_empty_path_is_not_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RUN)
    for paths in ("", [""], [RUN, ""]):
        with pytest.raises(UsageError, match="a path is empty"):
            wavewise.analyze(paths)
