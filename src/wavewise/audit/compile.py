"""Compiles one kernel for one architecture with Triton, offline, and reads what ptxas reports.

`triton.compile` with an explicit target needs no GPU and no driver (triton.tools.compile does the same). The
report that ptxas prints with -v is the only place where spills are told in bytes, so the compile runs with
Triton's own `dump_ptxas_log` and past Triton's cache, and the printed report is caught.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wavewise.audit.records import KernelConfig, Resources
from wavewise.audit.source import KernelSource, Signature

_FUNCTION = re.compile(r"bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")
_TOO_MUCH_SHARED = re.compile(r"uses too much shared data \((0x[0-9a-f]+|\d+) bytes")
_STACK = re.compile(r"(\d+) bytes stack frame")


@dataclass(frozen=True, slots=True)
class Job:
    """One compile: everything a worker needs.

    Attributes:
        capability: compute capability as Triton writes it: 90 for "9.0".
        constants: values of all parameters compiled in.
        source: where the kernel is; None for a kernel that exists in this process only.
    """

    source: KernelSource | None
    signature: Signature
    constants: dict[str, Any]
    config: KernelConfig
    capability: int


def triton_source(kernel: Any, job: Job) -> Any:
    """The AST source that Triton compiles and hashes."""
    from triton.compiler import ASTSource

    source_class: Any = ASTSource
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        source_class = GluonASTSource
    constants = {**dict.fromkeys(job.signature.ones, 1), **job.constants}
    types = {
        name: "constexpr" if name in constants else job.signature.types[name] for name in kernel.arg_names
    }
    index = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    aligned = {index[name]: [["tt.divisibility", 16]] for name in sorted(job.signature.aligned)}
    return source_class(kernel, types, {index[name]: value for name, value in constants.items()}, aligned)


def options_of(config: KernelConfig) -> dict[str, Any]:
    """The configuration as Triton's options."""
    options: dict[str, Any] = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "num_ctas": config.num_ctas,
    }
    if config.maxnreg is not None:
        options["maxnreg"] = config.maxnreg
    return options


def compile_one(kernel: Any, job: Job) -> Resources:
    """Resources of `kernel`; a kernel that does not compile comes back with `error`."""
    import triton
    from triton import knobs
    from triton.backends.compiler import GPUTarget

    name, arch = kernel.__name__, f"sm_{job.capability}"
    report = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as scratch,
        knobs.cache.scope(),
        knobs.compilation.scope(),
        knobs.nvidia.scope(),
        contextlib.redirect_stdout(report),
        _standard_error() as diagnostics,
    ):
        knobs.cache.dir = scratch
        knobs.compilation.always_compile = True
        knobs.nvidia.dump_ptxas_log = True
        target = GPUTarget("cuda", job.capability, 32)
        try:
            compiled = triton.compile(
                triton_source(kernel, job), target=target, options=options_of(job.config)
            )
        except Exception as error:
            # Whatever a compiler raises (its own errors, assertions of passes, Python errors inside the
            # kernel) is about the user's kernel and becomes a row.
            return _failed(name, arch, error, diagnostics(), report.getvalue())
    return _measured(name, compiled.metadata, report.getvalue(), arch, job.config)


def _measured(name: str, metadata: Any, report: str, arch: str, config: KernelConfig) -> Resources:
    used = _USED.search(report)
    if used is None:
        return Resources(kernel=name, arch=arch, error="ptxas reported no resources")
    functions = [tuple(map(int, found)) for found in _FUNCTION.findall(report)]
    compiled_for = re.search(r"for '(sm_\w+)'", report)
    smem = re.search(r"(\d+) bytes smem", used[2])
    barriers = re.search(r"used (\d+) barriers", used[2])
    cumulative = re.search(r"(\d+) bytes cumulative stack size", used[2])
    frames = [int(size) for size in _STACK.findall(report)]
    cluster = config.num_ctas
    return Resources(
        kernel=name,
        arch=compiled_for[1] if compiled_for else arch,
        threads_per_cta=32 * metadata.num_warps,
        registers_per_thread=int(used[1]),
        spill_store_bytes=sum(stores for stores, _ in functions),
        spill_load_bytes=sum(loads for _, loads in functions),
        stack_bytes=int(cumulative[1]) if cumulative else max(frames, default=0),
        shared_memory_bytes=metadata.shared + (int(smem[1]) if smem else 0),
        barriers=int(barriers[1]) if barriers else 0,
        cluster_size=cluster if cluster > 1 else None,
        tensor_memory_columns=getattr(metadata, "tmem_size", None) or None,
    )


def _failed(name: str, arch: str, error: Exception, diagnostics: str, report: str) -> Resources:
    said = _one_line(error)
    if too_much := _TOO_MUCH_SHARED.search(f"{error}{report}"):
        # ptxas refuses static shared memory over the limit: a size that does not fit, not a broken kernel.
        return Resources(kernel=name, arch=arch, shared_memory_bytes=int(too_much[1], 0), error=said)
    first = next((line.strip() for line in diagnostics.splitlines() if "error:" in line), None)
    return Resources(
        kernel=name, arch=arch, error=f"{said} ({first})" if first and first not in said else said
    )


def _one_line(error: BaseException) -> str:
    """A compiler's message in one line: where, the source line, and what is wrong there."""
    causes: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and len(causes) < 4:
        causes.append(here)
        here = here.__cause__
    message = str(error).strip()
    located = re.match(r"at (\d+):(\d+):\n(.*?)\n\s*\^(.*)", message, re.DOTALL)
    if located:
        line = located[3].splitlines()[-1].strip()
        said = " ".join(located[4].split()) or " ".join(str(causes[-1]).split())
        return f"at line {located[1]}, `{line}`: {said or type(causes[-1]).__name__}"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    ptxas = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    said = (ptxas or lines or [""])[0]
    kind = type(error).__name__
    return f"{kind}: {said}" if said else kind


@contextlib.contextmanager
def _standard_error() -> Iterator[Any]:
    """Catches what C++ passes print on file descriptor 2; yields a function that gives the text so far."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile(mode="w+", errors="replace") as file:
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.flush()
            file.seek(0)
            return file.read()

        try:
            yield text
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
