"""Compile every shipped attention configuration offline and write what the compiler made of it.

    python benchmarks/attention_footprints.py [--check]

Needs torch and triton, no GPU. Writes the rows of the installed Triton into
src/wavewise/attention/footprints.json, beside those of other versions; --check compares instead, and exits
with 1 where a figure differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import triton
from triton.backends.compiler import GPUTarget

from wavewise.attention import gluon_kernels, kernels
from wavewise.attention.configurations import (
    COMPUTE_CAPABILITIES,
    Footprint,
    KernelConfig,
    configurations,
)
from wavewise.attention.launch import constants_of
from wavewise.audit.compile import Job, compile_one, triton_source
from wavewise.audit.records import KernelConfig as AuditConfig
from wavewise.audit.source import Signature

TARGET = Path(__file__).parents[1] / "src/wavewise/attention/footprints.json"
POINTERS = {
    "query": "*bf16",
    "cache_a": "*u8",
    "cache_e": "*u8",
    "sink": "*fp32",
    "out": "*bf16",
    "lse_out": "*fp32",
    "scale_log2": "fp32",
    "stride_a": "i64",
    "stride_e": "i64",
}
INDICES = ("index_a", "index_e", "length_a", "length_e")
ALIGNED = {
    *(name for name in POINTERS if name != "scale_log2"),
    *INDICES,
    *("index_stride_a", "index_stride_e", "query_stride_n", "query_stride_h"),
    *("out_stride_n", "out_stride_s", "out_stride_h"),
}


def kernel_of(config: KernelConfig) -> Any:
    """The jitted function that a configuration compiles."""
    if config.kernel == "portable":
        return kernels.split_portable
    return gluon_kernels.split_hopper if config.kernel == "hopper" else gluon_kernels.split_hopper_narrow


def job_of(config: KernelConfig, compute_capability: str) -> Job:
    """The compile of a server's usual call: two scopes with lengths and a sink, partials, page sizes 256 and 64."""
    kernel = kernel_of(config)
    flags = {"HAS_LENGTH_A": True, "HAS_LENGTH_E": True, "HAS_SINK": True, "SINGLE": False, "PDL": True}
    constants = {**flags, **constants_of(config, shift=True)}
    types = dict.fromkeys(INDICES, "*i32") | POINTERS
    return Job(
        source=None,
        signature=Signature(
            types={name: types.get(name, "i32") for name in kernel.arg_names if name not in constants},
            aligned=frozenset(ALIGNED),
            ones=frozenset({"queries_per_request"}),
        ),
        constants=constants,
        config=AuditConfig(
            num_warps=config.warps,
            num_stages=config.stages if config.kernel == "portable" else 3,
            maxnreg=config.max_registers,
        ),
        capability=int(compute_capability.replace(".", "")),
    )


def serialised(job: Job, kernel: Any) -> bool:
    """Whether ptxas says that it serialised the asynchronous MMAs: the same PTX once more, report read."""
    options = {"num_warps": job.config.num_warps}
    if job.config.maxnreg is not None:
        options["maxnreg"] = job.config.maxnreg
    compiled = triton.compile(
        triton_source(kernel, job), target=GPUTarget("cuda", job.capability, 32), options=options
    )
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as ptx:
        ptx.write(compiled.asm["ptx"])
        ptx.flush()
        # The one that Triton itself compiles this architecture with.
        from triton.backends.nvidia.compiler import get_ptxas

        said = subprocess.run(
            [get_ptxas(job.capability).path, "-v", "--gpu-name=sm_90a", ptx.name, "-o", "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
        )
    return "are serialized" in said.stderr + said.stdout


def footprint(config: KernelConfig, compute_capability: str) -> Footprint:
    """Compile and read.

    Raises:
        SystemExit: it does not compile.
    """
    kernel, job = kernel_of(config), job_of(config, compute_capability)
    found = compile_one(kernel, job)
    if found.error is not None:
        raise SystemExit(f"{config.id} for {compute_capability}: {found.error}")
    assert found.registers_per_thread is not None
    assert found.shared_memory_bytes is not None
    assert found.threads_per_cta is not None
    return Footprint(
        config=config,
        compute_capability=compute_capability,
        registers_per_thread=found.registers_per_thread,
        shared_memory_bytes=found.shared_memory_bytes,
        threads=found.threads_per_cta,
        spill_bytes=(found.spill_store_bytes or 0) + (found.spill_load_bytes or 0),
        wgmma_serialised=config.kernel != "portable" and serialised(job, kernel),
        compiler=triton.__version__,
    )


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    check = parser.parse_args().check
    rows = [footprint(c, cc) for cc in COMPUTE_CAPABILITIES for c in configurations(cc)]
    for row in rows:
        print(
            f"{row.compute_capability:>5} {row.config.id:<36} {row.registers_per_thread:>4} registers "
            f"{row.shared_memory_bytes:>7} B shared {row.threads:>4} threads {row.spill_bytes:>4} B spilled"
            + (" SERIALISED" if row.wgmma_serialised else "")
        )
    kept = msgspec.json.decode(TARGET.read_bytes(), type=list[Footprint]) if TARGET.exists() else []
    version = rows[0].compiler
    if check:
        return int([row for row in kept if row.compiler == version] != rows)
    others = [row for row in kept if row.compiler != version]
    lines = [json.dumps(msgspec.to_builtins(row)) for row in sorted(others + rows, key=lambda r: r.compiler)]
    TARGET.write_text("[\n " + ",\n ".join(lines) + "\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
