"""Findings and traces for other tools: timelines for Perfetto, tables for data frames, a notebook over them."""

from wavewise.report.export.chrome import chrome_trace as chrome_trace
from wavewise.report.export.notebook import notebook as notebook
from wavewise.report.export.perfetto import perfetto_trace as perfetto_trace
from wavewise.report.export.tables import tables as tables
from wavewise.report.export.tracks import Process as Process
from wavewise.report.export.tracks import Slice as Slice
from wavewise.report.export.tracks import Track as Track
from wavewise.report.export.tracks import process as process
