"""What `wavewise record` measured beside the traces: the server without a profiler."""

from wavewise.findings.base import Result
from wavewise.findings.scaling import Fit


class RecordedPoint(Result, frozen=True, kw_only=True):
    """One batch size of a recording.

    Attributes:
        run: the folder that holds its run.json.
        unprofiled_step_ms: batch size over tokens per second, with the profiler off.
        inter_token_ms_p50, inter_token_ms_p90, inter_token_ms_p99: between tokens of one stream, profiler off,
            before the profiler window.
        around_window_ms: mean of the medians before and behind the profiler window, profiler off, so that the
            growth of the context between them cancels; None without a window.
        profiler_slowdown: median inter-token latency of the streams inside the window over `around_window_ms`.
        traced_step_ms: median step time of the clean steps in this batch's traces, None without any.
        traced_over_unprofiled: `traced_step_ms` over `around_window_ms`.
    """

    run: str
    batch_size: int
    context_tokens: int | None
    unprofiled_step_ms: float
    unprofiled_tokens_per_s: float
    inter_token_ms_p50: float
    inter_token_ms_p90: float
    inter_token_ms_p99: float
    profiler_slowdown: float | None
    traced_step_ms: float | None
    around_window_ms: float | None = None
    traced_over_unprofiled: float | None = None
    reason: str | None = None


class Recording(Result, frozen=True, kw_only=True):
    """One run folder: whose speed its batches are, and what stands in for the traces that it lacks.

    Attributes:
        run: the folder.
        gpus: names of the GPUs that were sampled.
        traced_batch_sizes: batch sizes with clean decode steps in a trace.
        trace_reason: why no trace of it is there to be analysed, None where one is; `trace_remedy` what
            brings one.
        inter_token: floor and slope of the median inter-token latency, profiler off, over the batch size: not
            of the step time, of which `scaling` speaks. Fitted only where fewer than two batch sizes are traced.
    """

    run: str
    engine: str
    engine_version: str | None = None
    model: str
    gpus: tuple[str, ...] = ()
    traced_batch_sizes: tuple[int, ...] = ()
    trace_reason: str | None = None
    trace_remedy: str | None = None
    inter_token: Fit | None = None
    inter_token_reason: str | None = None
