"""Batch sizes and replayed buckets of all recorded decode steps, clean or not."""

from collections import Counter, defaultdict
from statistics import median

from wavewise.findings import TraceFindings
from wavewise.levers.view import View


def _traces(view: View) -> list[TraceFindings]:
    """Traces of the same GPU, engine and (where both are known) context as `view`."""
    return [
        trace
        for trace in view.findings.traces
        if trace.gpu.name == view.gpu.name
        and trace.engine == view.engine
        and (trace.context_length is None or view.context_length in (None, trace.context_length))
    ]


def bucket_steps(view: View) -> dict[tuple[int, int], int]:
    """(batch size, bucket) -> decode steps; traces with speculation, whose buckets count tokens, left out."""
    found: Counter[tuple[int, int]] = Counter()
    for trace in _traces(view):
        if any((s.generation_tokens or 0) > (s.batch_size or 0) for s in trace.steps if s.kind == "decode"):
            continue
        for use in trace.bucket_use:
            if use.bucket is not None and use.bucket >= use.batch_size:
                found[use.batch_size, use.bucket] += use.steps
    return dict(found)


def bucket_spans_us(view: View) -> dict[int, float]:
    """Bucket -> median GPU span of its decode replays, us.

    A replay's span is sound although its step may not be clean (a falling batch), so all decode steps with
    one replay count.
    """
    spans: defaultdict[int, list[float]] = defaultdict(list)
    for trace in _traces(view):
        for step in trace.steps:
            if step.kind == "decode" and step.bucket is not None and step.span_ns and step.graph_replays == 1:
                spans[step.bucket].append(step.span_ns / 1e3)
    for other in view.others:
        if other.bucket is not None and other.bucket not in spans:
            spans[other.bucket].append(other.span_us)
    return {bucket: median(values) for bucket, values in sorted(spans.items())}
