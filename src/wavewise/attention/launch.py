"""From tensors to launches: one place that knows the kernels' arguments."""

from dataclasses import dataclass
from typing import Any

import torch
import triton

from wavewise.attention import kernels as _kernels
from wavewise.attention.configurations import KernelConfig

kernels: Any = _kernels
"""Triton's own annotations call every constant a constexpr, also where a launch passes a number."""

LOG2E = 1.4426950408889634
_PAGE_SIZES = slice(14, 16)
"""Where `_arguments` puts the two page sizes."""
COMBINE_WARPS = 2
"""64 threads of 8 values: one 16-byte load a thread and split."""


def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1 before the import of triton)."""
    return not isinstance(kernels.split_portable, triton.runtime.JITFunction)


@dataclass(frozen=True, slots=True)
class Scope:
    """One set of keys: a paged cache, indices [B, s_q, topk] into it and optional lengths [B]."""

    cache: torch.Tensor
    indices: torch.Tensor
    lengths: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Validated inputs of one decode call. `extra` is None with one scope; q is [B, s_q, H, 512]."""

    q: torch.Tensor
    window: Scope
    extra: Scope | None
    sink: torch.Tensor | None
    softmax_scale: float

    @property
    def queries(self) -> int:
        """Requests times s_q: what the grid counts."""
        return self.q.shape[0] * self.q.shape[1]

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.q.shape[2]


def _arguments(problem: Problem, out: torch.Tensor, lse: torch.Tensor) -> list[Any]:
    """The arguments that all split kernels share, up to the output's strides."""
    q, window = problem.q, problem.window
    extra = problem.extra if problem.extra is not None else problem.window
    bound_e = 0 if problem.extra is None else extra.indices.shape[2]
    return [
        q,
        window.cache,
        window.indices,
        window.indices if window.lengths is None else window.lengths,
        extra.cache,
        extra.indices,
        extra.indices if extra.lengths is None else extra.lengths,
        lse if problem.sink is None else problem.sink,
        out,
        lse,
        problem.softmax_scale * LOG2E,
        q.shape[1],
        window.indices.shape[2],
        bound_e,
        window.cache.shape[1],
        extra.cache.shape[1],
        window.cache.stride(0),
        extra.cache.stride(0),
        window.indices.stride(1),
        extra.indices.stride(1),
        q.stride(1),
        q.stride(2),
    ]


def _flags(problem: Problem) -> dict[str, bool]:
    return {
        "HAS_LENGTH_A": problem.window.lengths is not None,
        "HAS_LENGTH_E": problem.extra is not None and problem.extra.lengths is not None,
        "HAS_SINK": problem.sink is not None,
    }


def constants_of(config: KernelConfig, shift: bool) -> dict[str, Any]:
    """The compile-time constants that a configuration stands for.

    Args:
        config: the configuration.
        shift: whether page sizes arrive as logarithms (the Hopper kernels only).
    """
    if config.kernel == "portable":
        return {
            "BLOCK_H": config.block_h,
            "BLOCK_T": config.block_t,
            "STAGES": config.stages,
            "ASM": not interpreted(),
            "UPCAST": interpreted(),
        }
    constants: dict[str, Any] = {
        "T": config.block_t,
        "NB": config.stages,
        "NWP": config.gather_warps,
        "DEPTH": config.depth,
        "SHIFT": shift,
        "GATHER_REGISTERS": config.gather_registers,
    }
    if config.kernel == "hopper":
        return constants | {"VALUE_REGISTERS": config.value_registers}
    return constants | {"BLOCK_H": config.block_h}


def launch_split(
    problem: Problem, config: KernelConfig, splits: int, out: torch.Tensor, lse: torch.Tensor, pdl: bool
) -> None:
    """One launch of the split kernel.

    Args:
        problem: the inputs.
        config: which kernel, compiled how.
        splits: CTAs that share one query and block of heads.
        out: [N, H, 512] with splits == 1, else partials [N, splits, H, 512].
        lse: [N, H] natural log, else [N, splits, H] base 2.
        pdl: start before the kernel ahead in the stream has ended (the kernel itself waits for its results).
    """
    single = splits == 1
    strides = [out.stride(0), 0 if single else out.stride(1), out.stride(-2)]
    strides += [lse.stride(0), 0 if single else lse.stride(1), lse.stride(-1)]
    arguments = [*_arguments(problem, out, lse), *strides, splits]
    grid = (problem.heads // config.block_h, splits, problem.queries)
    flags = {**_flags(problem), "SINGLE": single, "PDL": pdl}
    options: dict[str, Any] = {} if interpreted() else {"num_warps": config.warps, "launch_pdl": pdl}
    if config.max_registers is not None and options:
        options["maxnreg"] = config.max_registers
    if config.kernel == "portable":
        if options:
            options["num_stages"] = config.stages
        constants = constants_of(config, shift=False)
        kernels.split_portable[grid](*arguments, **flags, **constants, **options)
        return
    from wavewise.attention import gluon_kernels

    # A page size that is a power of two arrives as its logarithm: a shift has far less latency than a division.
    sizes: list[int] = arguments[_PAGE_SIZES]
    shift = all(size & (size - 1) == 0 for size in sizes)
    if shift:
        arguments[_PAGE_SIZES] = [size.bit_length() - 1 for size in sizes]
    wide = config.kernel == "hopper"
    # What a Gluon kernel is typed as differs between versions of Triton.
    kernel: Any = gluon_kernels.split_hopper if wide else gluon_kernels.split_hopper_narrow
    kernel[grid](*arguments, **flags, **constants_of(config, shift), **options)


def launch_combine(
    problem: Problem,
    partial: torch.Tensor,
    partial_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    pdl: bool,
) -> None:
    """Merge partials [N, splits, H, 512] (contiguous) into out [N, H, 512] and lse [N, H]; the sink goes in here."""
    options: dict[str, Any] = {} if interpreted() else {"num_warps": COMBINE_WARPS, "launch_pdl": pdl}
    kernels.sparse_mla_combine[(problem.heads, problem.queries)](
        partial,
        partial_lse,
        lse if problem.sink is None else problem.sink,
        out,
        lse,
        out.stride(0),
        out.stride(1),
        lse.stride(0),
        lse.stride(1),
        H=problem.heads,
        SPLITS=partial.shape[1],
        BLOCK_S=triton.next_power_of_2(partial.shape[1]),
        HAS_SINK=problem.sink is not None,
        PDL=pdl,
        **options,
    )


def launch_baseline(problem: Problem, out: torch.Tensor, lse: torch.Tensor, block_t: int = 16) -> None:
    """The (B, H) kernel that the mission starts from, one CTA per query and head."""
    strides = [out.stride(0), out.stride(1), lse.stride(0), lse.stride(1)]
    options: dict[str, Any] = {} if interpreted() else {"num_warps": 8}
    kernels.tiled_sparse_mla_baseline[(problem.queries, problem.heads)](
        *_arguments(problem, out, lse), *strides, **_flags(problem), BLOCK_T=block_t, **options
    )
