"""The audit on a small zoo, against the compiled code itself (kernels need triton, no GPU)."""

import linecache
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.kernels

import audit_zoo  # noqa: E402 - after the skip
import audit_zoo_gluon  # noqa: E402

import wavewise.audit  # noqa: E402
from wavewise.audit import KernelConfig, audit  # noqa: E402
from wavewise.audit.compile import Job, compile_one, triton_source  # noqa: E402
from wavewise.audit.source import Signature, constants_of, parse_signature, source_of  # noqa: E402
from wavewise.audit.toolchain import tool  # noqa: E402
from wavewise.errors import InputError, UsageError  # noqa: E402

HERE = Path(__file__).parent
GPUS = ("h200", "b200", "rtx-pro-6000")
ZOO = {
    "scale_add": ("*bf16, *bf16, *bf16, i32, fp32", {"BLOCK": 1024}),
    "gemv": ("*bf16, *bf16, *fp32, i32, i32", {"BLOCK_M": 16}),
    "tiled_sparse_decode": (
        "*bf16, *bf16, *i32, *bf16, *fp32, fp32, i32",
        {"H": 64, "D": 256, "BLOCK_H": 16, "BLOCK_T": 32, "num_stages": 2},
    ),
}
ATTENTION, ATTENTION_SHAPE = ZOO["tiled_sparse_decode"]


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """One cache for this run: it neither reads nor leaves anything in the user's."""
    patch = pytest.MonkeyPatch()
    patch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_compiles_for_three_architectures(name, tmp_path):
    signature, shape = ZOO[name]
    report = audit(f"{HERE / 'audit_zoo.py'}:{name}", [shape], GPUS, signature=signature)
    assert [row.resources.arch for row in report.rows] == ["sm_90a", "sm_100a", "sm_120a"]
    for row in report.rows:
        assert row.fits
        assert row.rank == 1
        assert row.resources.threads_per_cta == 128
        assert row.resources.registers_per_thread > 7
        assert row.resources.spill_store_bytes == 0
        assert 0 < row.occupancy <= 1


@pytest.mark.parametrize("capability", [90, 120])
@pytest.mark.parametrize("name", ["gemv", "tiled_sparse_decode"])
def test_numbers_are_those_of_the_machine_code(name, capability, tmp_path):
    kernel = getattr(audit_zoo, name)
    signature, shape = ZOO[name]
    gpu = {90: "h200", 120: "rtx-pro-6000"}[capability]
    row = audit(kernel, [shape], [gpu], signature=signature).rows[0]
    config = row.config
    constants = constants_of(kernel, config)
    job = Job(source_of(kernel), parse_signature(kernel, signature, constants), constants, config, capability)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    compiled = triton.compile(triton_source(kernel, job), target=target, options=options)
    file = tmp_path / "kernel.cubin"
    file.write_bytes(compiled.asm["cubin"])
    dump = subprocess.run([tool("cuobjdump"), "-res-usage", file], capture_output=True, text=True, check=True)
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", dump.stdout).groups())
    assert (row.resources.registers_per_thread, row.resources.stack_bytes) == (registers, stack)
    assert row.resources.shared_memory_bytes == compiled.metadata.shared
    read = wavewise.audit.audit_binary(file, [gpu], dynamic_shared_memory=compiled.metadata.shared).rows[0]
    assert read.resources.threads_per_cta == 128
    assert read.resources.barriers == row.resources.barriers
    assert (read.ctas_per_sm, read.limiter) == (row.ctas_per_sm, row.limiter)


@pytest.mark.slow
def test_spills_and_what_does_not_fit_are_rows():
    large = {**ATTENTION_SHAPE, "D": 512, "BLOCK_H": 64}
    report = audit(
        audit_zoo.tiled_sparse_decode, [large, ATTENTION_SHAPE], ["rtx-pro-6000"], signature=ATTENTION
    )
    best, worst = report.rows
    assert best.config.constexprs["BLOCK_H"] == 16
    assert (worst.rank, worst.fits, worst.ctas_per_sm) == (None, False, 0)
    assert worst.reason.startswith("does not fit: ")
    assert "101,376 B" in worst.reason
    assert worst.resources.spill_store_bytes > 0
    assert worst.next_cta.shared_memory_bytes == 101_376
    roomy = audit(audit_zoo.tiled_sparse_decode, [large], ["h200"], signature=ATTENTION).rows[0]
    assert roomy.fits


