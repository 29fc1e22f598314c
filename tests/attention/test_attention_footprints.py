"""The shipped footprints are what the installed Triton compiles."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from wavewise.attention.configurations import COMPUTE_CAPABILITIES, configurations, shipped_footprints  # noqa: E402

pytestmark = pytest.mark.kernels

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attention_footprints.py"
AUDITED = {f.compiler for f in shipped_footprints()}


@pytest.fixture(scope="module")
def compiler():
    spec = importlib.util.spec_from_file_location("attention_footprints", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recompiled(compiler, configs):
    shipped = {
        (f.config, f.compute_capability): f for f in shipped_footprints() if f.compiler == triton.__version__
    }
    for config, capability in configs:
        assert compiler.footprint(config, capability) == shipped[config, capability]


@pytest.mark.skipif(triton.__version__ not in AUDITED, reason=f"Triton {triton.__version__} is not audited")
def test_one_configuration_of_each_architecture_compiles_to_its_footprint(compiler):
    narrow = [c for c in configurations("9.0") if c.kernel == "hopper_narrow" and c.block_h == 16]
    small = [c for c in configurations("12.0") if c.id == "portable-h8-t16-w4-s1"]
    recompiled(compiler, [(narrow[0], "9.0"), (small[0], "12.0"), (small[0], "10.0")])


@pytest.mark.slow
@pytest.mark.skipif(triton.__version__ not in AUDITED, reason=f"Triton {triton.__version__} is not audited")
def test_every_configuration_compiles_to_its_footprint(compiler):
    recompiled(compiler, [(c, cc) for cc in COMPUTE_CAPABILITIES for c in configurations(cc)])
