"""The portable kernels against the fp64 reference, interpreted on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.kernels

TRUNCATION = 1.5e-2
"""The interpreter rounds fp32 to bf16 by cutting off (up to 2^-7 of a value, 2^-8 on average), three times on
the way: weights, partials, output. Rounding itself is judged on the GPU, where the gate is 6.7e-3."""


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    script = Path(__file__).with_name("interpreted_cases.py")
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_case_matches_the_reference(lines):
    verdicts = [line for line in lines if "name" in line]
    assert len(verdicts) == 2 * 13 + 4
    for line in verdicts:
        assert line["faults"] == [], line
        assert line["error"] <= TRUNCATION, line
        assert line["lse"] <= 2e-5, line


def test_debug_mode_refuses_indices_outside_the_cache_but_not_those_that_do_not_count(lines):
    out_of_range, below, beyond = lines[-1]["refused"]
    assert "indices[1, 0, 0] is" in out_of_range
    assert "the cache holds" in out_of_range
    assert "indices[0, 0, 0] is -2" in below
    assert beyond == "beyond the length: accepted"
