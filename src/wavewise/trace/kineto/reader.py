"""Reads a Kineto file."""

from functools import partial
from importlib import import_module

from wavewise.trace.kineto.document import read_documents
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
    load = partial(import_module, "wavewise.trace.kineto.traces")
    documents = read_documents(path, limits, tables, progress, meanwhile=load)
    from wavewise.trace.kineto.traces import (
        traces_of,  # loaded by now, where that took the text's time to read
    )

    return traces_of(path, documents, tables)
