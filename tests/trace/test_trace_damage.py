"""Each kind of damage: what is valid survives, what is lost is counted and named."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from trace_samples import BASE_US, LAYOUTS, Number, codes, expected, kernel, kineto, steps, values

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace import Trace, read
from wavewise.trace.kineto import salvage
from wavewise.trace.notes import Notes
from wavewise.trace.source import Limits

LIMITS = [replace(Limits(), block_bytes=1 << 12), Limits()]


@pytest.fixture
def reading(tmp_path: Path) -> Callable[[bytes], list[list[Trace]]]:
    """Reads bytes with small blocks and with large ones; both must say the same."""

    def read_both(data: bytes) -> list[list[Trace]]:
        path = tmp_path / "trace.json"
        path.write_bytes(data)
        small, large = (read(path, limits=limits) for limits in LIMITS)
        for a, b in zip(small, large, strict=True):
            assert values(a) == values(b)
            assert a.rejected.equals(b.rejected)
        return [small, large]

    return read_both


Reading = Callable[[bytes], list[list[Trace]]]


def replace_nth(text: bytes, old: bytes, new: bytes, n: int) -> bytes:
    places = [match.start() for match in re.finditer(re.escape(old), text)]
    at = places[n]
    return text[:at] + new + text[at + len(old) :]


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented", "event_per_line", "bare_list"])
@pytest.mark.parametrize("word", ["NaN", "nan", "-nan", "inf", "-inf", "Infinity", "-Infinity", "N/A"])
def test_words_for_numbers_are_missing_values(reading: Reading, layout: str, word: str) -> None:
    events = steps()
    touched = 0
    for one in events:
        if one["cat"] == "kernel":
            one["args"] |= {"est. achieved occupancy %": Number(word), "flops": [1, Number(word)]}
            touched += 1
    want = expected(LAYOUTS[layout](steps()))
    for traces in reading(LAYOUTS[layout](events)):
        assert values(traces[0]) == want
        assert codes(traces[0])["nonfinite_number"] == 2 * touched
        assert traces[0].salvaged
        assert traces[0].operations["recorded_occupancy"].drop_nulls().is_empty()


def test_words_inside_strings_are_left_alone(reading: Reading) -> None:
    events = steps()
    events[1]["args"]["note"] = '[1, nan, 2], "x": NaN, inf'
    events[4]["args"]["memory bandwidth (GB/s)"] = Number("inf")
    for traces in reading(kineto(events)):
        assert codes(traces[0]) == {"nonfinite_number": 1}


@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_bytes_that_are_not_utf8(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    broken = text.replace("a\u00e9 ".encode(), b"a\xe9\xff ")
    changed = broken.count(b"\xe9\xff")
    want = {
        name: [
            tuple(v.replace("a\u00e9 ", "a\ufffd\ufffd ") if isinstance(v, str) else v for v in row)
            for row in rows
        ]
        for name, rows in expected(text).items()
    }
    for traces in reading(broken):
        assert values(traces[0]) == {name: sorted(rows, key=repr) for name, rows in want.items()}
        assert codes(traces[0])["invalid_utf8"] == 2 * changed


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented"])
def test_raw_control_characters_in_strings_are_kept(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    broken = text.replace(b"rms_norm", b"rms\t\x01norm")
    for traces in reading(broken):
        names = set(traces[0].operations["name"].cast(str).to_list())
        assert "rms\t\x01norm" in names
        assert len(traces[0].operations) == len(expected(text)["operations"])
        assert codes(traces[0])["control_characters"] == 2 * broken.count(b"rms\t\x01norm")


def test_integers_beyond_64_bits_and_lone_surrogates(reading: Reading) -> None:
    events = steps()
    events[6]["args"] |= {"Addr": 2**64, "Other": -(2**63) - 1, "correlation": 2**70}
    text = kineto(events).replace(b"rms_norm", b"rms\\ud83d norm")
    for traces in reading(text):
        trace = traces[0]
        assert len(trace.operations) == len(expected(kineto(steps()))["operations"])
        assert trace.operations["correlation"].null_count() == 1
        assert "rms\ufffd norm" in set(trace.operations["name"].cast(str).to_list())
        assert codes(trace)["lone_surrogate"] == text.count(b"\\ud83d")


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented", "event_per_line", "bare_list"])
@pytest.mark.parametrize("name", [b'gemm<Tag<"fast">, 4>', b'"gemm"', b'""', b'g" , "x', b'a\\"b"'])
@pytest.mark.parametrize("at", [0, 7, -1])
def test_unescaped_quotes_in_a_name_are_part_of_it(
    reading: Reading, layout: str, name: bytes, at: int
) -> None:
    text = LAYOUTS[layout](steps())
    broken = replace_nth(text, b"void gemm<float, 4>(int const*)", name, at)
    sound = replace_nth(
        text, b"void gemm<float, 4>(int const*)", name.replace(b'\\"', b'"').replace(b'"', b'\\"'), at
    )
    for traces in reading(broken):
        assert values(traces[0]) == expected(sound)
        assert codes(traces[0])["unescaped_quote"] >= 1
        assert traces[0].salvaged


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented", "event_per_line", "bare_list"])
@pytest.mark.parametrize("at", [0, 7, -1])
def test_an_unreadable_event_costs_itself_alone(reading: Reading, layout: str, at: int) -> None:
    text = LAYOUTS[layout](steps())
    want = expected(text)
    kernels = list(re.finditer(rb'"est. achieved occupancy %": ?12', text))
    place = kernels[at]
    for traces in reading(text[: place.start()] + b'"broken": [1, 2' + text[place.end() :]):
        trace, got = traces[0], values(traces[0])
        assert got["launches"] == want["launches"]
        assert got["markers"] == want["markers"]
        assert len(got["operations"]) == len(want["operations"]) - 1
        assert set(got["operations"]) < set(want["operations"])
        assert codes(trace)["malformed_event"] == 1
        assert trace.warnings[0].unsafe == ("steps",)
        # Its times and launch are still known, so that the step it belongs to can be told.
        lost = set(want["operations"]) - set(got["operations"])
        assert trace.rejected.select("reason", "start_ns", "correlation").rows() == [
            ("malformed_event", row[4], row[6]) for row in lost
        ]


@pytest.mark.parametrize("layout", ["kineto", "one_line", "indented", "event_per_line", "bare_list"])
@pytest.mark.parametrize(
    "line",
    [
        b'[rank0]:[W1129 10:22:31.512 Reducer.cpp:77] Warning: a {brace}, a "quote" and a comma, all in one line\n',
        b"WARNING 11-29 10:22:31 [utils.py:12] }, {\n",
        b"\0\0\0\0\n",
    ],
)
def test_a_foreign_line_between_events_costs_nothing(reading: Reading, layout: str, line: bytes) -> None:
    text = LAYOUTS[layout](steps())
    want = expected(text)
    for match in list(
        re.finditer(rb'\{\s*"ph": "X", "?cat": ?"kernel"|\{\s*"ph": "X",\s*"cat": "kernel"', text)
    )[3:5]:
        broken = text[: match.start()] + line + text[match.start() :]
        for traces in reading(broken):
            assert values(traces[0]) == want
            assert traces[0].salvaged
            assert traces[0].warnings


def test_a_foreign_line_inside_an_event_costs_nothing(reading: Reading) -> None:
    text = kineto(steps())
    broken = replace_nth(
        text, b'    "args": {\n', b'INFO 11-29 "throughput": 12 tok/s, {x}\n    "args": {\n', 9
    )
    for traces in reading(broken):
        assert values(traces[0]) == expected(text)
        assert codes(traces[0]) == {"foreign_line_removed": 1}


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented", "event_per_line", "bare_list"])
def test_superfluous_commas_and_empty_objects(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    want = expected(text)
    end = text.rindex(b"]") if layout != "kineto" else text.rindex(b"\n  ]")
    trailing = text[:end].rstrip() + b",\n" + text[end:]
    start = re.search(rb'\{\s*"ph"', text)
    assert start is not None
    empties = text[: start.start()] + b"{}, {}, , " + text[start.start() :]
    for broken in (trailing, empties):
        for traces in reading(broken):
            assert values(traces[0]) == want
            assert codes(traces[0]).get("extra_comma") == 1


@pytest.mark.parametrize("layout", ["kineto", "compact", "indented", "bare_list"])
def test_a_missing_comma_costs_nothing(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    between = list(re.finditer(rb"\}(\s*),(?=\s*\{\s*\"ph\")", text))[7]
    for traces in reading(text[: between.start()] + b"}" + between[1] + text[between.end() :]):
        assert values(traces[0]) == expected(text)
        assert codes(traces[0]).get("missing_comma") == 1


def test_lines_of_json_with_a_damaged_one_are_not_called_truncated(reading: Reading) -> None:
    text = LAYOUTS["lines_of_json"](steps())
    broken = replace_nth(text, b'"block": [256, 1, 1]', b'"block": [256, 1', 3)
    for traces in reading(broken):
        assert {"malformed_event": 1}.items() <= codes(traces[0]).items()
        assert "truncated" not in codes(traces[0])
        assert "missing_comma" not in codes(traces[0])
        assert len(traces[0].operations) == len(expected(text)["operations"]) - 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_text_cut_anywhere_keeps_everything_before(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    whole = expected(text)
    ends = [match.end() for match in re.finditer(rb'"dur"', text)]
    for cut in (ends[20], ends[20] + 9, ends[20] + 60, ends[-1] + 1, len(text) - 40):
        for traces in reading(text[:cut]):
            trace, got = traces[0], values(traces[0])
            seen = [match.start() for match in re.finditer(rb'"cat": ?"(?:kernel|gpu_memcpy)"', text[:cut])]
            assert set(got["operations"]) <= set(whole["operations"])
            assert len(got["operations"]) >= len(seen) - 1
            if len(got["operations"]) < len(whole["operations"]):
                assert codes(trace)["truncated"] == 1
                assert trace.salvaged


@pytest.mark.parametrize("layout", ["bare_list", "lines_of_json"])
def test_a_foreign_line_after_the_last_event_of_a_cut_text(reading: Reading, layout: str) -> None:
    text = LAYOUTS[layout](steps())
    whole = text.rstrip(b"]")
    for traces in reading(whole + b'\n[rank0] killed {"reason": "memory"}'):
        assert values(traces[0]) == expected(text)
        assert traces[0].salvaged


def test_documents_one_after_another_are_never_mixed(reading: Reading) -> None:
    first, second = kineto(steps(3)), LAYOUTS["compact"](steps(5, kernels=2))
    for joint in (b"", b"\n", b"\n[rank1] starts\n"):
        for traces in reading(first + joint + second):
            assert [values(trace) for trace in traces] == [expected(first), expected(second)]
            assert [trace.document for trace in traces] == [0, 1]
            assert [trace.rank for trace in traces] == [3, 3]


def test_a_document_without_gpu_work_beside_others_is_said(reading: Reading) -> None:
    idle = kineto([one for one in steps() if one["cat"] == "user_annotation"])
    for traces in reading(kineto(steps(3)) + idle):
        assert [trace.document for trace in traces] == [0]
        assert codes(traces[0]) == {"document_without_gpu": 1}


def test_a_damaged_header_costs_no_event(reading: Reading) -> None:
    text = kineto(steps())
    broken = text.replace(b'"schemaVersion": 1,', b'"schemaVersion": 1, "host": "a"b",', 1)
    for traces in reading(broken):
        assert values(traces[0]) == expected(text)
        assert codes(traces[0])["damaged_header"] == 1
        assert traces[0].devices[0].sm_count == 132
        assert traces[0].rank == 3


def test_the_word_trace_events_inside_a_string_is_no_list(reading: Reading) -> None:
    text = kineto(steps()).replace(b'"schemaVersion"', b'"note": "\\"traceEvents\\": [{", "schemaVersion"', 1)
    for traces in reading(text):
        assert values(traces[0]) == expected(kineto(steps()))
        assert traces[0].warnings == ()


def test_lists_of_objects_in_arguments_do_not_fool_a_cut(reading: Reading) -> None:
    events = steps(40)
    for one in events:
        if one["cat"] in ("kernel", "cpu_op"):
            one["args"] |= {"like events": [{"name": "a", "ts": 1}, {"ph": "X", "name": "b"}]}
    for layout in ("compact", "one_line", "kineto"):
        text = LAYOUTS[layout](events)
        for traces in reading(text):
            assert values(traces[0]) == expected(text)
            assert "malformed_event" not in codes(traces[0])


def test_an_event_longer_than_the_limit_is_left_out(tmp_path: Path) -> None:
    events = steps()
    events[10]["args"] |= {"huge": "x" * 300_000}
    text = kineto(events)
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    limits = replace(Limits(), block_bytes=1 << 14, event_bytes=1 << 17)
    trace = read(path, limits=limits)[0]
    assert len(trace.operations) >= len(expected(text)["operations"]) - 1
    assert codes(trace)["oversized_event"] >= 1
    assert values(read(path)[0]) == expected(text)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dur": Number("-3.104")}, "negative_duration"),
        ({"dur": Number("-281474976710.656")}, "negative_duration"),
        ({"dur": None}, "missing_duration"),
        ({"dur": Number("1e30")}, "missing_duration"),
        ({"ts": Number("1e30")}, "missing_time"),
        ({"ts": "soon"}, "missing_time"),
        ({"ts": Number("0"), "dur": Number("0")}, "zero_timestamp"),
        ({"ts": Number("0.000"), "dur": Number("2.000")}, "zero_timestamp"),
        ({"dur": Number("3600000000.123")}, "impossible_duration"),
    ],
)
@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_records_that_cannot_be_true_are_set_aside(
    reading: Reading, layout: str, change: dict[str, Any], reason: str
) -> None:
    events = steps()
    at = next(i for i, one in enumerate(events) if one["cat"] == "kernel" and i > 20)
    events[at] = {key: value for key, value in (events[at] | change).items() if value is not None}
    whole = expected(kineto(steps()))
    for traces in reading(LAYOUTS[layout](events)):
        trace = traces[0]
        assert len(trace.operations) == len(whole["operations"]) - 1
        assert trace.rejected["reason"].to_list() == [reason]
        assert codes(trace)[reason] == 1
        assert not trace.salvaged  # the text was sound


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", InputError, "empty"),
        (b" \n ", InputError, "not a trace"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 99, InputError, "not a trace"),
        (b"<html><body>login</body></html>", InputError, "not a trace"),
        (b'{"hidden_size": 4096}', InputError, "not a trace"),
        (b"[1, 2, 3]", InputError, "not a trace"),
        (b'"traceEvents"', InputError, "not a trace"),
        (b'{"traceEvents": []}', NothingToAnalyzeError, "without events"),
        (b"[]", NothingToAnalyzeError, "without events"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}]}', NothingToAnalyzeError,
         "without GPU activity"),
    ],
)  # fmt: skip
def test_what_is_no_trace_says_so_in_one_line(
    tmp_path: Path, data: bytes, error: type[Exception], words: str
) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(data)
    with pytest.raises(error, match=words) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_profiler_says_it_lost_is_a_warning(reading: Reading) -> None:
    log = ["WARNING:2026-11-29 CuptiActivityApi.cpp:1] Dropped 12 activity records",
           "INFO: Record counts: Out-of-range = 3, CUPTI stopped early? = 1"]  # fmt: skip
    for traces in reading(
        kineto(steps(), {"schemaVersion": 1, "WARNING": log, "deviceProperties": [{"id": 0}]})
    ):
        assert codes(traces[0]) == {"lost_records": 12, "collection_stopped_early": 1}
        assert traces[0].warnings[0].unsafe == ("idle", "steps", "kernels")


def test_unsorted_events_come_out_sorted(reading: Reading) -> None:
    events = steps()
    shuffled = events[1::2] + events[::2][::-1]
    for traces in reading(kineto(shuffled)):
        assert values(traces[0]) == expected(kineto(events))
        assert traces[0].operations["start_ns"].is_sorted()


def test_a_name_that_is_no_string_is_kept_as_text(reading: Reading) -> None:
    one = kernel(1, BASE_US * 1000, 100) | {"name": 17, "pid": [0], "tid": {"a": 1}}
    for traces in reading(LAYOUTS["compact"]([one])):
        assert traces[0].operations["name"].to_list() == ["17"]


def test_a_stretch_without_ends_does_not_cost_the_square_of_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every event begins, none ends, and each has something to mend: any of them might end where the last one does.
    endless = b"".join(
        b'{"ph": "X", "cat": "kernel", "name": "k\x01", "ts": %d, "dur": NaN "args": [\n' % i
        for i in range(600)
    )
    sound = LAYOUTS["compact"](steps(40))
    head, opening, rest = sound.partition(b'"traceEvents":[')
    path = tmp_path / "trace.json"
    path.write_bytes(head + opening + endless + b"," + rest)
    mended: list[int] = []
    one = salvage.repair

    def counted(piece: bytes, notes: Notes) -> bytes:
        mended.append(len(piece))
        return one(piece, notes)

    monkeypatch.setattr(salvage, "repair", counted)
    (trace,) = read(path)
    assert values(trace) == expected(sound)
    assert codes(trace)["malformed_event"] == 600
    # Without a bound: several tries of 20 KB on average for each of the 600 events.
    assert sum(mended) < (1 << 20) + 5 * (len(endless) + len(rest))


def test_events_behind_what_looks_like_the_documents_end(reading: Reading) -> None:
    text = LAYOUTS["indented"](steps(20))
    middle = [match.start() for match in re.finditer(rb"\{\s*\"ph\": \"X\"", text)][60]
    for traces in reading(text[:middle] + b"]}{ " + text[middle:]):
        # The rest is another document's, whose beginning is lost; of its first event there is too little to tell.
        found = [row for trace in traces for row in values(trace)["operations"]]
        whole = expected(text)["operations"]
        assert set(found) <= set(whole)
        assert len(found) >= len(whole) - 1


def test_a_text_that_ends_just_where_a_block_does_is_truncated_all_the_same(tmp_path: Path) -> None:
    text = kineto(steps(20))
    path = tmp_path / "trace.json"
    first = text.index(b"  {\n", text.index(b'"traceEvents"'))
    ends = [match.end() for match in re.finditer(rb"\n  \},\n", text)]
    for before, end in pairwise(ends[40:61]):
        for cut in (end - 2, end - 1, end, end + 2):
            path.write_bytes(text[:cut])
            # The first block's end is looked for from there on: just before, within and behind the last event.
            for place in (before - 10, before + 10, end - 10, end + 10):
                (trace,) = read(path, limits=replace(Limits(), block_bytes=place - first))
                assert codes(trace) == {"truncated": 1}, (cut, place)
