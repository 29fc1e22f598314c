"""What `wavewise record` measured beside the traces: the server without a profiler."""

from wavewise.findings.base import Result


class RecordedPoint(Result, frozen=True, kw_only=True):
    """One batch size of a recording.

    Attributes:
        run: the folder that holds its run.json.
        unprofiled_step_ms: batch size over tokens per second, with the profiler off.
        inter_token_ms_p50, inter_token_ms_p90, inter_token_ms_p99: between tokens of one stream, profiler off.
        profiler_slowdown: inter-token latency under the profiler over that without it.
        traced_step_ms: median step time of the clean steps in this batch's traces, None without any.
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
    reason: str | None = None
