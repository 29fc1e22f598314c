"""Which files of a folder are traces, and which rank wrote them."""

import gzip
import json
import os
from pathlib import Path

import pytest
from trace_samples import HEADER, kineto, steps

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace import find_traces, read
from wavewise.trace.ranks import rank_group, rank_in_name


def test_folders_are_expanded_by_name_and_not_searched_below(tmp_path: Path) -> None:
    for name in (
        "b.json",
        "a.json.gz",
        "c.json.zst",
        "d.sqlite",
        "notes.txt",
        "plot.png",
        "run.json",
        "findings.json",
    ):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "e.json").write_bytes(b"x")
    assert [path.name for path in find_traces([tmp_path])] == [
        "a.json.gz",
        "b.json",
        "c.json.zst",
        "d.sqlite",
    ]
    deep = find_traces([tmp_path], recursive=True)
    assert [path.name for path in deep] == ["a.json.gz", "b.json", "c.json.zst", "d.sqlite", "e.json"]
    named = tmp_path / "notes.txt"
    assert find_traces([named, tmp_path / "b.json"]) == [named, tmp_path / "b.json"]


def test_raw_nsight_reports_are_named_unless_their_export_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.nsys-rep").write_bytes(b"raw")
    (tmp_path / "b.nsys-rep").write_bytes(b"raw")
    (tmp_path / "b.sqlite").write_bytes(b"x")
    assert [path.name for path in find_traces([tmp_path])] == ["a.nsys-rep", "b.sqlite"]
    with pytest.raises(InputError, match=r"nsys export --type sqlite a\.nsys-rep"):
        read(tmp_path / "a.nsys-rep")


def test_a_folder_of_folders_says_how_to_search_them(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with pytest.raises(InputError, match="--recursive"):
        find_traces([tmp_path])
    with pytest.raises(InputError, match=r"\)$"):
        find_traces([tmp_path / "below"])


def test_a_name_that_the_system_refuses_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        find_traces([tmp_path / ("x" * 300)])


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace in this folder"):
        find_traces([tmp_path])
    with pytest.raises(InputError, match=r"absent\.json: no such file"):
        find_traces([tmp_path / "absent.json"])


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="write it to a file first"):
        read(tmp_path / "pipe.json")


def test_a_cut_before_the_first_gpu_record_is_not_blamed_on_the_profiler(tmp_path: Path) -> None:
    text = kineto(steps())
    packed = gzip.compress(b" " * 10_000 + text)
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) // 3])
    with pytest.raises(NothingToAnalyzeError, match="cut off"):
        read(tmp_path / "cut.json.gz")


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json.gz", 3), ("trace_rank_12.pt.trace.json", 12), ("RANK-0.1700000000.json", 0),
        ("1753-TP-2.trace.json.gz", 2), ("dp0_pp0_tp3_rank7.json", 7), ("bs064.json.gz", None),
        ("frank5.json", None), ("rank1_vs_rank2.json", None), ("HTTP-200.json", None),
    ],
)  # fmt: skip
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def write(path: Path, rank: int | None, world: int | None) -> Path:
    info = {key: value for key, value in (("rank", rank), ("world_size", world)) if value is not None}
    path.write_bytes(kineto(steps(2), HEADER | {"distributedInfo": info}))
    return path


def test_the_trace_knows_its_rank_better_than_its_name(tmp_path: Path) -> None:
    assert read(write(tmp_path / "rank5.json", 2, 4))[0].rank == 2
    assert read(write(tmp_path / "rank6.json", None, 8))[0].rank == 6
    assert read(write(tmp_path / "bs64.json", None, None))[0].rank is None


def test_ranks_of_one_run_and_those_missing(tmp_path: Path) -> None:
    traces = [read(write(tmp_path / f"t{rank}.json", rank, 5))[0] for rank in (3, 0, 1)]
    group = rank_group((trace.rank, trace.metadata["world_size"]) for trace in traces)  # type: ignore[misc]
    assert group is not None
    assert group.ranks == (0, 1, 3)
    assert group.world_size == 5
    assert group.missing == (2, 4)


@pytest.mark.parametrize(
    "members",
    [
        [(0, 2), (1, 3)],  # two sizes of the run
        [(0, 3), (3, 3)],  # a rank that is none of it
        [(1, 3), (1, 3)],  # the same rank twice
        [(1, 3), (None, None)],
        [(1, 3)],
        [],
    ],
)
def test_traces_that_are_not_the_ranks_of_one_run(members: list[tuple[int | None, int | None]]) -> None:
    assert rank_group(members) is None


def test_ranks_without_a_known_size_miss_those_below_the_highest() -> None:
    group = rank_group([(3, None), (1, None)])
    assert group is not None
    assert (group.world_size, group.missing) == (None, (0, 2))


def test_metadata_is_what_says_where_a_trace_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(
        kineto(steps(2), HEADER | {"cuda_driver_version": 13000, "host_name": "secret", "trace_id": "AB"})
    )
    metadata = read(path)[0].metadata
    assert metadata["cuda_driver_version"] == 13000
    assert metadata["trace_id"] == "AB"
    assert "host_name" not in metadata
    assert json.dumps(metadata)


def test_a_folder_is_read_in_the_order_in_which_people_count(tmp_path: Path) -> None:
    names = ["bs1.json", "bs8.json", "bs16.json", "bs16b.json", "bs128.json.gz"]
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in find_traces([tmp_path])] == names
