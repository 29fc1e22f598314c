"""What was read of a file's documents as Traces: the last step, and the first that needs polars (see `reader`)."""

from dataclasses import replace

from wavewise.errors import NothingToAnalyzeError
from wavewise.trace.kineto.columns import Frames
from wavewise.trace.kineto.document import Document
from wavewise.trace.kineto.events import Tables
from wavewise.trace.kineto.header import devices_of, metadata_of, note_losses, rank_of
from wavewise.trace.model import Trace
from wavewise.trace.notes import Notes
from wavewise.trace.schema import WHOLE_GRAPH_SCHEMA, empty
from wavewise.trace.sm_count import describe_devices

_CUT_OFF = ("truncated", "truncated_compression", "damaged_compression")
"""Notes on a text that does not reach its end."""


def traces_of(path: str, documents: list[Document], tables: Tables) -> list[Trace]:
    """One Trace per document with GPU activity; the documents are empty afterwards.

    Raises:
        NothingToAnalyzeError: there is none.
    """
    traces: list[Trace] = []
    without_gpu = 0
    events = 0
    for document in documents:
        count = sum(part.events for part in document.parts)
        events += count
        trace = _trace(path, len(traces) + without_gpu, count, document, tables)
        if trace is None:
            without_gpu += 1
        else:
            traces.append(trace)
    if not traces:
        what = "a trace without GPU activity" if events else "a trace without events, so without GPU activity"
        cut_off = any(document.notes[code] for document in documents for code in _CUT_OFF)
        why = (
            "its text is cut off, and the GPU's records may lie beyond"
            if cut_off
            else "was the profiler allowed to record the GPU (CUPTI, rocprofiler)?"
        )
        raise NothingToAnalyzeError(f"{path}: {what}; {why}")
    if without_gpu:
        note = Notes({"document_without_gpu": without_gpu})
        traces[0] = replace(traces[0], warnings=traces[0].warnings + note.warnings())
    return traces


def _trace(path: str, number: int, events: int, document: Document, tables: Tables) -> Trace | None:
    notes = document.notes
    note_losses(document.header, notes)
    frames = Frames(document.parts, tables, notes) if document.parts else None
    if frames is None or frames.operations.is_empty():
        return None
    devices, inferred = describe_devices(devices_of(document.header), frames.operations)
    notes.add("sm_count_inferred", inferred)
    return Trace(
        path=path,
        source="kineto",
        document=number,
        operations=frames.operations,
        rejected=frames.rejected,
        launches=frames.launches,
        markers=frames.markers,
        whole_graphs=empty(WHOLE_GRAPH_SCHEMA),  # Kineto has no such record
        devices=devices,
        warnings=notes.warnings(),
        events_read=events,
        salvaged=notes.salvaged,
        rank=rank_of(document.header),
        metadata=metadata_of(document.header),
    )
