"""Nsight Systems exports to Traces: SQLite databases and folders of Parquet tables, read by the same logic.

`tables` is what both look like, `sqlite` and `parquet` make one look so, `reader` knows what the tables mean.
"""

from wavewise.trace.nsys.parquet import MAGIC as PARQUET_MAGIC
from wavewise.trace.nsys.parquet import export_folder as export_folder
from wavewise.trace.nsys.reader import read_nsys as read_nsys
from wavewise.trace.nsys.sqlite import MAGIC as SQLITE_MAGIC

__all__ = ["PARQUET_MAGIC", "SQLITE_MAGIC", "export_folder", "read_nsys"]
