"""`audit`: compile what is not cached, on all cores, and rank what comes out."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wavewise.audit import cache
from wavewise.audit.binary import read_binary
from wavewise.audit.clock import TIMEOUT_S, checked, compiled_within
from wavewise.audit.compile import Job, compile_one
from wavewise.audit.pool import picklable
from wavewise.audit.pool import run as run_pool
from wavewise.audit.rank import capability_number, ranked, row, runs_on
from wavewise.audit.records import AuditReport, KernelConfig, Resources
from wavewise.audit.source import (
    KernelSource,
    as_config,
    constants_of,
    load,
    locate,
    parse_signature,
    source_of,
    unwrapped,
)
from wavewise.audit.toolchain import fingerprint, require_triton, tool, version
from wavewise.audit.worker import WORKER
from wavewise.errors import InputError, UsageError
from wavewise.hardware import Catalogue, GpuSpec, catalogue

Progress = Callable[[str, float], None]
"""Called with what is being done and the share done (0 to 1)."""

BINARIES = (".cubin", ".fatbin", ".so", ".o", ".a")


def audit(
    kernel: Any,
    configs: Sequence[KernelConfig | Mapping[str, Any] | Any] = (KernelConfig(),),
    gpus: Sequence[str | GpuSpec] = ("h200",),
    *,
    signature: str | Mapping[str, str] = "",
    grid: str | None = None,
    let: Mapping[str, int] | None = None,
    jobs: int | None = None,
    use_cache: bool = True,
    timeout_s: float | None = TIMEOUT_S,
    known_gpus: Catalogue | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Compiles `kernel` in every configuration for every GPU's architecture and ranks the configurations.

    No GPU is needed. Compiles run in processes of their own on all cores and are cached by content.

    Args:
        kernel: a function under @triton.jit or @gluon.jit (autotuners are unwrapped), "path/to/module.py:kernel",
            or the path of a cubin or fatbinary (then configs and signature have no meaning).
        configs: mappings of constants and options ({"BLOCK": 64, "num_warps": 8}), `triton.Config`s or
            `KernelConfig`s.
        gpus: catalogue ids, driver names or specs.
        signature: types of the other parameters, see `parse_signature`.
        grid: formula of the launch grid in programs; may use constants of the configuration and `let`.
        let: values for other names in the formula.
        jobs: processes; all cores unless given.
        use_cache: look results up and store them.
        timeout_s: seconds that one compile may take; a configuration over it is a row that says so. None sets no
            limit. A kernel that exists in this process only (defined in `__main__` or inside a function) is
            compiled in it, where a running pass of the compiler is not left half-way.
        known_gpus: the catalogue to find names in.
        progress: called as compiles finish.

    Raises:
        UsageError: names, types or constants that the kernel does not have; no configuration compiles.
        InputError: the module or binary cannot be read.
        MissingExtraError: triton is not installed.
    """
    specs = _specs(gpus, known_gpus)
    checked(timeout_s)
    if isinstance(kernel, Path) or (isinstance(kernel, str) and kernel.endswith(BINARIES)):
        return audit_binary(Path(kernel), specs, grid=grid, let=let)
    if os.environ.get(WORKER):
        raise UsageError("an audit began while a worker imported the kernel's module; guard it with __name__")
    require_triton()
    source = locate(kernel) if isinstance(kernel, str) else source_of(kernel)
    function = load(source) if source is not None and isinstance(kernel, str) else unwrapped(kernel)
    if not hasattr(function, "arg_names"):
        raise UsageError(f"{kernel!r} is no Triton kernel (a function under @triton.jit)")
    chosen = [as_config(config) for config in configs]
    if not chosen:
        raise UsageError("no configuration to audit")
    capabilities = dict.fromkeys(capability_number(spec) for spec in specs)
    pairs = [(config, capability) for config in chosen for capability in capabilities]
    work = [_job(function, source, signature, config, capability) for config, capability in pairs]
    found, compiled = _compiled(function, work, jobs, use_cache, timeout_s, progress)
    by_pair = {(id(config), capability): f for (config, capability), f in zip(pairs, found, strict=True)}
    _refuse_if_nothing_compiled(function.__name__, found)
    rows = [
        row(spec, config, by_pair[id(config), capability_number(spec)], grid, let or {})
        for spec in specs
        for config in chosen
    ]
    return AuditReport(
        kernel=function.__name__,
        rows=ranked(rows),
        compiler=fingerprint(),
        compiled=compiled,
        cached=len(work) - compiled,
    )


