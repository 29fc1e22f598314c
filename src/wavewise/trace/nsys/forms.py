"""What tells an export from other files and folders, before anything of it is read.

Nsight names the folder of a Parquet export `REPORT_pqtdir`, or as `--output` says; so it is known by the names of its
files, which are those of the tables.
"""

import os
from collections.abc import Iterable
from pathlib import Path

SQLITE_MAGIC = b"SQLite format 3\0"
PARQUET_MAGIC = b"PAR1"
_PARQUET = ".parquet"


def export_folder(path: Path) -> Path | None:
    """The Parquet export that `path` is, or is a table of; None where it is neither."""
    folder = path.parent if path.name.endswith(_PARQUET) and os.path.isfile(path) else path
    try:
        return folder if os.path.isdir(folder) and are_an_export(tables_in(folder)) else None
    except OSError:  # a folder that may not be listed: who wants something of it will say so
        return None


def tables_in(folder: Path) -> dict[str, Path]:
    """The Parquet files of a folder, by the names of their tables."""
    with os.scandir(folder) as entries:
        return {
            entry.name.removesuffix(_PARQUET): Path(entry.path)
            for entry in entries
            if entry.name.endswith(_PARQUET) and entry.is_file()
        }


def are_an_export(names: Iterable[str]) -> bool:
    """Whether tables of these names are an Nsight Systems export, and not somebody else's data."""
    present = set(names)
    return not present.isdisjoint(("StringIds", "META_DATA_EXPORT")) and any(
        name.startswith(("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "META_DATA_EXPORT")) for name in present
    )
