"""What a recording says: the typed contents of `run.json`.

Times of day are Unix seconds of the recording host's clock (`..._unix_s`); `Clock` says how far the server's
clock is from it.
"""

from wavewise.findings.base import Result

SCHEMA = "wavewise.run/1"
_LOOK_BACK_S = 0.5


class Latency(Result, frozen=True, kw_only=True):
    """What the streams of one batch did in one window of time.

    Attributes:
        tokens_per_s: sum over the streams of (tokens gained / time between first and last arrival), so that
            the window's edges do not cut a step in half.
        step_ms: batch size / tokens_per_s: the step time where every request gains one token per step.
        inter_token_ms_mean, inter_token_ms_p50, inter_token_ms_p90, inter_token_ms_p99: over all tokens of
            all streams; an event that brings k tokens counts as k tokens of 1/k its interval.
        tokens_per_event: above 1 where the server sends several tokens at once (speculative decoding, a
            front end that lags behind, a stream interval).
        events_of_slowest_stream: steps seen by the stream that saw fewest.
        context_tokens_min, context_tokens_max: key/value tokens per request, at the window's start over all
            streams and at its end.
    """

    start_unix_s: float
    end_unix_s: float
    streams: int
    tokens: int
    tokens_per_s: float
    step_ms: float
    inter_token_ms_mean: float
    inter_token_ms_p50: float
    inter_token_ms_p90: float
    inter_token_ms_p99: float
    tokens_per_event: float
    events_of_slowest_stream: int
    context_tokens_min: int | None = None
    context_tokens_max: int | None = None


class StepCount(Result, frozen=True, kw_only=True):
    """How many engine steps of one kind and batch size the markers of a trace name."""

    kind: str
    batch_size: int | None
    steps: int


class TraceFile(Result, frozen=True, kw_only=True):
    """One trace file of a run folder.

    Attributes:
        file: its name in the run folder.
        source: where the server wrote it.
        complete: the file ends as a whole JSON document (and gzip stream) does.
        gpu: it holds GPU kernels (a front end's trace does not).
        steps: the engine's step markers in it; empty where the engine writes none.
        base_time_ns: the Unix time of the trace's time zero, None where the file does not say.
    """

    file: str
    source: str
    bytes: int
    complete: bool
    gpu: bool
    steps: tuple[StepCount, ...] = ()
    base_time_ns: int | None = None
    reason: str | None = None


