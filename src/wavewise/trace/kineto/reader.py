"""Reads a Kineto file."""

from collections.abc import Callable

from wavewise.trace.kineto.document import Document, read_documents
from wavewise.trace.kineto.events import Tables
from wavewise.trace.model import Trace
from wavewise.trace.progress import Progress
from wavewise.trace.source import Limits


def read_kineto(path: str, limits: Limits, progress: Progress | None = None) -> list[Trace]:
    """The traces of the file at `path`, one per document, in file order.

    Raises:
        InputError: the file cannot be read or holds no trace.
        NothingToAnalyzeError: none of its documents holds GPU activity.
    """
    tables = Tables()
    documents = read_documents(path, limits, tables, progress, meanwhile=_traces_of)
    return _traces_of()(path, documents, tables)


def _traces_of() -> Callable[[str, list[Document], Tables], list[Trace]]:
    """The next step, with polars, which takes as long to load as all that reading the text needs."""
    from wavewise.trace.kineto.traces import traces_of

    return traces_of
