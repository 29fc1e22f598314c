"""Traces: bytes of any supported source to one columnar value.

`read(path)` gives one `Trace` per complete document in a file. Nothing above this floor knows a file format.
"""

from wavewise.trace.model import DeviceProperties as DeviceProperties
from wavewise.trace.model import Trace as Trace
from wavewise.trace.model import TraceWarning as TraceWarning
from wavewise.trace.read import Progress as Progress
from wavewise.trace.read import find_traces as find_traces
from wavewise.trace.read import read as read
from wavewise.trace.source import Limits as Limits