@pytest.mark.slow
def test_ranking_puts_spills_last_and_occupancy_first():
    configs = [{**ATTENTION_SHAPE, "D": 512, "BLOCK_H": h, "BLOCK_T": t} for h in (16, 64) for t in (16, 32)]
    rows = audit(audit_zoo.tiled_sparse_decode, configs, ["h200"], signature=ATTENTION).rows
    assert [row.rank for row in rows] == [1, 2, 3, 4]
    spilled = [row.resources.spill_store_bytes > 0 for row in rows]
    assert spilled == sorted(spilled)
    clean = [row.occupancy for row in rows if row.resources.spill_store_bytes == 0]
    assert clean == sorted(clean, reverse=True)


def test_a_grid_is_a_formula_of_the_configuration():
    row = audit(
        audit_zoo.tiled_sparse_decode,
        [ATTENTION_SHAPE],
        ["rtx-pro-6000"],
        signature=ATTENTION,
        grid="B, cdiv(H, BLOCK_H)",
        let={"B": 96},
    ).rows[0]
    assert row.grid == (96, 4, 1)
    slots = 188 * row.ctas_per_sm
    assert row.waves == -(-384 // slots)
    assert row.wave_efficiency == pytest.approx(384 / (row.waves * slots))


def test_clusters_multiply_the_grid():
    row = audit(
        audit_zoo.scale_add,
        [{"BLOCK": 1024, "num_ctas": 2}],
        ["h200"],
        signature="*bf16, *bf16, *bf16, i32, fp32",
        grid="100",
    ).rows[0]
    assert (row.grid, row.resources.cluster_size) == ((200, 1, 1), 2)
    assert "clusters of 2" in row.notes[0]


def test_more_warps_hold_fewer_registers_each():
    rows = audit(
        audit_zoo.gemv, [{"BLOCK_M": 64, "num_warps": w} for w in (1, 8)], ["h200"], signature=ZOO["gemv"][0]
    ).rows
    by_warps = {row.config.num_warps: row.resources for row in rows}
    assert by_warps[8].threads_per_cta == 256
    assert by_warps[8].registers_per_thread < by_warps[1].registers_per_thread


def test_a_cap_on_registers_is_kept_and_spills():
    capped = {**ATTENTION_SHAPE, "maxnreg": 64}
    row = audit(audit_zoo.tiled_sparse_decode, [capped], ["h200"], signature=ATTENTION).rows[0]
    assert row.resources.registers_per_thread <= 64
    assert row.resources.spill_store_bytes > 0
    assert row.resources.stack_bytes > 0


def test_gluon_kernels_are_audited_too():
    rows = audit(
        audit_zoo_gluon.gluon_copy, [{"BLOCK": 1024}], ["h200", "rtx-pro-6000"], signature="*fp32, *fp32, i32"
    ).rows
    assert [row.resources.shared_memory_bytes for row in rows] == [4096, 4096]
    by_path = audit(
        f"{HERE / 'audit_zoo_gluon.py'}:gluon_copy",
        [{"BLOCK": 1024}],
        ["h200"],
        signature="*fp32, *fp32, i32",
    )
    assert by_path.rows[0].resources == rows[0].resources


def test_autotuners_and_their_configurations_are_taken():
    configs = [triton.Config({"BLOCK": 256}, num_warps=8, num_stages=2)]
    row = audit(audit_zoo.tuned, configs, ["h200"], signature="*fp32, i32").rows[0]
    assert (row.config.num_warps, row.config.constexprs, row.resources.threads_per_cta) == (
        8,
        {"BLOCK": 256},
        256,
    )


def test_the_package_is_the_function():
    report = wavewise.audit(audit_zoo.gemv, [{"BLOCK_M": 16}], ["h200"], signature=ZOO["gemv"][0])
    assert report.kernel == "gemv"


def test_results_are_cached_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path))
    module = tmp_path / "audit_changing.py"
    text = (HERE / "audit_zoo.py").read_text()
    module.write_text(text)

    def run(**more):
        return audit(f"{module}:scale_add", [{"BLOCK": 64}], ["h200"], signature=ZOO["scale_add"][0], **more)

    first, again = run(), run()
    assert (first.compiled, again.compiled, again.cached) == (1, 0, 1)
    assert first.rows == again.rows
    assert run(use_cache=False).compiled == 1
    module.write_text(text.replace("factor * tl.load(x + at", "factor / tl.load(x + at"))
    del sys.modules["_wavewise_audited_audit_changing"]
    linecache.clearcache()
    assert run().compiled == 1
    for entry in (tmp_path / "audit").glob("*.json"):
        entry.write_text("{broken")
    assert run().compiled == 1


