"""The seam of this room: a part of a report, written once and rendered as terminal text, markdown and HTML.

A `Section` is sentences, then tables, then the names of charts. Whoever has something to say about the
findings writes one function

    def sections(findings: Findings) -> tuple[Section, ...]

in a module `<subject>_text.py`, and `compose.py` lists it; no renderer changes. A second, optional function
of such a module, `headlines(findings: Findings) -> tuple[str, ...]`, gives its first lines for the summary.

Rules of a sentence: it is complete, carries its numbers with unit and basis ("median of 6 clean steps"), and
is plain text with one piece of markup, backticks around names that come from code or from the trace
(`` `get_mla_metadata_kernel` ``; use `code()`, which makes any name safe). Renderers turn those into whatever
their medium has. Words that the glossary (`terms.toml`) explains get their explanation from the renderer.

A cell is text for the reader plus, where rows should sort by it, the number behind the text. What was not
measured is `MISSING`, never 0, and sorts last.

    Table(
        name="families-64",
        title="Kernel families in a replay at batch 64 (medians of 6 clean steps)",
        columns=(Column("family"), Column("sum, us", right=True, term="sum time")),
        rows=((Cell("MoE GEMM"), number(4207.1, "4,207")),),
    )
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from wavewise.report.words import printable


@dataclass(frozen=True)
class Cell:
    """One table cell.

    Attributes:
        text: what the reader sees; backticks as in sentences.
        sort: the number to sort by, None to sort by text.
        hover: more about this one cell (a full kernel name, a reason), for media that can show it.
    """

    text: str
    sort: float | None = None
    hover: str | None = None


MISSING = Cell("-", math.inf, "not measured")


@dataclass(frozen=True)
class Column:
    """A table column.

    Attributes:
        title: heading, with the unit.
        right: align right (numbers).
        term: glossary key of `terms.toml` that explains the column.
        essential: False for a column that a narrow medium may drop first.
        whole: names that a reader types elsewhere, never cut where width is short.
    """

    title: str
    right: bool = False
    term: str | None = None
    essential: bool = True
    whole: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a section.

    Attributes:
        name: stable identifier, unique in the report ("kernels"), `[a-z0-9-]`.
        title: says what the rows are and on what basis.
        rows: as many cells in each as there are columns.
        brief: how many rows a short medium (terminal, markdown) prints; it says how many it left out.
        filterable: whether a medium that can should offer sorting by any column and a filter box.
        detail: whether only the long media (markdown, HTML) carry it.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    brief: int = 12
    filterable: bool = False
    detail: bool = False

    def __post_init__(self) -> None:
        ragged = [row for row in self.rows if len(row) != len(self.columns)]
        if ragged:
            raise ValueError(f"table {self.name}: {len(ragged)} rows do not have {len(self.columns)} cells")


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        name: stable identifier, unique in the report; also the HTML anchor, `[a-z0-9-]`.
        title: heading, as a question or claim where that reads well.
        sentences: what it says, most important first.
        tables: the figures behind the sentences.
        charts: names of charts (`charts/`) that belong here.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report, before any rendering.

    Attributes:
        title: one line.
        notes: what must be known before the numbers (mixed inputs, refusals), most severe first.
        verdict: the three sentences of the first screen.
        summary: further first lines, each with its numbers.
        sections: in reading order.
    """

    title: str
    notes: tuple[str, ...]
    verdict: tuple[str, ...]
    summary: tuple[str, ...]
    sections: tuple[Section, ...] = field(default=())


def code(name: str) -> str:
    """`name` between backticks, with nothing in it that would end them or break the line."""
    cleaned = " ".join(name.replace("`", "'").split())
    return f"`{cleaned}`" if cleaned else "`(no name)`"


def number(value: float | None, text: str | None = None, hover: str | None = None) -> Cell:
    """A numeric cell that sorts by `value`; MISSING (with `hover` as its reason) when there is none."""
    if value is None:
        return Cell(MISSING.text, MISSING.sort, hover or MISSING.hover)
    return Cell(text if text is not None else f"{value:,.3g}", float(value), hover)


def listing(items: Sequence[str], last: str = "and") -> str:
    """Words joined as a sentence does: "a", "a and b", "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def spans(text: str) -> tuple[tuple[str, bool], ...]:
    """A sentence as pieces (text, is it a name between backticks), safe to hand to any medium.

    >>> spans("the `split` kernel")
    (('the ', False), ('split', True), (' kernel', False))
    """
    pieces = printable(text).split("`")
    if len(pieces) % 2 == 0:  # an odd backtick has no partner: it is text
        pieces[-2:] = [f"{pieces[-2]}`{pieces[-1]}"]
    return tuple((piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece)


def plain(text: str) -> str:
    """A sentence without its markup."""
    return "".join(piece for piece, _ in spans(text))
