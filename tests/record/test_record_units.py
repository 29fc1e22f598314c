"""The recorder's parts, each against an independent account of what it should say."""

import asyncio
import errno
import gzip
import json
import os
import random
import stat
import time
from array import array
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_fakes import trace_bytes

from wavewise.errors import InputError, UsageError
from wavewise.record import folder, nvml, prompts, read_run, traces
from wavewise.record.client import Client, error_message, parse_target
from wavewise.record.collect import exactly_held
from wavewise.record.engines.openai import OpenAi
from wavewise.record.engines.sglang import Sglang
from wavewise.record.folder import recording_lock
from wavewise.record.host import flags_of, is_local, server_command
from wavewise.record.latency import measure
from wavewise.record.metrics import parse_metrics, total
from wavewise.record.model import StepCount, TraceFile
from wavewise.record.streams import Event, Stream, _Connection

# ---------------------------------------------------------------------- latency


def brute_force(streams: list[Stream], begin: float, end: float) -> tuple[float, list[float]]:
    """Throughput and per-token intervals by plain loops."""
    rate, tokens = 0.0, []
    for stream in streams:
        inside = [(t, n) for t, n in zip(stream.times, stream.counts, strict=True) if begin <= t < end]
        rate += (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])
        for (before, had), (now, has) in pairwise(inside):
            tokens += [(now - before) / (has - had) * 1e3] * (has - had)
    return rate, sorted(tokens)


@given(
    st.lists(
        st.lists(st.tuples(st.floats(1e-4, 0.5), st.integers(1, 4)), min_size=6, max_size=30),
        min_size=1,
        max_size=5,
    )
)
def test_latency_agrees_with_plain_loops(gains: list[list[tuple[float, int]]]) -> None:
    streams = []
    for each in gains:
        stream, at, count = Stream(prompt_tokens=100), 10.0, 0
        for interval, new in each:
            at, count = at + interval, count + new
            stream.times.append(at)
            stream.counts.append(count)
        streams.append(stream)
    end = min(stream.times[-1] for stream in streams) + 1e-9
    begin = max(stream.times[0] for stream in streams)
    found = measure(streams, begin, end, 1000.0)
    inside = [sum(1 for t in stream.times if begin <= t < end) for stream in streams]
    if min(inside) < 2:
        assert found is None
        return
    assert found is not None
    rate, tokens = brute_force(streams, begin, end)
    # Only the order of additions differs.
    assert found.tokens_per_s == pytest.approx(rate, rel=1e-9)
    assert found.step_ms == pytest.approx(len(streams) / rate * 1e3, rel=1e-9)
    assert found.inter_token_ms_mean == pytest.approx(sum(tokens) / len(tokens), rel=1e-9)
    place = 0.9 * (len(tokens) - 1)  # linear interpolation between order statistics
    low = tokens[int(place)]
    high = tokens[min(int(place) + 1, len(tokens) - 1)]
    assert found.inter_token_ms_p90 == pytest.approx(low + (high - low) * (place - int(place)), rel=1e-9)
    assert found.tokens == len(tokens)
    assert (found.events_of_slowest_stream, found.streams) == (min(inside), len(streams))
    assert (found.start_unix_s, found.end_unix_s) == (begin + 1000.0, end + 1000.0)


def test_latency_without_two_events_is_not_measured() -> None:
    stream = Stream(times=array("d", [1.0, 2.0, 3.0]), counts=array("q", [1, 2, 3]))
    assert measure([stream], 1.5, 2.5, 0.0) is None
    assert measure([], 0.0, 1.0, 0.0) is None


# ---------------------------------------------------------------------- streams


