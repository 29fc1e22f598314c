"""Which rank of a distributed run wrote a trace, and which ranks are missing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wavewise.trace.model import Trace

_IN_NAME = (
    # torch's and vLLM's "rank0", "rank_0", "rank-0"; SGLang's "TP-0" (one tensor-parallel group is one run).
    re.compile(r"(?:^|[^a-z])rank[-_ .=]?(\d{1,6})(?!\d)", re.I),
    re.compile(r"(?:^|[^a-z])TP[-_]?(\d{1,6})(?!\d)"),
)


def rank_in_name(name: str) -> int | None:
    """The rank that a file name tells, None where it tells none or several."""
    for pattern in _IN_NAME:
        ranks = {int(rank) for rank in pattern.findall(name)}
        if len(ranks) == 1:
            return ranks.pop()
    return None


@dataclass(frozen=True, slots=True)
class RankGroup:
    """The traces of one distributed run.

    Attributes:
        traces: by rank.
        world_size: how many ranks the run had, as its traces say; None where none says.
        missing: ranks of the run without a trace.
    """

    traces: dict[int, Trace]
    world_size: int | None
    missing: tuple[int, ...]


def rank_group(traces: Iterable[Trace]) -> RankGroup | None:
    """The run that `traces` are the ranks of; None where they are not the ranks of one run.

    They are if each has a rank, no two the same one, at least two of them, and none contradicts the others
    on how many ranks the run had.
    """
    by_rank: dict[int, Trace] = {}
    sizes: set[int] = set()
    for trace in traces:
        if trace.rank is None or trace.rank in by_rank:
            return None
        by_rank[trace.rank] = trace
        size = trace.metadata.get("world_size")
        if isinstance(size, int) and size > 0:
            sizes.add(size)
    if len(by_rank) < 2 or len(sizes) > 1:
        return None
    size = sizes.pop() if sizes else None
    last = size if size is not None else max(by_rank) + 1
    if max(by_rank) >= last:
        return None
    missing = tuple(rank for rank in range(last) if rank not in by_rank)
    return RankGroup(dict(sorted(by_rank.items())), size, missing)