class Batch(Result, frozen=True, kw_only=True):
    """Everything measured at one batch size.

    Attributes:
        batch_size: requests decoding at once.
        prompt_tokens: tokens of each prompt as asked; `prompt_tokens_min` and `_max` as the server counted.
        running: the server's own count of running requests while the batch was held; None with
            `running_reason`.
        unprofiled: before the profiler window. after: behind it, at the same batch.
        profiled: inside the profiler window, as the streams saw it.
        slowdown: profiled over un-profiled inter-token latency (medians; the un-profiled one is the mean of
            before and after, so that the growing context cancels), None without a profiler window.
        recovered: after over before, medians; close to 1 when the server is as it was.
        held: every step that a trace's markers name is a decode step of exactly this batch size; None where
            no marker says it.
        traces: files in the run folder, GPU traces first.
        profile: "recorded", "truncated", "missing", "left_on_server" or "none".
        profile_start_unix_s, profile_stop_unix_s: when the window was opened, and when its steps had passed.
    """

    batch_size: int
    prompt_tokens: int
    prompt_tokens_min: int | None = None
    prompt_tokens_max: int | None = None
    cached_tokens_max: int | None = None
    running: int | None = None
    waiting: int | None = None
    running_reason: str | None = None
    first_token_s_min: float
    first_token_s_max: float
    unprofiled: Latency
    after: Latency | None = None
    profiled: Latency | None = None
    slowdown: float | None = None
    slowdown_reason: str | None = None
    recovered: float | None = None
    held: bool | None = None
    held_reason: str | None = None
    profile: str
    profile_reason: str | None = None
    profile_start_unix_s: float | None = None
    profile_stop_unix_s: float | None = None
    traces: tuple[TraceFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def context_tokens(self) -> int | None:
        """Key/value tokens per request around the profiler window (middle of what was seen), if known."""
        window = self.profiled or self.unprofiled
        if window.context_tokens_min is None or window.context_tokens_max is None:
            return None
        return (window.context_tokens_min + window.context_tokens_max) // 2


class Server(Result, frozen=True, kw_only=True):
    """The server as its answers (and, on the same host, its command line) describe it. Unknown is None.

    Attributes:
        profiler: whether it offers /start_profile.
        profiler_dir: where it writes traces, as the server sees it.
        max_batch: most requests it runs at once.
        kv_tokens: key/value tokens that fit in its cache.
        cuda_graph_max_batch: largest captured batch size.
        flags: its settings, secrets removed. flags_source: "answers", "command line", or both.
    """

    engine: str
    version: str | None = None
    model: str
    models: tuple[str, ...] = ()
    profiler: bool | None = None
    profiler_dir: str | None = None
    profiler_with_stack: bool | None = None
    metrics: bool | None = None
    max_model_len: int | None = None
    max_batch: int | None = None
    kv_tokens: int | None = None
    ranks: int | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    cuda_graph_max_batch: int | None = None
    stream_interval: int | None = None
    flags: dict[str, str] = {}  # noqa: RUF012 - msgspec copies a mutable default
    flags_source: str | None = None


class Clock(Result, frozen=True, kw_only=True):
    """Server clock minus recording clock, in seconds: 0 on the same host, else from its answers' Date headers.

    The true offset lies between the bounds; None where no answer carried a date.
    """

    offset_s_low: float | None = None
    offset_s_high: float | None = None
    answers: int = 0


class TelemetryGpu(Result, frozen=True, kw_only=True):
    """One sampled GPU. `gpm` says whether its driver offers performance metrics; `gpm_reason` why not."""

    index: int
    name: str
    power_limit_w: float | None = None
    memory_total_mib: int | None = None
    gpm: bool = False
    gpm_reason: str | None = None


class Telemetry(Result, frozen=True, kw_only=True):
    """The telemetry file beside `run.json`, or why there is none."""

    file: str | None = None
    source: str
    period_ms: float | None = None
    driver: str | None = None
    gpus: tuple[TelemetryGpu, ...] = ()
    samples: int = 0
    reason: str | None = None


class Settings(Result, frozen=True, kw_only=True):
    """What was asked for: a resumed run must ask for the same."""

    batches: tuple[int, ...]
    prompt_tokens: int
    steps: int
    warmup_steps: int
    measure_s: float
    max_tokens: int | None
    profile: bool
    prompts: str


class Window(Result, frozen=True, kw_only=True):
    """A profiler window, written down before each of its stages begins.

    Attributes:
        state: "open" (its steps pass), "passed" (every stream has seen its steps, the profiler is being
            stopped), "closed", "broken" (stopped before its steps had passed), "collected" (its traces are in
            the run folder), "missing" (waited for in vain).
        label: what its traces are called, by an engine that takes a name.
        trace_dir: where its traces are looked for; None where they stay with the server.
        seen: the trace files there before it opened: path to (bytes, modification time in ns).
        stop_unix_s: when its steps had passed, and the profiler was told to stop.
        profiled: what the streams saw inside it.
        output_tokens: of the furthest stream when its steps had passed.
    """

    state: str
    label: str
    trace_dir: str | None
    seen: dict[str, tuple[int, int]]
    start_unix_s: float
    stop_unix_s: float | None = None
    profiled: Latency | None = None
    output_tokens: int = 0


class Unfinished(Result, frozen=True, kw_only=True):
    """The batch that is being recorded, as far as it has come: what a resumed recorder takes up.

    Attributes:
        attempt: 1, or 2 after a window that held other steps.
        settings, server: under which its measurements were made; under others they are made again.
        batch: what is measured, from the end of the measurement before the window on.
        output_tokens: of the furthest stream at that end.
        window: the newest profiler window.
        measured: nothing but traces is outstanding.
    """

    batch_size: int
    attempt: int = 1
    settings: Settings
    server: Server
    batch: Batch | None = None
    output_tokens: int = 0
    window: Window | None = None
    measured: bool = False

    @property
    def profiler_open(self) -> bool:
        """Whether the server's profiler runs, for all that is known."""
        return self.window is not None and self.window.state in ("open", "passed")


class Run(Result, frozen=True, kw_only=True):
    """One recording.

    Attributes:
        state: "running", "interrupted", "failed" or "complete"; a killed recorder leaves "running".
        profiler_open: the recorder had the server's profiler running when this was written.
        unfinished: the batch that was being recorded when this was written.
        client: versions and host facts of the recorder.
    """

    schema: str = SCHEMA
    wavewise: str
    url: str
    server: Server
    settings: Settings
    state: str
    reason: str | None = None
    profiler_open: bool = False
    started_unix_s: float
    finished_unix_s: float | None = None
    batches: tuple[Batch, ...] = ()
    unfinished: Unfinished | None = None
    telemetry: Telemetry
    clock: Clock
    client: dict[str, str] = {}  # noqa: RUF012 - msgspec copies a mutable default

    @property
    def decode_windows(self) -> tuple[tuple[float, float], ...]:
        """When the largest recorded batch decoded without the profiler, in Unix seconds.

        For reading telemetry: the rest of a recording is prefill, loading and waiting. NVML's utilisation
        looks back over up to a second, so the first half second of each window is left out.
        """
        if not self.batches:
            return ()
        largest = max(self.batches, key=lambda batch: batch.batch_size)
        windows = (largest.unprofiled, largest.after)
        return tuple((window.start_unix_s + _LOOK_BACK_S, window.end_unix_s) for window in windows if window)

    def batch_of(self, trace_file: str) -> Batch | None:
        """The batch that a trace file of this folder (by its name) was recorded at."""
        for batch in self.batches:
            if any(trace.file == trace_file for trace in batch.traces):
                return batch
        return None
