"""What the streams' arrival times say of a window: throughput and inter-token latency."""

from collections.abc import Sequence

import numpy as np

from wavewise.record.model import Latency
from wavewise.record.streams import Stream


def measure(streams: Sequence[Stream], begin: float, end: float, unix_minus_perf: float) -> Latency | None:
    """Summarise the events that arrived in a window.

    Args:
        streams: all streams of the batch.
        begin: where the window begins, `time.perf_counter` seconds.
        end: where it ends.
        unix_minus_perf: what to add to them for Unix time.

    Returns:
        The summary; None where a stream has fewer than two events in the window: no interval is known.
    """
    intervals: list[np.ndarray] = []
    gains: list[np.ndarray] = []
    rate, tokens, slowest, events = 0.0, 0, None, 0
    contexts: list[int] = []
    for stream in streams:
        times = np.frombuffer(stream.times, dtype=np.float64).copy()
        counts = np.frombuffer(stream.counts, dtype=np.int64).copy()
        first, last = np.searchsorted(times, [begin, end], side="left")
        if last - first < 2:
            return None
        window, have = times[first:last], counts[first:last]
        intervals.append(np.diff(window))
        gains.append(np.diff(have))
        gained, took = int(have[-1] - have[0]), float(window[-1] - window[0])
        if took <= 0:
            return None
        rate += gained / took
        tokens += gained
        events += len(window) - 1
        slowest = len(window) if slowest is None else min(slowest, len(window))
        if stream.prompt_tokens is not None:
            contexts += [stream.prompt_tokens + int(have[0]), stream.prompt_tokens + int(have[-1])]
    if not intervals or slowest is None:
        return None
    gain = np.concatenate(gains)
    per_token_ms = np.repeat(np.concatenate(intervals) / gain * 1e3, gain)
    p50, p90, p99 = np.percentile(per_token_ms, [50, 90, 99])
    return Latency(
        start_unix_s=begin + unix_minus_perf,
        end_unix_s=end + unix_minus_perf,
        streams=len(streams),
        tokens=tokens,
        tokens_per_s=rate,
        step_ms=len(streams) / rate * 1e3,
        inter_token_ms_mean=float(per_token_ms.mean()),
        inter_token_ms_p50=float(p50),
        inter_token_ms_p90=float(p90),
        inter_token_ms_p99=float(p99),
        tokens_per_event=tokens / events,
        events_of_slowest_stream=slowest,
        context_tokens_min=min(contexts) if len(contexts) == 2 * len(streams) else None,
        context_tokens_max=max(contexts) if len(contexts) == 2 * len(streams) else None,
    )
