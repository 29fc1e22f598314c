"""Which GPU records cannot be true, and why: the rules every source shares.

A record that cannot be true must not feed any sum, but its step has to be told; so it is set aside with a reason
instead of being dropped.

The rules, in order:

- `missing_time`, `missing_duration`: no usable number.
- `negative_duration`.
- `zero_timestamp`: start and duration are both 0 (a record that was never filled in), or the start is 0 or less
  while everything else lies further away than ten times its own extent.
- `impossible_duration`: the order of a stream contradicts it. Work of one stream runs in order: a later launch
  may start before the present one has ended (programmatic dependent launch, at most until the next one starts),
  but it does not start *and end* within it. A record with `CONTRADICTIONS` or more such later operations, of
  other launches, strictly inside it claims a duration that cannot be true. Operations of the same launch do not
  count: the parallel branches of a graph may be reported on one stream. However long a kernel is, this never
  trips on it: as long as it runs, its own stream brings nothing else to an end.
- `impossible_duration`, too: nothing later ran on its stream, but it claims to last more than ten seconds and
  over a hundred times as long as everything else in the recording, host calls included.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wavewise.units import NS_PER_S

Ints = npt.NDArray[np.int64]
MISSING = int(np.iinfo(np.int64).min)

CONTRADICTIONS = 3
_ISOLATION = 10
_LONGEST_LAST_NS = 10 * NS_PER_S
_LONGEST_LAST_SHARE = 100

REASONS = (
    "missing_time", "missing_duration", "negative_duration", "zero_timestamp", "impossible_duration",
    "malformed_event",
)  # fmt: skip
"""Reasons by number - 1; 0 means that the record is valid."""
_MISSING_TIME, _MISSING_DURATION, _NEGATIVE, _ZERO, _IMPOSSIBLE, MALFORMED = range(1, 7)


@dataclass(frozen=True, slots=True)
class GpuRecords:
    """GPU records as int64 columns of one length, in any order.

    Attributes:
        lane: what runs in order: one number per device, context and stream.
        start, duration: nanoseconds, MISSING where absent.
        correlation: MISSING where absent.
    """

    lane: Ints
    start: Ints
    duration: Ints
    correlation: Ints


def judge(
    records: GpuRecords, host_start: int | None = None, host_end: int | None = None
) -> npt.NDArray[np.int8]:
    """The reason number of every record (see REASONS), 0 where it is valid.

    Args:
        records: the records.
        host_start: the first host time stamp of the recording, where there is one.
        host_end: the last one.
    """
    start, duration = records.start, records.duration
    reason = np.zeros(len(start), np.int8)
    reason[(duration < 0)] = _NEGATIVE
    reason[(duration == MISSING)] = _MISSING_DURATION
    reason[(start == MISSING)] = _MISSING_TIME
    _zero_timestamps(start, duration, reason)
    _against_stream_order(records, reason)
    _beyond_the_recording(start, duration, reason, host_start, host_end)
    return reason


def _zero_timestamps(start: Ints, duration: Ints, reason: npt.NDArray[np.int8]) -> None:
    if not (start <= 0).any():
        return
    reason[(start == 0) & (duration == 0) & (reason == 0)] = _ZERO
    suspect = (start <= 0) & (reason == 0)
    others = (start > 0) & (reason == 0)
    if suspect.any() and others.any():
        first = int(start[others].min())
        extent = int((start[others] + duration[others]).max()) - first
        if first > _ISOLATION * max(extent, 1):
            reason[suspect] = _ZERO


def _against_stream_order(records: GpuRecords, reason: npt.NDArray[np.int8]) -> None:
    rows = np.flatnonzero(reason == 0)
    if len(rows) < CONTRADICTIONS + 1:
        return
    rows = rows[np.lexsort((records.start[rows], records.lane[rows]))]
    lane, start = records.lane[rows], records.start[rows]
    # Overflow cannot happen: both are checked to be below 2**63 and starts are far from it.
    end = start + records.duration[rows]
    span = _spans(lane, start, end)
    for i in np.flatnonzero(span >= CONTRADICTIONS):  # candidates are rare: nothing else covers three starts
        inside = slice(i + 1, i + 1 + int(span[i]))
        other = (
            (start[inside] > start[i])
            & (end[inside] < end[i])
            & (records.correlation[rows[inside]] != records.correlation[rows[i]])
        )
        if np.count_nonzero(other) >= CONTRADICTIONS:
            reason[rows[i]] = _IMPOSSIBLE


def _spans(lane: Ints, start: Ints, end: Ints) -> Ints:
    """How many later rows of its lane start before each row ends; rows sorted by lane and start."""
    count = len(start)
    span = np.zeros(count, np.int64)
    # Three places ahead in the same lane and still running: only then is the exact number worth a search.
    ahead = CONTRADICTIONS
    long = np.flatnonzero((lane[ahead:] == lane[:-ahead]) & (start[ahead:] < end[:-ahead]))
    if not len(long):
        return span
    lane_end = np.searchsorted(lane, lane[long], side="right")
    for i, stop in zip(long.tolist(), lane_end.tolist(), strict=True):
        span[i] = np.searchsorted(start[i + 1 : stop], end[i], side="left")
    return span


def _beyond_the_recording(
    start: Ints, duration: Ints, reason: npt.NDArray[np.int8], host_start: int | None, host_end: int | None
) -> None:
    valid = np.flatnonzero(reason == 0)
    suspects = valid[duration[valid] > _LONGEST_LAST_NS]
    if not len(suspects):
        return
    others = valid[duration[valid] <= _LONGEST_LAST_NS]
    firsts = [int(start[others].min())] if len(others) else []
    lasts = [int((start[others] + duration[others]).max())] if len(others) else []
    if host_start is not None and host_end is not None:
        firsts.append(host_start)
        lasts.append(host_end)
    if not firsts:
        return
    extent = max(1, max(lasts) - min(firsts))
    reason[suspects[duration[suspects] > _LONGEST_LAST_SHARE * extent]] = _IMPOSSIBLE
