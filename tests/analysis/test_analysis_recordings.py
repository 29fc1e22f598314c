"""What a recording adds to the analysis of its traces."""

from pathlib import Path

import wavewise
from wavewise.analysis.files import sources
from wavewise.analysis.recordings import known_with
from wavewise.analysis.settings import Settings
from wavewise.levers import Known

RUN = Path(__file__).parents[2] / "examples" / "h200-vllm-llama-recorded"


def test_the_servers_version_reaches_the_levers_unless_the_user_names_one() -> None:
    found = sources([RUN], Settings())
    assert known_with(Known(), found).engine_version == found[0].run.server.version  # type: ignore[union-attr]
    assert known_with(Known(engine_version="9.9"), found).engine_version == "9.9"


def test_recorded_points_stand_beside_traced_ones() -> None:
    findings = wavewise.analyze(RUN)
    assert [point.batch_size for point in findings.recorded] == [1, 8, 16, 32, 64, 96]
    for point in findings.recorded:
        assert point.traced_step_ms is not None
        # The recording's own table: traced and un-profiled step differ by at most 3.3 % plus the window's drift.
        assert abs(point.traced_step_ms / point.unprofiled_step_ms - 1) < 0.06
    assert findings.signature is not None
