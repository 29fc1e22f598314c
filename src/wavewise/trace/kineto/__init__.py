"""PyTorch-profiler (Kineto) JSON to Traces.

The text is cut into blocks of whole events, and each block goes down a ladder only as far as it must:

1. `scan`: the line layout that Kineto itself writes, read with vector operations; nothing is parsed as JSON.
2. `typed`: any sound JSON, decoded into typed records.
3. `repair`: text that is almost JSON (NaN, bad UTF-8, control characters, stray commas), mended, then as 2.
4. `salvage`: event by event, past whatever cannot be read, across the joints between several documents.

Rungs 1 and 2 run in several processes when the file is large enough (`workers`). `document` puts the blocks together,
`traces` makes Traces of the documents, and `columns` their frames.
"""

from wavewise.trace.kineto.reader import read_kineto as read_kineto
