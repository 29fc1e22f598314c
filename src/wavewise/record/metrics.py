"""The Prometheus text format, as far as gauges need it: name, labels, value."""

import re

_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
Samples = dict[str, list[tuple[dict[str, str], float]]]


def parse_metrics(text: str) -> Samples:
    """Samples by metric name.

    Args:
        text: an exposition in the text format 0.0.4,
            https://prometheus.io/docs/instrumenting/exposition_formats/.

    Returns:
        For each name its samples: labels and value. Lines that are no samples are passed over.
    """
    samples: Samples = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        samples.setdefault(name, []).append((dict(_LABEL.findall(labels or "")), value))
    return samples


def total(samples: Samples, name: str) -> int | None:
    """The sum of a gauge over its labels (engines, ranks), None where it is absent."""
    found = samples.get(name)
    return None if not found else round(sum(value for _, value in found))
