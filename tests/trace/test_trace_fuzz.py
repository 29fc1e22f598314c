"""Property tests: whatever is done to a trace, the reader neither crashes nor contradicts itself.

`benchmarks/fuzz_reader.py` does the same for hours over real traces; what it has found is kept here as examples.
"""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trace_samples import LAYOUTS, codes, expected, kineto, steps, values

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace import Trace, read
from wavewise.trace.kineto.blocks import Stretch
from wavewise.trace.kineto.events import MISSING, Rows, Tables, to_ns
from wavewise.trace.kineto.repair import repair
from wavewise.trace.kineto.scan import scan
from wavewise.trace.kineto.typed import typed
from wavewise.trace.notes import Notes
from wavewise.trace.source import Limits

EVENTS = steps(5, kernels=3)
TEXTS = {name: layout(EVENTS) for name, layout in LAYOUTS.items()}
WHOLE = expected(TEXTS["kineto"])
BLOCKS = [replace(Limits(), block_bytes=size) for size in (1 << 11, 1 << 14)]

NASTY = st.sampled_from(
    [
        b"\0", b"\xff", b'"', b"\\", b"\n", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"-", b"e9", b"null",
        b'{"ph": "X"}', b"},\n  {\n", b'[rank0]: {x}, "y"\n', b"\\ud83d", b'"traceEvents": [', b"]}", b"]}{",
        b"9" * 40, b"\r\n", b"  },\n",
    ]
)  # fmt: skip
EDIT = st.tuples(st.floats(0, 1), st.integers(0, 40), st.one_of(st.just(b""), NASTY, st.binary(max_size=6)))

quick = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def attempt(path: Path, data: bytes, limits: Limits) -> list[Trace] | str:
    path.write_bytes(data)
    try:
        return read(path, limits=limits)
    except (InputError, NothingToAnalyzeError) as error:
        return f"{type(error).__name__} of {1 + str(error).count(chr(10))} line"


