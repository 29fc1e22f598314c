"""What a recording is asked to do."""

from dataclasses import dataclass
from pathlib import Path

from wavewise.errors import UsageError
from wavewise.record.model import Settings


@dataclass(frozen=True)
class Options:
    """All choices of one recording; the command line's options under the same names.

    Attributes:
        batches: batch sizes, in the order in which they are recorded.
        prompt_tokens: length of every prompt.
        steps: decode steps wanted in the profiler window.
        warmup_steps: steps that every request makes before anything is measured.
        measure_s: how long un-profiled decoding is measured before and behind the window (at least
            `MEASURE_EVENTS` steps).
        max_tokens: length cap of every request, None for the engine's usual one.
        trace_dir: where this host finds the server's traces; server_trace_dir: the same folder as the server
            sees it, for an engine that is told where to write.
        telemetry: "auto" (local GPUs when the server is local), "local", "none", or a file from another host.
        max_concurrency: most requests at once; requests_per_s: most requests started per second.
        timeout_s: longest wait for all first tokens of a batch; stall_s: longest silence of the streams;
            trace_timeout_s: longest wait for a trace; wait_idle_s: for the server to be idle.
    """

    url: str
    out: Path
    batches: tuple[int, ...] = (1, 8, 16, 32, 64, 96)
    engine: str = "auto"
    model: str | None = None
    prompt_tokens: int = 4096
    steps: int = 12
    warmup_steps: int = 8
    measure_s: float = 1.5
    max_tokens: int | None = None
    profile: bool = True
    trace_dir: Path | None = None
    server_trace_dir: str | None = None
    leave_traces: bool = False
    move_traces: bool = False
    telemetry: str = "auto"
    gpus: tuple[int, ...] | None = None
    max_concurrency: int | None = None
    requests_per_s: float | None = None
    timeout_s: float = 600.0
    stall_s: float = 120.0
    trace_timeout_s: float = 300.0
    wait_idle_s: float = 30.0
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without a server.

        Raises:
            UsageError: a value makes no sense.
        """
        if not self.batches or min(self.batches) < 1 or len(set(self.batches)) < len(self.batches):
            raise UsageError("--batches wants different whole numbers from 1 on, like 1,8,32")
        for name in ("prompt_tokens", "steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
        for name in ("timeout_s", "stall_s", "trace_timeout_s", "measure_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"--{name.removesuffix('_s').replace('_', '-')} must be more than 0 seconds")
        for name, least in (("warmup_steps", 0), ("wait_idle_s", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"--{name.removesuffix('_s').replace('_', '-')} must be at least {least}")
        if self.leave_traces and self.move_traces:
            raise UsageError("--leave-traces and --move-traces contradict each other; choose one")
        if self.requests_per_s is not None and not self.requests_per_s > 0:
            raise UsageError("--request-rate must be more than 0")
        if self.max_concurrency is not None and max(self.batches) > self.max_concurrency:
            raise UsageError(
                f"batch {max(self.batches)} is beyond --max-concurrency "
                f"{self.max_concurrency}; ask for smaller --batches"
            )

    def settings(self, prompts: str) -> Settings:
        """What `run.json` keeps of this."""
        return Settings(
            batches=self.batches,
            prompt_tokens=self.prompt_tokens,
            steps=self.steps,
            warmup_steps=self.warmup_steps,
            measure_s=self.measure_s,
            max_tokens=self.max_tokens,
            profile=self.profile,
            prompts=prompts,
        )