def audit_binary(
    path: Path,
    gpus: Sequence[str | GpuSpec],
    *,
    threads: int | None = None,
    dynamic_shared_memory: int = 0,
    grid: str | None = None,
    let: Mapping[str, int] | None = None,
    known_gpus: Catalogue | None = None,
) -> AuditReport:
    """Every kernel in a cubin, a fatbinary or a library that holds some, on every GPU.

    Of a binary for several architectures a GPU sees the images that run on it; where none does, the rows say so.

    Args:
        path: the binary.
        gpus: catalogue ids, driver names or specs.
        threads: per CTA, where the binary records none or only a maximum; what it fixes stays.
        dynamic_shared_memory: bytes that the launch adds.
        grid: formula of the grid.
        let: values for names in it.
        known_gpus: the catalogue to find names in.

    Raises:
        UsageError: a negative number, or an unknown GPU.
        InputError: the file cannot be read or holds no kernel.
    """
    import msgspec

    if threads is not None and threads < 1:
        raise UsageError(f"threads {threads}: a CTA has at least 1 thread")
    if dynamic_shared_memory < 0:
        raise UsageError(f"{dynamic_shared_memory} bytes of dynamic shared memory: negative")
    specs = _specs(gpus, known_gpus)
    found = read_binary(path)
    if threads is not None:
        found = tuple(
            msgspec.structs.replace(f, threads_per_cta=threads, threads_are_bound=False)
            if f.threads_per_cta is None or f.threads_are_bound
            else f
            for f in found
        )
    rows = [
        row(spec, None, f, grid, let or {}, dynamic_shared_memory)
        for spec in specs
        for f in ([f for f in found if runs_on(f.arch, spec.compute_capability or "")] or found)
    ]
    return AuditReport(
        kernel=path.name, rows=ranked(rows), compiler=f"cuobjdump, {version(tool('cuobjdump'))}"
    )


def _specs(gpus: Sequence[str | GpuSpec], known: Catalogue | None) -> list[GpuSpec]:
    names = [gpus] if isinstance(gpus, (str, GpuSpec)) else list(gpus)
    if not names:
        raise UsageError("name at least one GPU")
    lookup = known or catalogue()
    return [name if isinstance(name, GpuSpec) else lookup.find(name) for name in names]


def _job(
    function: Any,
    source: KernelSource | None,
    signature: str | Mapping[str, str],
    config: KernelConfig,
    capability: int,
) -> Job:
    constants = constants_of(function, config)
    return Job(source, parse_signature(function, signature, constants), constants, config, capability)


def _compiled(
    function: Any,
    work: Sequence[Job],
    jobs: int | None,
    use_cache: bool,
    timeout_s: float | None,
    progress: Progress | None,
) -> tuple[list[Resources], int]:
    """Results in the order of `work`, and how many had to be compiled."""
    keys = [cache.key(function, job) if use_cache else "" for job in work]
    found: dict[int, Resources] = {}
    for index, name in enumerate(keys):
        stored = cache.get(name) if name else None
        if stored is not None:
            found[index] = stored
    missing = [index for index in range(len(work)) if index not in found]

    def done(place: int, result: Resources) -> None:
        index = missing[place]
        found[index] = result
        if keys[index] and result.error is None:
            cache.put(keys[index], result)
        if progress is not None:
            finished = sum(1 for i in missing if i in found)
            progress(f"compiled {finished} of {len(missing)}", finished / len(missing))

    todo = [work[index] for index in missing]
    if todo and todo[0].source is not None and picklable(todo):
        run_pool(todo, jobs or os.cpu_count() or 1, done, timeout_s)
    else:
        for place, job in enumerate(todo):
            compile_here = partial(compile_one, function, job)
            done(place, compiled_within(timeout_s, job, function.__name__, compile_here))
    return [found[index] for index in range(len(work))], len(missing)


def _refuse_if_nothing_compiled(name: str, found: Sequence[Resources]) -> None:
    """A kernel that compiles in no configuration is an error, told once; what takes too long stays a row."""
    errors = [
        f.error for f in found if f.error is not None and f.shared_memory_bytes is None and not f.timed_out
    ]
    if len(errors) == len(found):
        others = len(set(errors)) - 1
        more = f" (and {others} other messages)" if others else ""
        raise InputError(f"{name} does not compile for {found[0].arch}: {errors[0]}{more}")
