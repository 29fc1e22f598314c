"""`wavewise audit` as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.kernels

from wavewise.cli.app import main  # noqa: E402 - after the skip

HERE = Path(__file__).parent
ZOO = str(HERE / "audit_zoo.py")
ATTENTION = (
    f"{ZOO}:tiled_sparse_decode",
    "--signature",
    "*bf16, *bf16, *i32, *bf16, *fp32, fp32, i32",
    "--constexpr",
    "H=64",
    "--constexpr",
    "D=512",
    "--num-stages",
    "2",
)


@pytest.fixture
def wavewise(monkeypatch, capsys, tmp_path_factory):
    """Calls the command line and gives back exit status, stdout and stderr."""
    monkeypatch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "audit-command-cache"))

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wavewise", "audit", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return call


def test_lists_of_values_are_ranked_per_gpu(wavewise):
    words = (
        *ATTENTION,
        "--constexpr",
        "BLOCK_H=16",
        "BLOCK_T=16,32",
        "--num-warps",
        "4",
        "--gpu",
        "h200,rtx-pro-6000",
    )
    code, out, err = wavewise(*words, "--grid", "B, cdiv(H, BLOCK_H)", "--let", "B=32", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [(row["gpu"], row["rank"]) for row in found["rows"]] == [
        ("h200", 1),
        ("h200", 2),
        ("rtx-pro-6000", 1),
        ("rtx-pro-6000", 2),
    ]
    first = found["rows"][0]
    assert first["grid"] == [32, 4, 1]
    for name in (
        "ctas_per_sm",
        "limiter",
        "warps_per_sm",
        "occupancy",
        "sm_coverage",
        "waves",
        "wave_efficiency",
    ):
        assert first[name] is not None
    assert first["resources"]["registers_per_thread"] > 0
    code, out, _ = wavewise(*words)
    assert code == 0
    assert "BLOCK_T" in out
    assert "Next step of #1:" in out
    assert max(map(len, out.splitlines())) <= 80


def test_what_does_not_fit_is_a_row_and_exit_0(wavewise):
    code, out, _ = wavewise(
        *ATTENTION, "--constexpr", "BLOCK_H=16", "BLOCK_T=128", "--num-warps", "8", "--gpu", "rtx-pro-6000"
    )
    assert code == 0
    assert "Does not fit: " in out
    assert "101,376 B" in out


def test_a_binary_is_read(wavewise):
    code, out, _ = wavewise(str(HERE / "two_architectures.fatbin"), "--gpu", "h200", "--threads", "128")
    assert code == 0
    assert "bounded" in out
    assert "sm_90" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((f"{ZOO}:broken", "--signature", "*fp32", "BLOCK=32,64", "--gpu", "h200,b200"), "no_such_function"),
        ((f"{ZOO}:scale_add", "--gpu", "h200"), "no value for BLOCK"),
        ((f"{ZOO}:scale_add", "BLOCK=32"), "--gpu h200"),
        ((f"{ZOO}:scale_add", "BLOCK", "--gpu", "h200"), "NAME=VALUE"),
        ((f"{ZOO}:scale_add", "BLOCK=1", "BLOCK=2", "--gpu", "h200"), "given twice"),
        ((f"{ZOO}:scale_add", "BLOCK=32", "--gpu", "h200", "--num-warps", "four"), "--num-warps 'four'"),
        ((f"{ZOO}:scale_add", "BLOCK=32", "--gpu", "h200", "--num-warps", "0"), "num_warps 0"),
        ((f"{ZOO}:scale_add", "BLOCK=32", "--gpu", "h200", "-j", "0"), "--jobs 0"),
        ((f"{ZOO}:scale_add", "BLOCK=32", "--gpu", "h200", "--let", "B=x"), "NAME=VALUE with a whole number"),
        ((f"{ZOO}:scale_add", "BLOCK=32", "--gpu", "h2000"), "unknown GPU 'h2000'; nearest: h200"),
        (("/nowhere/k.py:f", "--gpu", "h200"), "no such file"),
        ((ZOO, "--gpu", "h200"), "holds no compiled kernel"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(wavewise, words, message):
    code, out, err = wavewise(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert "Traceback" not in err


def test_help_imports_neither_torch_nor_triton():
    check = (
        "import sys\nfrom wavewise.cli.app import build\nbuild()\n"
        "import wavewise.audit, wavewise.occupancy, wavewise.hardware\n"
        "assert not {'torch', 'triton'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
