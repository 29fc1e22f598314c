"""Cubins and fatbinaries, read through the cuobjdump of the triton wheel."""

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.kernels

from wavewise.audit import audit, audit_binary  # noqa: E402 - after the skip
from wavewise.audit.rank import runs_on  # noqa: E402
from wavewise.audit.toolchain import tool  # noqa: E402
from wavewise.errors import InputError, UsageError  # noqa: E402

HERE = Path(__file__).parent
PTX = (HERE / "two_kernels.ptx").read_text()


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    """Builds the two kernels for an architecture with one of the two ptxas in the wheel."""

    def build(arch: str, compiler: str = "ptxas") -> Path:
        folder = tmp_path_factory.mktemp("cubin")
        (folder / "k.ptx").write_text(PTX.replace(".target sm_90", f".target {arch}"))
        subprocess.run(
            [tool(compiler), f"-arch={arch}", folder / "k.ptx", "-o", folder / "k.cubin"],
            check=True,
            capture_output=True,
        )
        return folder / "k.cubin"

    return build


@pytest.mark.parametrize("compiler", ["ptxas", "ptxas-blackwell"])
@pytest.mark.parametrize(
    ("arch", "gpu"), [("sm_90", "h200"), ("sm_120", "rtx-pro-6000"), ("sm_100a", "b200")]
)
def test_both_elf_layouts_say_the_same(cubin, arch, gpu, compiler):
    """ptxas 12 and 13 write different layouts: barriers move, and shared memory holds the driver's share."""
    rows = {row.resources.kernel: row for row in audit_binary(cubin(arch, compiler), [gpu]).rows}
    bounded = rows["bounded"].resources
    assert (bounded.threads_per_cta, bounded.shared_memory_bytes, bounded.barriers) == (256, 1000, 3)
    assert bounded.spill_store_bytes is None
    assert rows["bounded"].fits
    assert rows["free"].resources.threads_per_cta is None
    assert "give --threads" in rows["free"].reason


def test_static_shared_memory_before_hopper_has_no_driver_share(cubin):
    from wavewise.audit.binary import read_binary

    assert {r.kernel: r.shared_memory_bytes for r in read_binary(cubin("sm_80"))} == {
        "bounded": 1000,
        "free": 0,
    }


def test_a_fatbinary_gives_each_gpu_its_own_image():
    report = audit(str(HERE / "two_architectures.fatbin"), gpus=["h200", "rtx-pro-6000"])
    assert {(row.gpu, row.resources.arch) for row in report.rows} == {
        ("h200", "sm_90"),
        ("rtx-pro-6000", "sm_120"),
    }
    assert len(report.rows) == 4


def test_an_image_for_another_architecture_is_a_row_that_says_so():
    rows = audit_binary(HERE / "two_architectures.fatbin", ["b200"]).rows
    assert all(row.fits is False for row in rows)
    assert "compiled for sm_90, which does not run on compute capability 10.0" in {row.reason for row in rows}


def test_the_launch_adds_threads_and_dynamic_shared_memory():
    rows = audit_binary(
        HERE / "two_architectures.fatbin",
        ["rtx-pro-6000"],
        threads=128,
        dynamic_shared_memory=79_000,
        grid="256",
    ).rows
    by_name = {row.resources.kernel: row for row in rows}
    assert by_name["bounded"].resources.shared_memory_bytes == 80_000
    assert by_name["bounded"].resources.threads_per_cta == 256  # .reqntid: the launch cannot be another
    assert by_name["free"].resources.threads_per_cta == 128
    assert (by_name["bounded"].ctas_per_sm, by_name["bounded"].waves) == (1, 2)
    assert by_name["bounded"].wave_efficiency == pytest.approx(256 / 376)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_90", "9.0", True),
        ("sm_90a", "9.0", True),
        ("sm_90", "10.0", False),
        ("sm_100", "10.3", True),
        ("sm_100a", "10.3", False),
        ("sm_100f", "10.3", True),
        ("sm_103", "10.0", False),
        ("sm_100", "12.0", False),
        ("sm_120", "12.1", True),
        ("sm_86", "8.9", True),
        ("sm_89", "8.6", False),
    ],
)
def test_where_machine_code_runs(arch, capability, runs):
    assert runs_on(arch, capability) is runs


def test_what_holds_no_kernel_is_refused(tmp_path):
    text = tmp_path / "a.cubin"
    text.write_text("not a cubin")
    with pytest.raises(InputError, match="holds no compiled kernel"):
        audit_binary(text, ["h200"])
    with pytest.raises(InputError, match="no such file"):
        audit_binary(tmp_path / "absent.cubin", ["h200"])
    with pytest.raises(UsageError, match="at least 1 thread"):
        audit_binary(HERE / "two_architectures.fatbin", ["h200"], threads=0)
    with pytest.raises(UsageError, match="negative"):
        audit_binary(HERE / "two_architectures.fatbin", ["h200"], dynamic_shared_memory=-1)


def test_launch_bounds_are_a_maximum_that_a_launch_may_undercut(cubin, tmp_path):
    text = PTX.replace(".reqntid 256, 1, 1", ".maxntid 512, 1, 1")
    (tmp_path / "k.ptx").write_text(text)
    file = tmp_path / "k.cubin"
    subprocess.run(
        [tool("ptxas"), "-arch=sm_90", tmp_path / "k.ptx", "-o", file], check=True, capture_output=True
    )
    plain = {row.resources.kernel: row for row in audit_binary(file, ["h200"]).rows}["bounded"]
    assert (plain.resources.threads_per_cta, plain.resources.threads_are_bound) == (512, True)
    assert "most it may be launched with" in plain.notes[0]
    given = {row.resources.kernel: row for row in audit_binary(file, ["h200"], threads=64).rows}["bounded"]
    assert (given.resources.threads_per_cta, given.notes) == (64, ())
