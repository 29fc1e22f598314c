"""The two forms of an Nsight Systems export on disk: how each is known, and what damage to it brings."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from trace_samples import kineto, steps
from typer.testing import CliRunner

from support.nsys_export import NsysExport, assert_same, outcome_of, to_parquet
from wavewise.cli.app import build
from wavewise.errors import InputError
from wavewise.trace import find_traces, read
from wavewise.trace.nsys import sqlite

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CORPUS = os.environ.get("WAVEWISE_CORPUS")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A sound export of 500 kernels."""
    export = NsysExport(tmp_path / "report.sqlite")
    export.kernels([{"start": 1000 * i, "end": 1000 * i + 10, "correlationId": i} for i in range(1, 501)])
    return export.close()


@pytest.fixture
def folder(database: Path) -> Path:
    """The same as Parquet, and nothing beside it."""
    folder = to_parquet(database)
    database.unlink()
    return folder


# ---- how an export is known


def test_a_folder_of_tables_is_one_trace_whatever_it_is_called(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("rank0"))
    assert find_traces([renamed]) == [renamed]
    (trace,) = read(renamed)
    assert (trace.path, trace.source, trace.rank) == (str(renamed), "nsys", 0)
    assert len(trace.operations) == 500


def test_a_table_of_it_stands_for_the_folder(folder: Path) -> None:
    tables = sorted(folder.iterdir())
    assert find_traces(tables) == [folder] * len(tables)
    (trace,) = read(folder / f"{KERNELS}.parquet")
    assert trace.path == str(folder)


def test_beside_other_traces_it_is_one_of_them(folder: Path) -> None:
    (folder.parent / "rank1.json").write_bytes(kineto(steps()))
    (folder.parent / "other").mkdir()
    pl.DataFrame({"x": [1]}).write_parquet(folder.parent / "other" / "table.parquet")
    assert [path.name for path in find_traces([folder.parent])] == ["rank1.json", "report_pqtdir"]
    assert [path.name for path in find_traces([folder.parent], recursive=True)] == [
        "rank1.json", "report_pqtdir",
    ]  # fmt: skip


def test_traces_inside_it_are_not_lost(folder: Path) -> None:
    (folder / "rank1.json").write_bytes(kineto(steps()))
    assert find_traces([folder]) == [folder, folder / "rank1.json"]


def test_one_recording_in_several_forms_is_found_once(folder: Path) -> None:
    (folder.parent / "report.nsys-rep").write_bytes(b"raw")
    assert find_traces([folder.parent]) == [folder]
    (folder.parent / "report.sqlite").write_bytes(b"x")
    assert find_traces([folder.parent]) == [folder.parent / "report.sqlite"]


@pytest.mark.parametrize("name", ["table.parquet", "StringIds.parquet"])
def test_parquet_of_something_else_is_no_trace(tmp_path: Path, name: str) -> None:
    pl.DataFrame({"id": [1]}).write_parquet(tmp_path / name)
    with pytest.raises(InputError, match=r"a Parquet file that is no trace.*--type parquetdir"):
        read(tmp_path / name)
    with pytest.raises(InputError, match=r"no trace in this folder .*Parquet"):
        find_traces([tmp_path])
    with pytest.raises(InputError, match="a folder, not a trace file"):
        read(tmp_path)


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "notes.sqlite")) as notes:
        notes.execute("CREATE TABLE notes (body TEXT)")
    with pytest.raises(InputError, match="not a trace"):
        read(tmp_path / "notes.sqlite")


def test_a_path_with_characters_of_a_uri_and_of_a_pattern(database: Path) -> None:
    renamed = database.rename(database.with_name("100% #1 [a]*?mode=rw.sqlite"))
    assert len(read(renamed)) == 1
    assert len(read(to_parquet(renamed))) == 1


@pytest.mark.parametrize("form", ["report.sqlite", "report_pqtdir"])
def test_both_forms_are_analysed_alike(database: Path, form: str) -> None:
    to_parquet(database)
    out = database.with_name("findings.json")
    done = CliRunner().invoke(build(), ["analyze", str(database.with_name(form)), "--json", str(out)])
    assert done.exit_code == 0, done.output
    (trace,) = json.loads(out.read_text())["traces"]
    assert (trace["source"], trace["events"]["kernels"]) == ("nsys", 500)
    assert Path(trace["path"]).name == form


# ---- damage


@pytest.mark.parametrize("keep", [16, 100, 5000])
def test_a_cut_database_is_refused_in_one_line(database: Path, keep: int) -> None:
    database.write_bytes(database.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"report\.sqlite: .*; export it again$"):
        read(database)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.sqlite").touch()
    with pytest.raises(InputError, match=r"report\.sqlite: the file is empty"):
        read(tmp_path / "report.sqlite")


def _cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


def _hole(text: bytes) -> bytes:
    return text[:100] + text[1000:]


def _index_alone(text: bytes) -> bytes:
    return text[:4] + text[-8 - int.from_bytes(text[-8:-4], "little") :]


