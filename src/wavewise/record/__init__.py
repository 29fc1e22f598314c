"""Drives a live server, samples its GPUs, writes a run folder.

options = Options(url="http://localhost:8000", out=Path("run"))
run = record(options, parse_target(options.url, key=None), confirm=lambda question: True, say=print)
run = read_run(Path("run"))
"""

from wavewise.record.advice import how_to_trace as how_to_trace
from wavewise.record.advice import profiled_over_http as profiled_over_http
from wavewise.record.folder import RUN_FILE as RUN_FILE
from wavewise.record.folder import TELEMETRY_FILE as TELEMETRY_FILE
from wavewise.record.folder import read_run as read_run
from wavewise.record.model import Batch as Batch
from wavewise.record.model import Latency as Latency
from wavewise.record.model import Run as Run
from wavewise.record.model import Server as Server
from wavewise.record.model import Telemetry as Telemetry
from wavewise.record.model import TraceFile as TraceFile
