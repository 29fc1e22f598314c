"""What a ledger holds: entries (a lever's verdict on a platform) and claims (answers to a question)."""

import datetime as dt
import re

import msgspec

from wavewise.errors import InputError

VERDICTS = ("works", "promising", "no gain", "worse", "blocked", "unsafe", "rejected")
"""works: measured gain. promising: estimated, or proven elsewhere, not yet tried here. no gain: tried, no
difference. worse: tried, lost. blocked: cannot run here as things are. unsafe: corrupts, crashes or is wrong.
rejected: decided against without a measurement of its speed."""

GROUNDS = (
    "measured",
    "estimated",
    "at the floor",
    "wrong bottleneck",
    "does not compile",
    "missing kernel",
    "incompatible",
    "broken",
    "needs more hardware",
    "not applicable",
    "corruption",
    "quality",
)
"""Why a verdict was reached. Two entries that name different grounds contradict one another."""

NEGATIVE = frozenset({"no gain", "worse", "blocked", "unsafe", "rejected"})

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Platform(msgspec.Struct, frozen=True, kw_only=True):
    """What a statement holds for. None: not stated.

    Attributes:
        gpu: catalogue id or (part of) the name the driver prints.
        gpus: how many, where that matters.
        compute_capability: "12.0".
        interconnect: "pcie", "nvlink", "xgmi", ...
        model: model name; a longer name of the same family matches.
        engine: "sglang", "vllm", ...
        engine_version: measured on.
        reopens_at: engine version from which the statement should be tried again.
        expires: day from which it should be.
    """

    gpu: str | None = None
    gpus: int | None = None
    compute_capability: str | None = None
    interconnect: str | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    reopens_at: str | None = None
    expires: dt.date | None = None


class Entry(Platform, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One verdict on one lever.

    Attributes:
        id: unique in the ledger.
        lever: catalogue id.
        verdict: one of VERDICTS.
        ground: one of GROUNDS.
        figure: measured figure, as words ("14 against 23 tok/s").
        evidence: a short quotation or what was seen.
        source: document and place, commit, trace.
        date: measured, else recorded.
        conditions: what narrows it ("batch 32 and below").
        status: "confirmed" by a person, or "draft": a draft is listed but never counts.
    """

    id: str
    lever: str
    verdict: str
    ground: str | None = None
    figure: str | None = None
    evidence: str
    source: str
    date: dt.date | None = None
    conditions: str | None = None
    status: str = "confirmed"


class Claim(Platform, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer to a question that is not about a lever ("why does attention grow with the batch?")."""

    id: str
    question: str
    answer: str
    evidence: str
    source: str
    date: dt.date | None = None
    status: str = "confirmed"


def check(statement: Entry | Claim, where: str) -> None:
    """Raises InputError where a field's value is none of the allowed ones or a text is empty."""
    place = f"{where}: {statement.id!r}"
    if not _ID.fullmatch(statement.id):
        raise InputError(f"{place}: an id is letters, digits, dots, dashes and underscores")
    if statement.status not in ("confirmed", "draft"):
        raise InputError(f'{place}: status is "confirmed" or "draft", not {statement.status!r}')
    if not statement.evidence.strip() or not statement.source.strip():
        raise InputError(f"{place}: evidence and source must not be empty")
    if isinstance(statement, Claim):
        return
    if statement.verdict not in VERDICTS:
        raise InputError(f"{place}: verdict {statement.verdict!r} is none of {', '.join(VERDICTS)}")
    if statement.ground is not None and statement.ground not in GROUNDS:
        raise InputError(f"{place}: ground {statement.ground!r} is none of {', '.join(GROUNDS)}")
