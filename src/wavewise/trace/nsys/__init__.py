"""Nsight Systems exports to Traces: SQLite databases and folders of Parquet tables, read by the same logic.

`forms` knows an export when it sees one. `tables` is what both kinds look like, `sqlite` and `parquet` make one look
so, `reader` knows what the tables mean.
"""
