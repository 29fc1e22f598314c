"""What a reader has to say about its input: counted while reading, worded once, here.

Every code is documented in docs/warnings.md; a test holds the two together.
"""

from collections import Counter

from wavewise.trace.model import TraceWarning

CODES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    # code: (message with {count}, conclusions made unsafe, whether the trace counts as salvaged)
    "truncated": (
        "the text stops in the middle; everything before that place was read", ("steps",), True,
    ),
    "truncated_compression": (
        "the compressed stream is cut off; everything that could be unpacked was read", ("steps",), True,
    ),
    "damaged_compression": (
        "the compressed stream is damaged; everything before the damage was read", ("steps",), True,
    ),
    "trailing_junk": ("bytes after the end of the compressed stream were ignored", (), False),
    "trailing_text": ("{count} stretch(es) of text outside any trace were ignored", (), True),
    "foreign_text": (
        "{count} stretch(es) of text between the events, such as another writer's log lines, were skipped",
        (), True,
    ),
    "foreign_line_removed": (
        "{count} foreign line(s) inside an event were removed; the event was kept", (), True,
    ),
    "malformed_event": (
        "{count} event(s) were not readable as JSON and are left out", ("steps",), True,
    ),
    "unescaped_quote": (
        "{count} unescaped quote(s) inside names were taken as part of them; a name ends where the next field begins",
        (),
        True,
    ),
    "oversized_event": ("{count} event(s) longer than the limit were left out", ("steps",), True),
    "invalid_utf8": ("{count} byte(s) that are not UTF-8 were replaced by U+FFFD", (), True),
    "control_characters": ("{count} raw control character(s) inside strings were accepted", (), True),
    "lone_surrogate": ("{count} lone surrogate escape(s) were replaced by U+FFFD", (), True),
    "nonfinite_number": (
        "{count} value(s) were bare words such as NaN or inf instead of numbers; they are read as missing",
        (), True,
    ),
    "extra_comma": ("{count} superfluous comma(s) were skipped", (), True),
    "missing_comma": ("{count} missing comma(s) between events were supplied", (), True),
    "damaged_header": (
        "the description around the events is damaged; what could be read of it was used", ("occupancy",), True,
    ),
    "missing_time": ("{count} GPU record(s) carry no usable time stamp and are left out", ("steps",), False),
    "missing_duration": ("{count} GPU record(s) carry no usable duration and are left out", ("steps",), False),
    "negative_duration": ("{count} GPU record(s) have a negative duration and are left out", ("steps",), False),
    "zero_timestamp": (
        "{count} GPU record(s) carry a time stamp of zero, far from all others, and are left out",
        ("steps",), False,
    ),
    "impossible_duration": (
        "{count} GPU record(s) claim to run on while later work of their own stream starts and ends, or far "
        "beyond the recording; they are left out",
        ("steps",), False,
    ),
    "incomplete_host_record": (
        "{count} host record(s) carry no usable time stamp or duration and are left out", (), False,
    ),
    "lost_records": (
        "the profiler says that it lost {count} or more record(s); gaps may be holes in the recording",
        ("idle", "steps", "kernels"), False,
    ),
    "collection_stopped_early": (
        "the profiler stopped collecting before the recording ended; its end may be missing",
        ("idle", "steps"), False,
    ),
    "possibly_incomplete": (
        "the profiler warns that not every event may have been collected", ("idle",), False,
    ),
    "graphs_as_wholes": (
        "{count} graph launch(es) were recorded as wholes, without their kernels; record again with "
        "`nsys profile --cuda-graph-trace=node`",
        ("idle", "steps", "kernels"), False,
    ),
    "unknown_schema_version": (
        "the export's schema is newer than the ones this reader was written for; what it knows was read",
        (), False,
    ),
    "sm_count_inferred": (
        "the trace does not describe its GPU; the SM count was inferred from the recorded blocks per SM",
        ("occupancy",), False,
    ),
    "document_without_gpu": ("{count} further trace(s) in this file hold no GPU activity", (), False),
}  # fmt: skip


class Notes(Counter[str]):
    """Counts by warning code."""

    def add(self, code: str, count: int = 1) -> None:
        """Counts `count` more cases of `code`."""
        if count:
            self[code] += count

    def warnings(self) -> tuple[TraceWarning, ...]:
        """One warning per code met, in the order of CODES."""
        return tuple(
            TraceWarning(
                code, self[code], CODES[code][0].format(count=f"{self[code]:,}"), unsafe=CODES[code][1]
            )
            for code in CODES
            if self[code]
        )

    @property
    def salvaged(self) -> bool:
        """Whether damage had to be worked around."""
        return any(CODES[code][2] for code, count in self.items() if count)
