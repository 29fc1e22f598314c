"""What a sweep answers: passages, drafts, conflicts."""

from wavewise.findings.base import Result


class Passage(Result, frozen=True, kw_only=True):
    """One place where a document speaks of a lever.

    Attributes:
        document: path, or "git:<repository>".
        line: in the document, from 1; None where it has no lines (a commit, a PDF page).
        page: of a PDF, from 1.
        commit: of a git log.
        quote: the sentence.
        verdict: proposed; None where the passage gives none.
        cue: the words the verdict rests on.
        why_not: why words that look like a verdict were not taken as one ("feared", "hearsay", "negated", ...).
        figure: the figure nearest the cue, as written.
        model, gpu: named in the sentence, None where it names none.
        elsewhere: the sentence speaks of another model or an earlier project than the document does.
    """

    lever: str
    document: str
    line: int | None
    page: int | None = None
    commit: str | None = None
    quote: str
    verdict: str | None = None
    ground: str | None = None
    cue: str | None = None
    why_not: str | None = None
    figure: str | None = None
    model: str | None = None
    gpu: str | None = None
    elsewhere: bool = False
    strength: int = 0

    @property
    def place(self) -> str:
        """Where it stands: "notes.md:12", "paper.pdf, page 3", "commit 1a2b3c4"."""
        if self.commit is not None:
            return f"{self.document}, commit {self.commit}"
        if self.page is not None:
            return f"{self.document}, page {self.page}"
        return f"{self.document}:{self.line}" if self.line is not None else self.document


class Draft(Result, frozen=True, kw_only=True):
    """A proposed ledger entry: one lever in one document, for a person to confirm."""

    lever: str
    verdict: str
    ground: str | None
    figure: str | None
    quote: str
    place: str
    document: str
    model: str | None
    gpu: str | None
    also: tuple[str, ...] = ()


class DraftConflict(Result, frozen=True, kw_only=True):
    """Documents (or places in one) that say different things about a lever."""

    lever: str
    why: str
    sides: tuple[Draft, ...]


class Swept(Result, frozen=True, kw_only=True):
    """The whole answer."""

    documents: tuple[str, ...]
    skipped: tuple[str, ...]
    passages: tuple[Passage, ...]
    drafts: tuple[Draft, ...]
    conflicts: tuple[DraftConflict, ...]
    unclear: tuple[str, ...] = ()