class Transport(asyncio.Transport):
    """Remembers what is written and whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.aborted = b"", False

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def read_stream(pieces: list[bytes], engine: type = OpenAi) -> tuple[Stream, Transport]:
    stream, transport = Stream(), Transport()
    reader = engine(None)
    connection = _Connection(stream, b"request", reader.read_event)
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
    return stream, transport


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@given(st.integers(1, 20), st.integers(0, 2**32), st.booleans())
def test_a_stream_reads_the_same_however_the_network_cuts_it(
    events: int, seed: int, windows_lines: bool
) -> None:
    source = random.Random(seed)
    body = b": keep-alive\n\n"
    for count in range(1, events + 1):
        usage = {"prompt_tokens": 9, "completion_tokens": 2 * count}
        chunk = {"choices": [{"index": 0, "text": "é w", "finish_reason": None}], "usage": usage}
        body += b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"
    body += b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": %d}}\n\n' % (
        2 * events
    )
    body += b"data: [DONE]\n\n"
    body = body.replace(b"\n", b"\r\n") if windows_lines else body
    wire, at = HEAD, 0
    while at < len(body):  # any chunking
        size = source.randint(1, 200)
        wire, at = wire + chunked(body[at : at + size]), at + size
    wire += b"0\r\n\r\n"
    cuts = sorted(source.sample(range(1, len(wire)), min(len(wire) - 1, source.randint(0, 40))))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    stream, transport = read_stream(pieces)
    assert list(stream.counts) == [2 * count for count in range(1, events + 1)]
    assert list(stream.times) == sorted(stream.times)
    assert (stream.prompt_tokens, stream.status) == (9, 200)
    assert stream.ended == "finished (no reason given)"
    assert transport.aborted


def test_tokens_are_counted_by_usage_ids_or_chunks() -> None:
    read = OpenAi(None).read_event  # type: ignore[arg-type]
    assert read(b'{"choices": [{"text": " a"}], "usage": {"completion_tokens": 7}}') == Event(
        tokens=7, new_tokens=1
    )
    assert read(b'{"choices": [{"text": "", "token_ids": [5, 6]}]}') == Event(new_tokens=2)
    assert read(b'{"choices": [{"text": ""}]}') == Event()
    assert read(b'{"error": {"message": "no"}}') == Event(error="no")
    assert read(b"{") is not None
    native = Sglang(None).read_event  # type: ignore[arg-type]
    assert native(
        b'{"text": "x", "output_ids": [1], "meta_info": {"completion_tokens": 3, "prompt_tokens": 8}}'
    ) == Event(tokens=3, prompt_tokens=8)
    aborted = native(b'{"meta_info": {"finish_reason": {"type": "abort", "message": "out of memory"}}}')
    assert aborted == Event(error="out of memory")


def test_an_error_answer_is_told_with_its_message() -> None:
    body = b'{"error": {"message": "no such\\nmodel", "code": 404}}'
    head = b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n" % len(body)
    stream, _ = read_stream([head, body])
    assert (stream.status, stream.ended) == (404, "HTTP 404: no such model")
    stream, _ = read_stream([b"SSH-2.0-OpenSSH_9.6\r\n"])
    assert stream.ended is not None
    assert "not HTTP" in stream.ended


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error": {"message": "m"}}', "m"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ('{"object": "error", "message": "m", "code": 400}', "m"),
        ('{"detail": "Not Found"}', "Not Found"),
        ("Internal\nServer Error", "Internal Server Error"),
        ("x" * 999, "x" * 297 + "..."),
        ("", ""),
    ],
)
def test_error_bodies_of_every_shape(body: str, message: str) -> None:
    assert error_message(body) == message


# ---------------------------------------------------------------------- prompts


@given(st.integers(1, 300), st.integers(0, 200_000))
def test_prompts_have_their_length_and_stay_in_the_vocabulary(count: int, last_id: int) -> None:
    ids = prompts.token_ids(count, last_id, random.Random(1))
    assert len(ids) == count
    assert min(ids) >= 0
    assert max(ids) <= last_id


def test_prompts_differ_from_their_first_tokens_on() -> None:
    source = random.Random(7)
    heads = {tuple(prompts.token_ids(64, prompts.WIDE_LAST_ID, source)[:16]) for _ in range(500)}
    assert len(heads) == 500, "no two share a cache block"
    assert len(prompts.words(9, source).split()) == 9


# ---------------------------------------------------------------------- metrics, host, client


def test_metrics_are_summed_over_engines() -> None:
    text = (
        "# HELP vllm:num_requests_running Number.\n# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="a \\"b\\" {c}"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="x"} 4.0 1395066363000\n'
        "up 1\nnonsense line\nbroken{ 5\nnan_one NaN\n"
    )
    samples = parse_metrics(text)
    assert total(samples, "vllm:num_requests_running") == 7
    assert total(samples, "up") == 1
    assert total(samples, "absent") is None
    assert samples["vllm:num_requests_running"][1][0] == {"engine": "1", "model_name": "x"}


def test_flags_of_a_command_line_without_its_secrets() -> None:
    argv = [
        "python", "-m", "vllm", "serve", "model", "--max-num-seqs", "96", "--enforce-eager", "--api-key", "s3cret",
        "--seed=0", "--hf-token=s3cret", "--max-num-batched-tokens", "8192", "--no-enable-prefix-caching",
    ]  # fmt: skip
    flags = flags_of(argv)
    assert "s3cret" not in str(flags)
    assert flags == {
        "max_num_seqs": "96", "enforce_eager": "true", "api_key": "(hidden)", "seed": "0", "hf_token": "(hidden)",
        "max_num_batched_tokens": "8192", "no_enable_prefix_caching": "true",
    }  # fmt: skip


def test_what_is_local() -> None:
    assert is_local("127.0.0.1")
    assert is_local("localhost")
    assert not is_local("192.0.2.1")  # TEST-NET-1: nobody's
    assert not is_local("no-such-host.invalid")


def test_the_command_line_of_a_local_server(serve) -> None:
    argv = server_command(serve("vllm").port)
    assert argv == [part.decode() for part in Path("/proc/self/cmdline").read_bytes().split(b"\0") if part]
    assert server_command(1) is None


def test_the_clock_of_a_server_an_hour_ahead() -> None:
    client = Client(parse_target("http://h", None))
    now = time.time()
    for _ in range(3):
        stamp = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now + 3600))
        client._note_date(stamp, now - 0.01, now)
    client._note_date("nonsense", now, now)
    client._note_date(None, now, now)
    clock = client.clock
    assert clock.answers == 3
    assert clock.offset_s_low is not None
    assert clock.offset_s_high is not None
    assert clock.offset_s_low <= 3600 <= clock.offset_s_high
    assert clock.offset_s_high - clock.offset_s_low <= 2.02


def test_one_recorder_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    with (
        recording_lock(tmp_path),
        pytest.raises(UsageError, match="another wavewise record"),
        recording_lock(tmp_path),
    ):
        pass
    with recording_lock(tmp_path):
        pass


def test_a_folder_without_or_with_a_foreign_run_file(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None
    assert read_run(tmp_path / "nowhere") is None
    for text, why in (
        ("{", "not a recording"),
        ('{"schema": "x"}', "not a recording"),
        ("[]", "not a recording"),
    ):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(InputError, match=why):
            read_run(tmp_path)


# ---------------------------------------------------------------------- traces


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("chunk", [1 << 20, 700, 97])
def test_markers_are_counted_once_wherever_chunks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, chunk: int
) -> None:
    monkeypatch.setattr(traces, "_CHUNK", chunk)
    for engine in ("vllm", "sglang"):
        data = trace_bytes(engine, [(0, 32)] * 11 + [(2, 30)] + [(1, 0)])
        file = tmp_path / (f"{engine}.json.gz" if packed else f"{engine}.json")
        file.write_bytes(data if packed else gzip.decompress(data))
        found = traces.inspect(file, "bs32.json.gz")
        assert (found.gpu, found.complete, found.base_time_ns) == (True, True, 1_780_000_000_000_000_000)
        counted = {(step.kind, step.batch_size): step.steps for step in found.steps}
        if engine == "vllm":
            assert counted == {("decode", 32): 11, ("mixed", 30): 1, ("prefill", 1): 1}
        else:
            assert counted == {("decode", 32): 11, ("extend", 2): 1, ("extend", 1): 1}


@pytest.mark.parametrize("keep", [0, 5, 40, 400, -9, -1])
def test_a_cut_trace_is_never_whole(tmp_path: Path, keep: int) -> None:
    data = trace_bytes("vllm", [(0, 8)] * 20)
    for name, content in (("a.json.gz", data), ("a.json", gzip.decompress(data))):
        file = tmp_path / name
        file.write_bytes(content[:keep])
        found = traces.inspect(file, name)
        assert not found.complete
        assert found.reason is not None


def test_what_a_cut_gzip_stream_still_holds_is_seen(tmp_path: Path) -> None:
    source = random.Random(3)
    events = [
        {
            "cat": "user_annotation",
            "name": f"execute_context_0(0)_generation_{size}({size})",
            "x": source.random(),
        }
        for size in [4] * 400
    ]
    text = json.dumps({"traceEvents": events}).replace('{"cat"', '\n{"ph": "X", "cat"')
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text.encode())[:-2000])
    (step,) = traces.inspect(tmp_path / "a.json.gz", "a").steps
    assert (step.kind, step.batch_size) == ("decode", 4)
    assert 100 < step.steps < 400


@pytest.mark.parametrize(
    "order", [("cat", "name"), ("name", "cat"), ("cat", "ph", "name"), ("name", "ph", "cat")]
)
def test_markers_in_any_order_of_their_keys(tmp_path: Path, order: tuple[str, ...]) -> None:
    rows = []
    for category in ("user_annotation", "gpu_user_annotation"):
        event = {"cat": category, "name": "step[DECODE bs=4]", "ph": "X"}
        rows += [{key: event[key] for key in order} | {"ts": 1}] * 3
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": rows}))
    assert [(s.kind, s.batch_size, s.steps) for s in traces.inspect(tmp_path / "a.json", "a").steps] == [
        ("decode", 4, 3)
    ]


def test_gzip_members_one_after_the_other_are_one_trace(tmp_path: Path) -> None:
    text = gzip.decompress(trace_bytes("vllm", [(0, 8)] * 20))
    half = len(text) // 2
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text[:half]) + gzip.compress(text[half:]))
    found = traces.inspect(tmp_path / "a.json.gz", "a")
    assert (found.complete, found.steps[0].steps) == (True, 20)


def test_long_markers_and_idle_steps(tmp_path: Path) -> None:
    names = [
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)",
        "execute_context_0(0)_generation_0(0)",
        "ProfilerStep#3",
    ]
    rows = [{"ph": "X", "cat": "user_annotation", "name": name} for name in names]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": rows}))
    found = traces.inspect(tmp_path / "a.json", "a")
    assert {(s.kind, s.batch_size, s.steps) for s in found.steps} == {("decode", 32, 1), ("idle", 0, 1)}
    assert not found.gpu
    assert exactly_held([found], 32)[0] is False
    assert exactly_held([], 32) == (None, "the trace names no engine steps")


def test_ranks_see_the_whole_batch_or_a_share_of_it() -> None:
    def trace(*steps: tuple[str, int]) -> TraceFile:
        counts = tuple(StepCount(kind=kind, batch_size=size, steps=9) for kind, size in steps)
        return TraceFile(file="f", source="s", bytes=1, complete=True, gpu=True, steps=counts)

    whole, half, quarter = trace(("decode", 8)), trace(("decode", 4)), trace(("decode", 2))
    assert exactly_held([whole, whole], 8) == (True, None)  # tensor parallel
    assert exactly_held([half, half], 8) == (True, None)  # data parallel
    assert exactly_held([half, quarter, quarter], 8) == (True, None)
    assert exactly_held([half, quarter], 8)[0] is False
    assert exactly_held([trace(("decode", 8), ("decode", 7))], 8)[0] is False
    assert exactly_held([trace(("mixed", 8))], 8) == (False, "the window holds other steps: 9 mixed of 8")


def test_only_files_of_the_window_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_SETTLE_S", 0.05)
    (tmp_path / "old.json").write_text("{}")
    before = traces.look(tmp_path)
    wait = traces.Wait(tmp_path, before, ranks=2)
    assert wait.ready() is None
    (tmp_path / "sub").mkdir()
    kernel = b'{"traceEvents": [{"cat": "kernel", "name": "k"}]}'
    (tmp_path / "host.async_llm.pt.trace.json.gz").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "sub" / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(kernel))
    (tmp_path / "notes.txt").write_text("x")
    wait.ready()
    time.sleep(0.1)
    assert wait.ready() is None, "two ranks are to write; one has, and a front end"
    (tmp_path / "sub" / "rank1.pt.trace.json.gz").write_bytes(gzip.compress(kernel)[:-3])
    wait.ready()
    time.sleep(0.1)
    assert wait.ready() is None, "the second is not whole"
    (tmp_path / "sub" / "rank1.pt.trace.json.gz").write_bytes(gzip.compress(kernel))
    wait.ready()
    time.sleep(0.1)
    ready = wait.ready()
    assert ready is not None
    assert [(file.file, file.gpu) for file in ready] == [
        ("host.async_llm.pt.trace.json.gz", False),
        ("rank0.pt.trace.json.gz", True),
        ("rank1.pt.trace.json.gz", True),
    ]


def test_a_plain_trace_is_packed_when_taken_over(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    traces.take(tmp_path / "a.json", tmp_path / "bs1.json.gz")
    assert gzip.decompress((tmp_path / "bs1.json.gz").read_bytes()) == b'{"traceEvents": []}'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "bs1.json.gz"]


def test_throttle_reasons_by_name() -> None:
    assert nvml.throttle_names(0) == "none"
    assert nvml.throttle_names(1) == "none", "an idle GPU is not throttled"
    assert nvml.throttle_names(0x4 | 0x40) == "power_cap+hw_thermal"


def test_a_file_gets_its_name_only_when_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order: contents synced, renamed, folder synced; a folder that cannot be synced is no error."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        done.append("folder" if is_folder else "file")
        if is_folder:
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    (tmp_path / "a.part").write_text("whole")
    folder.put_in_place(tmp_path / "a.part", tmp_path / "a")
    assert done == ["file", "renamed", "folder"]
    assert (tmp_path / "a").read_text() == "whole"
    assert not (tmp_path / "a.part").exists()
