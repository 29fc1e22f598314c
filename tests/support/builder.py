"""Builds small Traces for tests: a step at a time, with markers, launches, replays and eager work."""

from dataclasses import dataclass, field

import polars as pl

from wavewise.trace import DeviceProperties, Trace
from wavewise.trace.schema import (
    LAUNCH_SCHEMA,
    MARKER_SCHEMA,
    OPERATION_SCHEMA,
    REJECTED_SCHEMA,
    WHOLE_GRAPH_SCHEMA,
    empty,
)

H200 = DeviceProperties(
    id=0,
    name="NVIDIA H200",
    compute_capability="9.0",
    sm_count=132,
    warp_size=32,
    max_threads_per_cta=1024,
    max_threads_per_sm=2048,
    registers_per_sm=65536,
    shared_memory_per_sm=233472,
    shared_memory_per_cta=49152,
    shared_memory_per_cta_optin=232448,
    memory_bytes=150109880320,
)


@dataclass
class Kernel:
    """One kernel of a replay: name, duration, gap before it, grid."""

    name: str
    duration_ns: int
    gap_ns: int = 500
    grid: tuple[int, int, int] | None = (64, 1, 1)
    block: tuple[int, int, int] | None = (128, 1, 1)
    registers: int | None = 32
    shared: int | None = 0
    stream: int = 7


@dataclass
class TraceBuilder:
    """Collects operations, launches and markers on one clock; times in ns."""

    now: int = 1_000_000
    correlation: int = 100
    operations: list[dict[str, object]] = field(default_factory=list)
    rejected: list[dict[str, object]] = field(default_factory=list)
    launches: list[dict[str, object]] = field(default_factory=list)
    markers: list[dict[str, object]] = field(default_factory=list)
    gpu_free: int = 1_000_000

    def marker(self, name: str, duration_ns: int = 200_000) -> None:
        self.markers.append(
            {"name": name, "start_ns": self.now, "duration_ns": duration_ns, "pid": 1, "tid": 1}
        )

    def launch(self, name: str, *, recorded: bool = True, duration_ns: int = 5_000) -> int:
        self.correlation += 1
        self.now += 1_000
        if recorded:
            self.launches.append(
                {
                    "name": name,
                    "start_ns": self.now,
                    "duration_ns": duration_ns,
                    "pid": 1,
                    "tid": 1,
                    "correlation": self.correlation,
                }
            )
        self.now += duration_ns
        return self.correlation

    def operation(self, kernel: Kernel, start: int, correlation: int, *, rejected: str | None = None) -> int:
        grid, block = kernel.grid or (None,) * 3, kernel.block or (None,) * 3
        row: dict[str, object] = {
            "name": kernel.name,
            "kind": "memcpy"
            if kernel.name.startswith("Memcpy")
            else "memset"
            if kernel.name.startswith("Memset")
            else "kernel",
            "device": 0,
            "stream": kernel.stream,
            "start_ns": start,
            "duration_ns": kernel.duration_ns,
            "correlation": correlation,
            "graph_id": None,
            "grid_x": grid[0],
            "grid_y": grid[1],
            "grid_z": grid[2],
            "block_x": block[0],
            "block_y": block[1],
            "block_z": block[2],
            "registers_per_thread": kernel.registers,
            "shared_memory_bytes": kernel.shared,
            "recorded_occupancy": None,
            "recorded_blocks_per_sm": None,
        }
        if rejected:
            self.rejected.append({**row, "reason": rejected})
        else:
            self.operations.append(row)
        return start + kernel.duration_ns

    def replay(
        self,
        kernels: list[Kernel],
        *,
        lost: set[int] = frozenset(),  # type: ignore[assignment]
        recorded: bool = True,
        delay_ns: int = 3_000,
    ) -> None:
        """One graph launch; kernels run one after another, each `gap_ns` behind the last."""
        correlation = self.launch("cudaGraphLaunch", recorded=recorded)
        at = max(self.now + delay_ns, self.gpu_free + delay_ns)
        for i, kernel in enumerate(kernels):
            start = at + (kernel.gap_ns if i else 0)
            at = start + kernel.duration_ns
            if i not in lost:
                self.operation(kernel, start, correlation)
        self.gpu_free = max(self.gpu_free, at)
        self.now = max(self.now, at - 1)

    def eager(
        self, kernel: Kernel, *, recorded: bool = True, lost: bool = False, delay_ns: int = 2_000
    ) -> None:
        correlation = self.launch("cudaLaunchKernel", recorded=recorded)
        start = max(self.now, self.gpu_free) + delay_ns
        if not lost:
            self.gpu_free = max(self.gpu_free, self.operation(kernel, start, correlation))

    def pause(self, ns: int) -> None:
        self.now = max(self.now, self.gpu_free) + ns
        self.gpu_free = max(self.gpu_free, self.now - ns)

    def build(
        self, *, devices: tuple[DeviceProperties, ...] = (H200,), markers: bool = True, launches: bool = True
    ) -> Trace:
        """The Trace, sorted as readers sort it."""
        return Trace(
            path="built.json",
            source="kineto",
            document=0,
            operations=pl.DataFrame(self.operations, schema=OPERATION_SCHEMA).sort("start_ns", "correlation"),
            rejected=pl.DataFrame(self.rejected, schema=REJECTED_SCHEMA),
            launches=pl.DataFrame(self.launches if launches else [], schema=LAUNCH_SCHEMA).sort("start_ns"),
            markers=pl.DataFrame(self.markers if markers else [], schema=MARKER_SCHEMA).sort(
                ["start_ns", "duration_ns"], descending=[False, True]
            ),
            whole_graphs=empty(WHOLE_GRAPH_SCHEMA),
            devices=devices,
            events_read=len(self.operations) + len(self.launches) + len(self.markers),
        )


def vllm(batch: int, tokens: int | None = None, context: tuple[int, int] = (0, 0)) -> str:
    """vLLM's marker of a step."""
    return f"execute_context_{context[0]}({context[1]})_generation_{batch}({tokens or batch})"


def layers(batch: int, count: int = 2) -> list[Kernel]:
    """A small decode graph: per layer a norm (one CTA a token), a GEMM, attention in splits, its combine."""
    kernels: list[Kernel] = []
    for _ in range(count):
        kernels += [
            Kernel("void vllm::rms_norm_kernel<c10::BFloat16>()", 2_000 + 10 * batch, grid=(batch, 1, 1)),
            Kernel("nvjet_sm90_tst_64x80", 10_000, grid=(48, 2, 1), registers=168, shared=100_000),
            Kernel(
                "void flash::flash_fwd_splitkv_kernel<T>()",
                20_000 + 100 * batch,
                grid=(1, 4, batch),
                shared=102_400,
            ),
            Kernel("void flash::flash_fwd_splitkv_combine_kernel<T>()", 2_000, grid=(batch, 2, 1)),
        ]
    return kernels


def decode_run(
    batches: list[int], *, bucket: dict[int, int] | None = None, boundary_ns: int = 50_000
) -> TraceBuilder:
    """A recording of decode steps, one replay each and one eager sampling kernel behind it."""
    builder = TraceBuilder()
    for batch in batches:
        builder.marker(vllm(batch))
        builder.replay(layers((bucket or {}).get(batch, batch)))
        builder.eager(Kernel("argmax_kernel", 3_000))
        builder.pause(boundary_ns)
    return builder
