"""The tables of the CUDA programming guide, as read, and which edition gave each column.

Copied number by number on 2026-11-30 from the editions below, never from the catalogue or from memory. Merged cells
are written out. The guide's K and KB are 1,024.

The editions overlap, and where they do they agree in every row here. Three things they do not say:

- No edition that still lists 7.0 was found in its original place: 7.0 stands in the guides up to CUDA 12 only. The
  column comes from the tables of a CUDA 11 edition, and the Volta tuning guide (the PDF, 4.1.3) repeats 64 warps,
  32 CTAs, 64 K registers, 255 a thread and 96 KB.
- 12.1 has no column of its own: newer editions head theirs "12.x", and Table 28 there counts 12.0 and 12.1 to one
  family. A GB10's deviceQuery confirms the capability, not the limits.
- The Blackwell tuning guide (release 13.x, 1.4.1.1) contradicts both editions for 12.0: 32 CTAs and 128 KB per SM. The
  guide's 24 and 100 KB are taken: `cuda_occupancy.h` computes with 24, and RTX 5090s report 102,400 B of shared memory
  per multiprocessor (deviceQuery in public repositories); 128 KB is the unified cache of Table 32.

What the guide says of allocation is one sentence, in the sections on shared memory of 8.x, 9.0, 10.0 and 12.0: 1 KB of
the SM's shared memory per CTA is reserved for system use. The register unit (256 a warp), the sub-partitions (4), the
shared-memory unit (256 B before 8.0, 128 B from then on) and the named barriers are in no edition:
`cuda_occupancy.h` has them, and golden_calculator.json holds what it computes.
"""

from dataclasses import dataclass

EDITIONS = {
    "11": (
        "CUDA C++ Programming Guide of CUDA 11 (spring 2022: columns 3.5 to 8.7), appendix K, Table 15 'Technical "
        "Specifications per Compute Capability', https://docs.nvidia.com/cuda/cuda-c-programming-guide/; read in the "
        "translation HeKun-NVIDIA/CUDA-Programming-Guide-in-Chinese (commit 97ffbbd), which keeps the English tables"
    ),
    "13.0": (
        "CUDA C++ Programming Guide of CUDA 13.0, the last of the old form (columns 7.5 to 12.0), chapter 20, "
        "Table 27 'Technical Specifications per Compute Capability', and the sections 20.6 to 20.10 on each "
        "capability, https://docs.nvidia.com/cuda/cuda-c-programming-guide/; read in a copy"
    ),
    "13.1": (
        "CUDA Programming Guide, page of 15 December 2025, when 13.1 was current (columns 7.5 to 12.x), 5.1.3, "
        "Table 30 'Device and Streaming Multiprocessor (SM) Information', Table 31 'Memory Information', Table 32, "
        "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html; read in two "
        "copies of the page"
    ),
    "13.4": (
        "The same page of CUDA 13.4 or later (it has a column 10.7, which came with 13.4), Tables 30 to 33; read in "
        "a copy of the page"
    ),
}
"""Edition -> what was read, its address, and in what form; all on 2026-11-30."""


@dataclass(frozen=True, slots=True)
class GuideLimits:
    """One column of the guide's tables.

    Attributes:
        ctas_per_sm: "Maximum number of resident blocks per SM".
        warps_per_sm: "Maximum number of resident warps per SM".
        threads_per_sm: "Maximum number of resident threads per SM".
        shared_memory_per_sm_kb: "Maximum amount of shared memory per SM".
        shared_memory_per_cta_kb: "Maximum amount of shared memory per thread block".
        reserved_shared_memory_kb: what the guide reserves for system use per CTA.
        read_in: the editions that have the column.
        tensor_types: the tensor cores' input types of Table 33, of those that the catalogue names.
        threads_per_cta, registers_per_sm, registers_per_cta, registers_per_thread: one cell for all columns.
    """

    ctas_per_sm: int
    warps_per_sm: int
    threads_per_sm: int
    shared_memory_per_sm_kb: int
    shared_memory_per_cta_kb: int
    reserved_shared_memory_kb: int
    read_in: tuple[str, ...]
    tensor_types: str | None = None
    threads_per_cta: int = 1024
    registers_per_sm: int = 64 * 1024
    registers_per_cta: int = 64 * 1024
    registers_per_thread: int = 255


GUIDE = {
    "7.0": GuideLimits(32, 64, 2048, 96, 96, 0, ("11",)),
    "7.5": GuideLimits(16, 32, 1024, 64, 64, 0, ("11", "13.0", "13.1", "13.4"), "fp16 int8"),
    "8.0": GuideLimits(32, 64, 2048, 164, 163, 1, ("11", "13.0", "13.1", "13.4"), "tf32 bf16 fp16 int8"),
    "8.6": GuideLimits(16, 48, 1536, 100, 99, 1, ("11", "13.0", "13.1", "13.4"), "tf32 bf16 fp16 int8"),
    "8.9": GuideLimits(24, 48, 1536, 100, 99, 1, ("13.0", "13.1", "13.4"), "tf32 bf16 fp16 fp8 int8"),
    "9.0": GuideLimits(32, 64, 2048, 228, 227, 1, ("13.0", "13.1", "13.4"), "tf32 bf16 fp16 fp8 int8"),
    "10.0": GuideLimits(32, 64, 2048, 228, 227, 1, ("13.0", "13.1", "13.4"), "tf32 bf16 fp16 fp8 fp4 int8"),
    "10.3": GuideLimits(32, 64, 2048, 228, 227, 1, ("13.1", "13.4"), "tf32 bf16 fp16 fp8 fp4 int8"),
    "12.0": GuideLimits(24, 48, 1536, 100, 99, 1, ("13.0", "13.1", "13.4"), "tf32 bf16 fp16 fp8 fp4 int8"),
    "12.1": GuideLimits(24, 48, 1536, 100, 99, 1, ("13.1", "13.4"), "tf32 bf16 fp16 fp8 fp4 int8"),
}
"""Compute capability -> its column; 12.1 from the columns headed "12.x"."""