@pytest.mark.parametrize("variable", ["TRITON_DEFAULT_FP_FUSION", "PTXAS_OPTIONS"])
def test_what_changes_the_code_is_part_of_the_content(variable, tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEWISE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(variable, raising=False)

    def run():
        return audit(audit_zoo.scale_add, [{"BLOCK": 64}], ["h200"], signature=ZOO["scale_add"][0])

    assert run().compiled == 1
    monkeypatch.setenv(variable, {"PTXAS_OPTIONS": "-O1"}.get(variable, "0"))
    assert run().compiled == 1
    monkeypatch.delenv(variable)
    assert run().compiled == 0


def test_a_configuration_that_does_not_compile_is_a_row_beside_those_that_do():
    report = audit(audit_zoo.broken_for_large, [{"BLOCK": 256}, {"BLOCK": 64}], ["h200"], signature="*fp32")
    good, bad = report.rows
    assert (good.rank, good.config.constexprs["BLOCK"]) == (1, 64)
    assert (bad.rank, bad.fits) == (None, None)
    assert "BLOCK is too large" in bad.reason


def test_a_kernel_that_does_not_compile_is_said_once_in_one_line():
    with pytest.raises(InputError) as caught:
        audit(audit_zoo.broken, [{"BLOCK": 32}, {"BLOCK": 64}], GPUS, signature="*fp32")
    said = str(caught.value)
    assert said.count("no_such_function'") == 1
    assert "broken does not compile for sm_90" in said
    assert "\n" not in said


def test_a_compiler_that_crashes_takes_no_audit_with_it(tmp_path):
    module = tmp_path / "audit_crashing.py"
    module.write_text(
        "import os\n"
        + (HERE / "audit_zoo.py").read_text()
        + "\nif os.environ.get('WAVEWISE_AUDIT_WORKER'):\n    os.abort()\n"
    )
    with pytest.raises(InputError, match=r"the compiler crashed \(signal 6\)"):
        audit(f"{module}:scale_add", [{"BLOCK": 64}], ["h200"], signature=ZOO["scale_add"][0])


def test_warnings_made_errors_are_none_of_the_compilers_business(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    module = tmp_path / "audit_warning.py"
    module.write_text(
        "import os, warnings\n"
        + (HERE / "audit_zoo.py").read_text()
        + "\nif os.environ.get('WAVEWISE_AUDIT_WORKER'):\n    warnings.warn('as libraries do')\n"
    )
    report = audit(f"{module}:scale_add", [{"BLOCK": 64}], ["h200"], signature=ZOO["scale_add"][0])
    assert report.rows[0].resources.error is None


def test_compiles_run_in_several_processes_and_prints_stay_out(tmp_path, capfd):
    module = tmp_path / "audit_counting.py"
    module.write_text(
        f"import os, pathlib\nprint('imported')\npathlib.Path({str(tmp_path)!r}, f'pid-{{os.getpid()}}').touch()\n"
        + (HERE / "audit_zoo.py").read_text()
    )
    report = audit(
        f"{module}:gemv",
        [{"BLOCK_M": m} for m in (16, 32, 64, 128)],
        ["h200"],
        signature=ZOO["gemv"][0],
        jobs=2,
        use_cache=False,
    )
    assert report.compiled == 4
    here = {f"pid-{os.getpid()}"}
    assert len({path.name for path in tmp_path.glob("pid-*")} - here) == 2
    assert capfd.readouterr().out == ""


def test_a_module_that_exits_is_an_input_error(tmp_path):
    module = tmp_path / "audit_exiting.py"
    module.write_text("raise SystemExit(5)\n")
    with pytest.raises(InputError, match="SystemExit: 5"):
        audit(f"{module}:k", [{}], ["h200"])


def test_progress_is_told_per_compile():
    told = []
    audit(
        audit_zoo.scale_add,
        [{"BLOCK": b} for b in (32, 256, 512)],
        ["h200"],
        signature=ZOO["scale_add"][0],
        use_cache=False,
        progress=lambda what, share: told.append((what, share)),
    )
    assert told[-1] == ("compiled 3 of 3", 1.0)
    assert [share for _, share in told] == sorted(share for _, share in told)


def test_a_kernel_that_only_lives_here_is_compiled_here():
    @triton.jit
    def local(x, BLOCK: triton.language.constexpr):
        triton.language.store(x + triton.language.arange(0, BLOCK), 1.0)

    assert source_of(local) is None
    constants = {"BLOCK": 64}
    job = Job(None, Signature({"x": "*fp32"}, frozenset({"x"}), frozenset()), constants, KernelConfig(), 90)
    assert compile_one(local, job).registers_per_thread > 0


SIGNATURE = ZOO["scale_add"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"signature": "*bf16"}, "has 1 types for 5 parameters: x, y, out, n, factor"),
        ({"signature": "*bf17, *bf16, *bf16, i32, fp32"}, "unknown type '*bf17'"),
        ({"signature": "x=*bf16, *bf16"}, "name all parameters or none"),
        ({"signature": "x=*bf16, z=i32"}, "no parameter 'z'"),
        ({"signature": "x=*bf16"}, "no type for y, out, n, factor"),
        ({"signature": "*bf16:a, *bf16, *bf16, i32, fp32"}, "the hint behind ':'"),
        ({"configs": [{}]}, "no value for BLOCK"),
        ({"configs": [{"BLOK": 3}]}, "no parameter 'BLOK'"),
        ({"configs": [{"BLOCK": 64, "num_warps": 3}]}, "num_warps 3: a power of two"),
        ({"configs": [{"BLOCK": 64, "num_stages": 0}]}, "num_stages 0"),
        ({"configs": [{"BLOCK": 64, "num_ctas": 3}]}, "num_ctas 3"),
        ({"configs": [{"BLOCK": 64, "maxnreg": 300}]}, "maxnreg 300"),
        ({"configs": [7]}, "is no configuration"),
        ({"configs": []}, "no configuration"),
        ({"gpus": []}, "at least one GPU"),
        ({"gpus": ["h20o"]}, "unknown GPU"),
        ({"gpus": ["mi300x"]}, "only NVIDIA GPUs"),
        ({"grid": "n"}, "needs a value for 'n'"),
        ({"kernel": len}, "is no Triton kernel"),
        ({"kernel": "audit_zoo.py"}, "path/to/module.py:kernel"),
        ({"kernel": f"{HERE / 'audit_zoo.py'}:tl"}, "is no Triton kernel"),
        ({"kernel": f"{HERE / 'audit_zoo.py'}:gem"}, "no kernel 'gem'; there: gemv"),
    ],
)
def test_a_mistake_is_one_clear_line(change, words):
    call = {
        "kernel": audit_zoo.scale_add,
        "configs": [{"BLOCK": 64}],
        "gpus": ["h200"],
        "signature": SIGNATURE,
        "grid": None,
        **change,
    }
    with pytest.raises(UsageError) as caught:
        audit(call["kernel"], call["configs"], call["gpus"], signature=call["signature"], grid=call["grid"])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_named(tmp_path):
    module = tmp_path / "audit_unimportable.py"
    module.write_text("import no_such_module_at_all\n")
    with pytest.raises(InputError, match="no_such_module_at_all"):
        audit(f"{module}:k", [{}], ["h200"])
    with pytest.raises(InputError, match="no such file"):
        audit(f"{tmp_path / 'absent.py'}:k", [{}], ["h200"])


def test_alignment_hints():
    kernel = audit_zoo.scale_add
    plain = parse_signature(kernel, "*bf16, *bf16:8, *bf16:16, i32:16, fp32", ["BLOCK"])
    assert plain.aligned == {"x", "out", "n"}
    ones = parse_signature(kernel, "*bf16, *bf16, *bf16, i32:1, float32", ["BLOCK"])
    assert (ones.ones, ones.types["factor"]) == ({"n"}, "fp32")