def _zeroed(text: bytes) -> bytes:
    return text[:50] + bytes(200) + text[250:]


@pytest.mark.parametrize("table", [KERNELS, "StringIds", "META_DATA_EXPORT"])
@pytest.mark.parametrize("damage", [lambda _: b"", _cut])
def test_a_cut_table_is_named_in_one_line(folder: Path, table: str, damage: Callable[[bytes], bytes]) -> None:
    file = folder / f"{table}.parquet"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError) as caught:
        read(folder)
    assert str(caught.value).startswith(f"{file}: the Parquet file cannot be read (")
    assert str(caught.value).endswith("; export it again")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", [_hole, _zeroed, _index_alone])
def test_damage_within_a_table_is_said_once(
    folder: Path, damage: Callable[[bytes], bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """The column library's own complaint of it, which it writes past Python, stays out."""
    file = folder / f"{KERNELS}.parquet"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match="the Parquet file cannot be read"):
        read(folder)
    assert capfd.readouterr() == ("", "")
    os.write(2, b"and afterwards it is written again")
    assert capfd.readouterr().err == "and afterwards it is written again"


def test_a_process_without_a_standard_error_reads_it_too(folder: Path) -> None:
    count = f"from wavewise.trace import read; print(len(read({str(folder)!r})[0].operations))"
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", count]
    assert (
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout == "500\n"
    )


def test_the_exit_status_of_damage_and_of_nothing(folder: Path) -> None:
    file = folder / f"{KERNELS}.parquet"
    pl.read_parquet(file).clear().write_parquet(file)
    nothing = _analyze(folder)
    file.write_bytes(_cut(file.read_bytes()))
    damaged = _analyze(folder)
    assert (nothing.returncode, damaged.returncode) == (3, 2)
    assert "report_pqtdir: a trace without GPU activity" in nothing.stderr
    assert f"{file.name}: the Parquet file cannot be read" in damaged.stderr
    assert [done.stderr.count("\n") for done in (nothing, damaged)] == [1, 1]


def _analyze(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavewise.cli import main; main()", "analyze", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Boolean, pl.Duration, pl.List(pl.Int64), pl.Binary])
def test_a_column_of_a_type_that_cannot_be_meant_is_missing(folder: Path, dtype: pl.DataType) -> None:
    file = folder / f"{KERNELS}.parquet"
    odd = pl.Series("gridX", [None] * 500, dtype).extend_constant(None, 0)
    pl.read_parquet(file).with_columns(odd).write_parquet(file)
    (trace,) = read(folder)
    assert trace.operations["grid_x"].null_count() == 500


def test_texts_as_a_dictionary(folder: Path) -> None:
    file = folder / "StringIds.parquet"
    pl.read_parquet(file).with_columns(pl.col("value").cast(pl.Categorical)).write_parquet(file)
    (trace,) = read(folder)
    assert trace.operations["name"].unique().to_list() == ["void gemm<4>(int)"]


# ---- databases that somebody writes to


@pytest.fixture
def writer(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        yield connection


def test_rows_that_still_lie_in_the_log_beside_the_database_are_read(
    database: Path, writer: sqlite3.Connection
) -> None:
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute(f"DELETE FROM {KERNELS} WHERE start > 3000")
    assert database.with_name("report.sqlite-wal").stat().st_size
    (trace,) = read(database)
    assert len(trace.operations) == 3


def test_a_database_in_the_middle_of_a_change_is_refused(
    database: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BUSY_S", 0.01)
    writer.execute("PRAGMA cache_size=1")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute(f"UPDATE {KERNELS} SET gridX = gridX + 1")
    assert database.with_name("report.sqlite-journal").exists()
    with pytest.raises(
        InputError, match=r"locked.*; report\.sqlite-journal beside it .* still being written$"
    ):
        read(database)
    writer.execute("ROLLBACK")
    assert len(read(database)) == 1


def test_reading_leaves_nothing_behind(database: Path, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA journal_mode=WAL")
    writer.close()  # complete, but its header still asks for a log, which takes a writable folder
    before = sorted(database.parent.iterdir())
    assert len(read(database)) == 1
    assert sorted(database.parent.iterdir()) == before


def test_rows_come_in_batches(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outcome_of(database)
    monkeypatch.setattr(sqlite, "_BATCH_ROWS", 7)
    assert_same(whole, outcome_of(database))


@pytest.mark.corpus
@pytest.mark.skipif(CORPUS is None, reason="WAVEWISE_CORPUS names no folder with corpus/ and traces/")
@pytest.mark.parametrize(
    "path", sorted(Path(CORPUS or ".").glob("*/*/**/*.sqlite")), ids=lambda path: str(path)[-50:]
)
def test_exports_of_the_corpus_say_the_same_in_parquet(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "report.sqlite"
    copy.write_bytes(path.read_bytes())
    outcome = outcome_of(copy)
    if "no Nsight Systems export" not in str(outcome):
        assert_same(outcome, outcome_of(to_parquet(copy)))
