"""Which rank of a distributed run wrote a trace, and which ranks are missing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_IN_NAME = (
    # torch's and vLLM's "rank0", "rank_0", "rank-0"; SGLang's "TP-0" (one tensor-parallel group is one run).
    re.compile(r"(?:^|[^a-z])rank[-_ .=]?(\d{1,6})(?!\d)", re.I),
    re.compile(r"(?:^|[^A-Za-z])TP[-_]?(\d{1,6})(?!\d)"),
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
    """One distributed run, as far as its traces are there.

    Attributes:
        ranks: that have a trace, ascending.
        world_size: how many ranks the run had, as its traces say; None where none says.
        missing: ranks of the run without a trace.
    """

    ranks: tuple[int, ...]
    world_size: int | None
    missing: tuple[int, ...]


def rank_group(members: Iterable[tuple[int | None, int | None]]) -> RankGroup | None:
    """The run that traces are the ranks of; None where they are not the ranks of one run.

    They are if each has a rank, no two the same one, at least two of them, and none contradicts the others
    on how many ranks the run had.

    Args:
        members: (rank, world size) of each trace, None where it does not say.
    """
    ranks: set[int] = set()
    sizes: set[int] = set()
    for rank, world_size in members:
        if rank is None or rank in ranks:
            return None
        ranks.add(rank)
        if world_size is not None and world_size > 0:
            sizes.add(world_size)
    if len(ranks) < 2 or len(sizes) > 1:
        return None
    size = sizes.pop() if sizes else None
    last = size if size is not None else max(ranks) + 1
    if max(ranks) >= last:
        return None
    return RankGroup(tuple(sorted(ranks)), size, tuple(rank for rank in range(last) if rank not in ranks))
