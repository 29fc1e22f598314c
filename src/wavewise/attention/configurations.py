"""The kernel configurations that ship, and what the compiler made of each: footprints as data.

`footprints.json` holds, for every configuration and architecture, the registers, shared memory, threads and
spills that an offline compilation gave (`benchmarks/attention_footprints.py` writes it, a test recompiles and
compares). So a plan needs neither torch nor triton nor a GPU.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import msgspec

from wavewise.errors import InputError
from wavewise.hardware import GpuSpec, Launch

SUPPORTED_HEADS = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One way to compile one kernel.

    Attributes:
        kernel: "portable" (Triton, any architecture), "hopper" or "hopper_narrow" (Gluon, sm_90 only).
        block_h: heads of one CTA.
        block_t: tokens of one tile.
        warps: warps of the kernel (of its default partition, for Gluon).
        stages: pipeline stages (portable) or depth of the ring of KV tiles (hopper).
        max_registers: cap given to the compiler; None leaves it free.
        depth: units of 32 raw rows in flight or being decoded (hopper only).
        gather_warps: warps that gather and decode (hopper only).
        gather_registers: registers a thread of theirs (hopper only).
        value_registers: registers a thread of the value warps (hopper only).
    """

    kernel: str
    block_h: int
    block_t: int
    warps: int
    stages: int
    max_registers: int | None = None
    depth: int = 0
    gather_warps: int = 0
    gather_registers: int = 0
    value_registers: int = 0

    @property
    def id(self) -> str:
        """A name that tells shipped configurations apart: "portable-h16-t32-w8-s1"."""
        cap = "" if self.max_registers is None else f"-r{self.max_registers}"
        gather = f"-d{self.depth}-g{self.gather_warps}" if self.gather_warps else ""
        return f"{self.kernel}-h{self.block_h}-t{self.block_t}-w{self.warps}-s{self.stages}{gather}{cap}"

    @property
    def tile(self) -> str:
        """Heads by tokens of one tile, "64x64"."""
        return f"{self.block_h}x{self.block_t}"

    def serves(self, heads: int) -> bool:
        """Whether `heads` query heads split into whole blocks of this configuration."""
        return heads % self.block_h == 0


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the compiler made of one configuration on one architecture.

    Attributes:
        config: the configuration.
        compute_capability: exact, "12.0".
        registers_per_thread: at launch.
        shared_memory_bytes: static + dynamic, per CTA.
        threads: per CTA, worker warps included.
        spill_bytes: bytes of local memory a thread; 0 is no spill.
        wgmma_serialised: whether ptxas serialised the asynchronous MMAs (False where there are none).
        compiler: the version of Triton that compiled it.
    """

    config: KernelConfig
    compute_capability: str
    registers_per_thread: int
    shared_memory_bytes: int
    threads: int
    spill_bytes: int
    wgmma_serialised: bool
    compiler: str

    def launch(self, grid: tuple[int, int, int]) -> Launch:
        """The launch that `occupancy` judges."""
        return Launch(
            grid=grid,
            block=(self.threads, 1, 1),
            registers_per_thread=self.registers_per_thread,
            shared_memory_bytes=self.shared_memory_bytes,
        )


HOPPER = (
    KernelConfig("hopper", 64, 32, 4, 3, depth=3, gather_warps=4, gather_registers=128, value_registers=160),
    KernelConfig("hopper_narrow", 32, 64, 4, 2, depth=3, gather_warps=4, gather_registers=128),
    KernelConfig("hopper_narrow", 16, 64, 4, 2, depth=3, gather_warps=4, gather_registers=128),
    KernelConfig("hopper_narrow", 8, 64, 4, 2, depth=3, gather_warps=4, gather_registers=128),
)
"""Needs wgmma: compute capability 9.0 and no other."""

PORTABLE = (
    KernelConfig("portable", 32, 32, 8, 1),
    KernelConfig("portable", 16, 32, 8, 1),
    KernelConfig("portable", 16, 16, 8, 1),
    KernelConfig("portable", 8, 32, 8, 1),
    KernelConfig("portable", 8, 16, 8, 1),
    KernelConfig("portable", 8, 16, 4, 1),
)
"""Runs wherever Triton's bf16 dot does."""

MEASURED_COMPILER = "3.6.0"
"""The Triton that the recorded GPU measurements ran with."""

COMPUTE_CAPABILITIES = ("9.0", "10.0", "12.0")
"""Architectures that are audited."""


def configurations(compute_capability: str) -> tuple[KernelConfig, ...]:
    """What ships for one architecture, by exact capability."""
    return HOPPER + PORTABLE if compute_capability == "9.0" else PORTABLE


@lru_cache(maxsize=1)
def shipped_footprints() -> tuple[Footprint, ...]:
    """Every audited footprint, as `footprints.json` holds them."""
    text = resources.files("wavewise.attention").joinpath("footprints.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Footprint, ...])


def footprints_for(gpu: GpuSpec, compiler: str | None = None) -> tuple[Footprint, ...]:
    """The shipped footprints of the GPU's exact architecture.

    Args:
        gpu: which architecture.
        compiler: Triton's version; None, or one that was not audited, takes the version that was measured.

    Raises:
        InputError: none ships for the architecture.
    """
    audited = {f.compiler for f in shipped_footprints()}
    version = compiler if compiler in audited else MEASURED_COMPILER
    found = tuple(
        f
        for f in shipped_footprints()
        if f.compute_capability == gpu.compute_capability and f.compiler == version
    )
    if not found:
        raise InputError(
            f"{gpu.name}: no audited attention kernel for compute capability {gpu.compute_capability}; "
            f"there are some for {', '.join(COMPUTE_CAPABILITIES)}"
        )
    return found
