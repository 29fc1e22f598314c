"""Packed files: members, junk, cuts, damage, bombs; and files behind URLs."""

import gzip
import io
import itertools
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from trace_samples import codes, expected, kineto, steps, values

from wavewise.errors import InputError, MissingExtraError
from wavewise.trace import find_traces, read, remote
from wavewise.trace.kineto import workers
from wavewise.trace.source import Limits, open_text

TEXT = kineto(steps(40))


def whole(path: Path, limits: Limits | None = None, step: int = 10_000) -> tuple[bytes, dict[str, int]]:
    """All of a file's text, asked for in overlapping stretches as the reader does."""
    text = open_text(str(path), limits or Limits())
    out, offset = b"", 0
    while piece := text.at(offset, step + 77):
        out += piece[:step]
        offset += step
    notes = dict(text.notes)
    text.close()
    return out, notes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.json.gz"


def test_members_are_one_stream(file: Path) -> None:
    cuts = [0, 1, len(TEXT) // 3, len(TEXT) // 3, len(TEXT)]
    parts = [TEXT[a:b] for a, b in itertools.pairwise(cuts)]
    file.write_bytes(b"".join(gzip.compress(part) for part in parts))
    assert whole(file) == (TEXT, {})
    file.write_bytes(b"".join(zstandard.ZstdCompressor().compress(part) for part in parts))
    assert whole(file) == (TEXT, {})


def test_zeros_after_the_last_member_are_padding_and_anything_else_is_junk(file: Path) -> None:
    file.write_bytes(gzip.compress(TEXT) + b"\0" * 1000)
    assert whole(file) == (TEXT, {})
    for junk in (b"junk", b"\x1f", b"\0\0x" * 500_000):
        file.write_bytes(gzip.compress(TEXT) + junk)
        assert whole(file) == (TEXT, {"trailing_junk": 1})


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_stream_cut_off_gives_what_can_be_unpacked(file: Path, share: float) -> None:
    packed = gzip.compress(TEXT)
    file.write_bytes(packed[: int(len(packed) * share)])
    text, notes = whole(file)
    assert TEXT.startswith(text)
    assert len(text) > (share - 0.1) * len(TEXT) * 0.9
    assert notes == {"truncated_compression": 1}


@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_damage_within_a_member_costs_only_what_follows_it(file: Path, step: int) -> None:
    noise = random.Random(5)
    text = TEXT + bytes(noise.randrange(97, 123) for _ in range(600_000)) + TEXT
    packed = bytearray(gzip.compress(text))
    at = len(packed) * 2 // 3
    packed[at : at + 40] = bytes(noise.randrange(256) for _ in range(40))
    file.write_bytes(bytes(packed))
    got, notes = whole(file, step=step)
    # A deflate stream may run on over damage for a while; what came before it is exact.
    sound = next((i for i, (a, b) in enumerate(zip(got, text, strict=False)) if a != b), len(got))
    assert sound > 0.6 * len(text)
    assert notes == {"damaged_compression": 1}


def test_a_wrong_checksum_alone_costs_nothing(file: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-8] ^= 255
    file.write_bytes(bytes(packed))
    assert whole(file) == (TEXT, {"damaged_compression": 1})
    trace = read(file)[0]
    assert values(trace) == expected(TEXT)
    assert codes(trace) == {"damaged_compression": 1}


def test_packed_garbage_is_refused_as_such(file: Path) -> None:
    for start in (b"\x1f\x8b\x08\x00", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"):
        file.write_bytes(start + b"\xff" * 100)
        with pytest.raises(InputError, match="nothing of it can be unpacked"):
            read(file)


def test_bombs_are_refused_past_limits_that_can_be_set(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(gzip.compress(TEXT + b" " * 30_000_000))
    assert len(whole(file)[0]) == len(TEXT) + 30_000_000
    with pytest.raises(InputError, match="WAVEWISE_MAX_TEXT_BYTES"):
        read(file, limits=replace(Limits(), text_bytes=20_000_000))
    with pytest.raises(InputError, match="over 100 times its size"):
        read(file, limits=replace(Limits(), expansion=100, expansion_from=1 << 20))
    monkeypatch.setenv("WAVEWISE_MAX_TEXT_BYTES", "20000000")
    with pytest.raises(InputError, match="20,000,000"):
        read(file)
    file.write_bytes(zstandard.ZstdCompressor().compress(TEXT + b" " * 30_000_000))
    with pytest.raises(InputError, match="WAVEWISE_MAX_TEXT_BYTES"):
        read(file)


def test_a_bomb_is_refused_before_it_takes_memory(file: Path) -> None:
    with gzip.open(file, "wb", compresslevel=9) as out:
        out.write(b'{"traceEvents": [')
        for _ in range(600):
            out.write(b" " * (1 << 20))
    code = (
        "import resource, sys\nfrom wavewise.trace import read\n"
        "base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read(sys.argv[1])\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=True)
    said, grown = ran.stdout.strip().splitlines()
    assert "InputError" in said
    # 64 MiB is the longest stretch without an event that is kept, and it is copied once while it grows.
    assert int(grown) < 300 * 1024


def test_a_file_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    for name, data in (
        ("a.json", gzip.compress(TEXT)),
        ("b.json.gz", b"\xef\xbb\xbf" + TEXT),
        ("c.sqlite", zstandard.ZstdCompressor().compress(TEXT)),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert values(read(path)[0]) == expected(TEXT)


def test_nothing_is_readable_in_a_missing_file_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.json: cannot be read"):
        read(tmp_path / "no.json")
    with pytest.raises(InputError, match="a folder"):
        read(tmp_path)


@pytest.mark.parametrize("processes", [1, 3])
def test_urls_are_read_where_fsspec_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr(workers, "_processes", lambda text: processes)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe("/run/b.json", TEXT)
    memory.pipe("/run/a.json.gz", gzip.compress(TEXT))
    memory.pipe("/run/notes.txt", b"nothing")
    found = find_traces(["memory://run"])
    assert [path.name for path in found] == ["a.json.gz", "b.json"]
    for path in found:  # pathlib has taken one of the slashes
        assert values(read(path, limits=replace(Limits(), block_bytes=5000))[0]) == expected(TEXT)
    local = tmp_path / "t.json"
    local.write_bytes(TEXT)
    assert values(read(local.as_uri())[0]) == expected(TEXT)
    with pytest.raises(InputError, match="no such file"):
        find_traces(["memory://run/absent.json"])
    memory.pipe("/run/x.sqlite", b"SQLite format 3\0" + b"\0" * 99)
    with pytest.raises(InputError, match="copy it here"):
        read("memory://run/x.sqlite")


def test_urls_without_fsspec_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"wavewise\[remote\]"):
        read("s3://bucket/trace.json.gz")


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("s3:/bucket/a", "s3://bucket/a"), ("https://host/a", "https://host/a"), ("file:/tmp/a", "file:///tmp/a"),
        ("/tmp/a", None), ("C:/a", None), ("a.json", None), ("run 1: x/a", None),
    ],
)  # fmt: skip
def test_what_is_a_url(path: str, url: str | None) -> None:
    assert remote.url_of(path) == url


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(TEXT)
    shares: list[float] = []
    read(path, progress=lambda what, share: shares.append(share), limits=replace(Limits(), block_bytes=5000))
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] <= 1


def test_io_errors_while_reading_are_input_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(TEXT)

    class Broken(io.RawIOBase):
        def fileno(self) -> int:
            return os.open(path, os.O_RDONLY)

        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: Broken())
    with pytest.raises(InputError, match="Input/output error"):
        open_text(str(path), Limits())
