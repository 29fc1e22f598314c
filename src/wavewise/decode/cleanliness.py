"""Which steps may feed statistics, and the reason why each other one may not (contract, "clean")."""

from dataclasses import dataclass

import msgspec
import numpy as np

from wavewise.findings import StepRow
from wavewise.units import format_ns

AS_A_WHOLE = "its graph was recorded as a whole, without the operations inside"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of each step; arrays and lists have one entry a step.

    Attributes:
        graphs: the graphs it replayed: what "same batch size" rests on where no marker tells it.
        whole: a replay of it was recorded as a whole.
        incomplete: a replay of it lost records.
        first_lost: the first operation of its first replay is among the lost.
        before_recording: a replay of it was launched before the recording began.
        rejected: how many of its records are implausible or unmeasured.
        lost_launches: how many of its eager launches have no operation in the trace.
        burst_follows: inter-burst idle lies between its first operation and the next step's.
        cut_follows: the trace was cut behind it (`wavewise trim`).
    """

    rows: list[StepRow]
    source: str
    graphs: list[tuple[int, ...]]
    whole: np.ndarray
    incomplete: np.ndarray
    first_lost: np.ndarray
    before_recording: np.ndarray
    rejected: np.ndarray
    lost_launches: np.ndarray
    burst_follows: np.ndarray
    cut_follows: np.ndarray


def judge(evidence: Evidence) -> tuple[StepRow, ...]:
    """The rows with `clean` and `unclean_reason` set."""
    judged: list[StepRow] = []
    for i, row in enumerate(evidence.rows):
        reason = _reason(evidence, i)
        judged.append(msgspec.structs.replace(row, clean=reason is None, unclean_reason=reason))
    return tuple(judged)


def _reason(evidence: Evidence, i: int) -> str | None:
    row = evidence.rows[i]
    if row.kind != "decode":
        return f"not a decode step ({row.kind})"
    return _own_fault(evidence, i) or _neighbour_fault(evidence, i)


def _own_fault(evidence: Evidence, i: int) -> str | None:
    if evidence.whole[i]:
        return AS_A_WHOLE
    if evidence.before_recording[i]:
        return "its replay was launched before the recording began"
    if evidence.incomplete[i]:
        return "operations of its replay were not recorded"
    if evidence.lost_launches[i]:
        return f"{int(evidence.lost_launches[i])} launched operation(s) were not recorded"
    if evidence.rejected[i]:
        return f"{int(evidence.rejected[i])} of its records are implausible or unmeasured"
    return None


def _neighbour_fault(evidence: Evidence, i: int) -> str | None:
    rows = evidence.rows
    row = rows[i]
    if i == 0:
        return "first step of the recording"
    if i == len(rows) - 1:
        return "last step of the recording"
    if evidence.cut_follows[i]:
        return "the trace was cut behind it"
    if evidence.cut_follows[i - 1]:
        return "the trace was cut before it"
    for neighbour, where in ((i - 1, "before"), (i + 1, "after")):
        other = rows[neighbour]
        if other.kind == "idle":
            return f"the engine step {where} it has no GPU work"
        if other.kind != "decode":
            return f"the step {where} it is not decode ({other.kind})"
        if other.batch_size != row.batch_size:
            return f"the step {where} it has {other.batch_size} requests, this one {row.batch_size}"
        if row.batch_size is None and not _same_graphs(evidence.graphs[i], evidence.graphs[neighbour]):
            return f"the step {where} it replays another graph"
    if evidence.first_lost[i + 1]:
        return "the next step's first operation was not recorded, so its end is unknown"
    if evidence.burst_follows[i]:
        return "inter-burst idle follows it"
    if row.step_ns is None:
        return f"its step time is unknown (busy for {format_ns(row.busy_ns or 0)})"
    return None


def _same_graphs(mine: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """A graph of -1 (every operation lost) tells nothing, so it does not make a difference."""
    return len(mine) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(mine, other, strict=True))
