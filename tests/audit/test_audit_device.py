"""The audit against the same kernels loaded on a real H200, recorded by benchmarks/occupancy_audit.py."""

import json
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.kernels

import audit_zoo  # noqa: E402 - after the skip

from wavewise.audit import audit  # noqa: E402
from wavewise.hardware import Launch, catalogue  # noqa: E402
from wavewise.occupancy import residency  # noqa: E402

RECORDED = json.loads((Path(__file__).parent / "device_h200.json").read_text())
ROWS = RECORDED["rows"]


@pytest.mark.parametrize(
    "row", ROWS, ids=lambda r: f"{r['kernel']}-{'-'.join(map(str, r['config'].values()))}"
)
def test_residency_of_what_the_driver_loaded(row):
    launch = Launch(None, (row["threads"], 1, 1), row["registers"], row["shared"])
    assert residency(catalogue().find("h200"), launch).ctas_per_sm == row["ctas_per_sm"]


@pytest.mark.slow
@pytest.mark.skipif(
    triton.__version__ != RECORDED["origin"]["triton"],
    reason=f"recorded with Triton {RECORDED['origin']['triton']}: another compiler may assign other registers",
)
def test_the_audit_compiles_what_the_driver_loads(tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path))
    for row in ROWS:
        kernel = getattr(audit_zoo, row["kernel"])
        found = audit(kernel, [row["config"]], ["h200"], signature=row["signature"]).rows[0]
        resources = found.resources
        assert (
            resources.threads_per_cta,
            resources.registers_per_thread,
            resources.stack_bytes,
            resources.shared_memory_bytes,
            found.ctas_per_sm,
        ) == (row["threads"], row["registers"], row["local_bytes"], row["shared"], row["ctas_per_sm"]), row
        # Spilled or not is the same question as local memory or not: these kernels have no arrays of their own.
        assert (resources.spill_store_bytes > 0) == (row["local_bytes"] > 0)