def edited(text: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    start = text.find(b'"traceEvents"') + 16 if b'"traceEvents"' in text else 1
    for share, length, put in edits:
        at = start + int(share * (len(text) - start))
        text = text[:at] + put + text[at + length :]
    return text


@quick
@given(st.sampled_from(sorted(TEXTS)), st.lists(EDIT, min_size=1, max_size=3))
# A stray bracket before a comma once ended the list, and with it everything that followed.
@example("event_per_line", [(0.4, 0, b"]")])
@example("indented", [(0.3, 0, b"]}")])
@example("kineto", [(0.5, 1, b'"'), (0.51, 1, b'"')])
def test_edits_cost_what_they_touch(
    tmp_path: Path, layout: str, edits: list[tuple[float, int, bytes]]
) -> None:
    data = edited(TEXTS[layout], edits)
    for limits in BLOCKS:
        first, second = attempt(tmp_path / "a.json", data, limits), attempt(tmp_path / "a.json", data, limits)
        if isinstance(first, str) or isinstance(second, str):
            assert first == second
            assert str(first).endswith("of 1 line")
            continue
        assert [values(trace) for trace in first] == [values(trace) for trace in second]
        assert [codes(trace) for trace in first] == [codes(trace) for trace in second]
        kept = {row for trace in first for row in values(trace)["operations"]}
        lost = set(WHOLE["operations"]) - kept
        # An edit touches at most the events it lies in, and the one that its end runs into; a cut at the very
        # end of the text, or a second document's beginning put into it, is another matter.
        if not any(put in (b'"traceEvents": [', b"]}{") for _, _, put in edits):
            assert len(lost) <= 3 * len(edits), (len(lost), [codes(trace) for trace in first])


@quick
@given(st.sampled_from(sorted(TEXTS)), st.floats(0, 1), st.booleans())
@example("lines_of_json", 0.9, False)
def test_cuts_keep_what_came_before(tmp_path: Path, layout: str, share: float, packed: bool) -> None:
    text = TEXTS[layout]
    data = text[: int(share * len(text))]
    whole = gzip.compress(text)
    read_as = attempt(tmp_path / "a.json", whole[: int(share * len(whole))] if packed else data, BLOCKS[0])
    if isinstance(read_as, str):
        return
    for trace in read_as:
        got = values(trace)
        assert set(got["operations"]) <= set(WHOLE["operations"])
        # Lines of JSON cut off behind one of them are whole, as far as anybody can tell.
        whole_lines = layout == "lines_of_json" and data.rstrip().endswith(b"}") and not packed
        if len(got["operations"]) < len(WHOLE["operations"]) and not whole_lines:
            assert set(codes(trace)) & {"truncated", "truncated_compression"}


@quick
@given(st.binary(max_size=400))
@example(b"[" * 100_000)
@example(b'{"traceEvents": [' + b'{"args": ' * 50_000)
@example(b'{"traceEvents": [{"ph": "X", "cat": "kernel", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}")
@example(b"{" + b'"a": {' * 100_000)
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    for prefix in (b"", b"[", b'{"traceEvents": [', b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0"):
        answer = attempt(tmp_path / "a.json", prefix + data, BLOCKS[0])
        assert not isinstance(answer, str) or answer.endswith("of 1 line")


def rows(found: Rows, tables: Tables) -> list[tuple[object, ...]]:
    return [
        (tables.keys.values[key], tables.shapes.values[shape] if shape >= 0 else None, start, duration, correlation)
        for key, shape, start, duration, correlation in zip(
            found.key.tolist(), found.shape.tolist(), found.start.tolist(), found.duration.tolist(),
            found.correlation.tolist(), strict=True,
        )
    ]  # fmt: skip


BODY = kineto(EVENTS).partition(b'"traceEvents": [\n')[2].partition(b"\n  ]")[0]


@quick
@given(st.lists(EDIT, max_size=2))
@example([(0.6732883944532705, 1, b"")])  # "cuda_runtme": the first eight bytes are those of a known category
@example([(0.4352134613268107, 32, b"")])  # two events run together: one object with its keys twice
@example([(0.5, 1, b"")])  # "correlation":97, without the space that the others have
def test_the_fast_rung_never_answers_otherwise_than_json_does(edits: list[tuple[float, int, bytes]]) -> None:
    """Where the scan accepts a text, decoding it as JSON gives the same rows, or it differs in what is not kept."""
    text = BODY
    for share, length, put in edits:
        at = int(share * len(text))
        text = text[:at] + put + text[at + length :]
    fast_tables, slow_tables = Tables(), Tables()
    fast = scan(Stretch.of(text), fast_tables)  # must not raise, either
    slow = typed(Stretch.of(text), slow_tables)
    if fast is not None and slow is not None:
        assert rows(fast, fast_tables) == rows(slow, slow_tables)
        assert fast.events == slow.events
    if not edits:
        assert fast is not None


@given(st.integers(-(2**62), 2**62))
def test_nanoseconds_from_digits(ns: int) -> None:
    sign = "-" if ns < 0 else ""
    text = f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03}"
    assert to_ns(text.encode()) == ns
    assert to_ns(f'"{text}"'.encode()) == ns


@given(
    st.one_of(
        st.binary(max_size=30),
        st.floats().map(lambda x: repr(x).encode()),
        st.text(max_size=9).map(str.encode),
    )
)
def test_any_token_is_nanoseconds_or_missing(token: bytes) -> None:
    assert isinstance(to_ns(token), int)
    if not any(byte in b"0123456789" for byte in token):
        assert to_ns(token) == MISSING


@given(st.sampled_from(sorted(TEXTS)))
def test_sound_text_is_not_touched_by_repair(layout: str) -> None:
    notes = Notes()
    assert repair(TEXTS[layout], notes) == TEXTS[layout]
    assert not notes


@pytest.mark.parametrize("layout", sorted(TEXTS))
def test_same_bytes_same_answer_whatever_the_blocks(tmp_path: Path, layout: str) -> None:
    answers = []
    for size in (600, 1000, 1 << 12, 1 << 16, 2 << 20):
        got = attempt(tmp_path / "a.json", TEXTS[layout], replace(Limits(), block_bytes=size))
        assert not isinstance(got, str)
        answers.append(values(got[0]))
    assert all(answer == WHOLE for answer in answers)
