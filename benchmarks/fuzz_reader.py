"""Damages real traces at random and reads them: no crash, no hang, same answer for the same bytes.

    python benchmarks/fuzz_reader.py TRACE [TRACE ...] [--minutes 10] [--seed 0] [--keep FOLDER] [--out RESULT.json]

Each round takes one trace, in one of several layouts, plain or packed, damages it in one to four places (one round
in five damages the packed bytes instead) and reads it four times: twice alike, in larger blocks, and with several
processes. It fails when the reader raises anything but its own errors, takes over ten seconds of processor time,
answers differently for the same bytes or for another number of processes, or loses more GPU operations than the
damage can account for. What fails is kept in FOLDER, to become a test.
"""

import argparse
import gzip
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from types import FrameType

import msgspec
import zstandard

from wavewise.errors import InputError, NothingToAnalyzeError
from wavewise.trace import Trace, read
from wavewise.trace.kineto import workers
from wavewise.trace.source import Limits

LAYOUTS = ("kineto", "one-line", "compact", "indented", "lines", "bare-list", "ndjson")
NASTY = (
    b"\0", b"\xff", b'"', b"\\", b"\n", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"inf", b"-", b".", b"e9",
    b"null", b'{"ph": "X"}', b"},\n  {\n", b"[rank0]:[W1129 Reducer.cpp:77] Warning: {x}, \"y\"\n", b"\xed\xa0\x80",
    b"\\ud83d", b'"traceEvents": [', b"]}", b"]}{", b"9" * 30, b"\xef\xbb\xbf", b"/* */", b"\r\n", b"  },\n",
)  # fmt: skip
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda text: gzip.compress(text, 1),
    "zstd": zstandard.ZstdCompressor(level=1).compress,
}
READS = ((1 << 14, 1), (1 << 14, 1), (2 << 20, 1), (1 << 14, 3))
"""Bytes per block, and processes."""
ENDINGS: Counter[str] = Counter()
"""How many reads ended with each warning, or error."""
EVENTS = 800  # of each trace: small texts make many rounds


class HangError(Exception):
    """A read that took too long."""


def main() -> int:
    """Runs rounds until the time is up; the number of failures."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    arguments.add_argument("traces", type=Path, nargs="+")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    arguments.add_argument("--out", type=Path, help="results, as JSON")
    given = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    signal.signal(signal.SIGPROF, _hang)
    sources = [(path, *_relaid(path)) for path in given.traces]
    scratch = given.keep
    scratch.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    rounds: Counter[str] = Counter()
    failures: list[str] = []
    while time.monotonic() < started + 60 * given.minutes:
        seed = given.seed + rounds.total()
        chance = random.Random(seed)
        path, layouts, whole = chance.choice(sources)
        layout, packing = chance.choice(LAYOUTS), chance.choice(list(PACKINGS))
        text, places, cut = layouts[layout], 0, False
        packed_too = packing != "plain" and chance.random() < 0.2
        if not packed_too:
            text, places, cut = _damage(text, chance)
        data = PACKINGS[packing](text)
        if packed_too:  # what is left of it, nobody can say
            data, places, cut = *_damage(data, chance)[:2], True
        problem = _problem(data, places, cut, whole, scratch / f"now-{given.seed}.json")
        rounds[f"{layout}, {packing}{', packing damaged' if packed_too else ''}"] += 1
        if problem:
            kept = scratch / f"seed{seed}-{path.stem.split('.')[0]}-{layout}-{packing}.json"
            kept.write_bytes(data)
            failures.append(f"seed {seed} {path.name} {layout} {packing}: {problem}")
            print(f"FAIL {failures[-1]} (kept as {kept})", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{rounds.total()} rounds, {len(failures)} failures, peak {peak} MiB")
    if given.out:
        result = {
            "date": time.strftime("%Y-%m-%d"),
            "minutes": round((time.monotonic() - started) / 60, 1),
            "traces": [path.name for path in given.traces],
            "seed": given.seed,
            "rounds": rounds.total(),
            "rounds_by_kind": dict(sorted(rounds.items())),
            "reads": rounds.total() * len(READS),
            "endings": dict(sorted(ENDINGS.items())),
            "failures": failures,
            "peak_mib": peak,
        }
        given.out.write_text(json.dumps(result, indent=1) + "\n")
    return min(len(failures), 1)


def _hang(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    raise HangError


def _relaid(path: Path) -> tuple[dict[str, bytes], int]:
    """The text of a trace in every layout, and its GPU operations."""
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    document = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    events = _busiest(msgspec.json.decode(document.pop("traceEvents"), type=list[msgspec.Raw]))
    head = (
        b"{"
        + b", ".join(b'"%b": %b' % (k.encode(), bytes(v)) for k, v in document.items())
        + b', "traceEvents": '
    )
    each = [msgspec.json.format(event, indent=-1) for event in events]
    spaced = [msgspec.json.format(event, indent=0) for event in events]
    texts = {
        "kineto": _kineto(head, events),
        "one-line": head + b"[" + b", ".join(spaced) + b"]}",
        "compact": head + b"[" + b",".join(each) + b"]}",
        "indented": msgspec.json.format(head + b"[" + b",".join(each) + b"]}", indent=4),
        "lines": head + b"[\n" + b",\n".join(spaced) + b"\n]}",
        "bare-list": b"[" + b",\n".join(spaced) + b"]",
        "ndjson": b"\n".join(each),
    }
    counts: set[int] = set()
    with tempfile.NamedTemporaryFile(suffix=".json") as scratch:
        for text in texts.values():
            Path(scratch.name).write_bytes(text)
            counts.add(sum(len(trace.operations) for trace in read(scratch.name)))
    if len(counts) != 1:
        raise SystemExit(f"{path}: the layouts do not agree before any damage: {counts}")
    return texts, counts.pop()


def _busiest(events: list[msgspec.Raw]) -> list[msgspec.Raw]:
    """The stretch of EVENTS events of which nearest to half are kernels."""
    kernels = [0, *accumulate(b'"kernel"' in bytes(event) for event in events)]
    ends = range(min(EVENTS, len(events)), len(events) + 1)
    end = min(ends, key=lambda end: abs(kernels[end] - kernels[max(0, end - EVENTS)] - EVENTS // 2))
    return events[max(0, end - EVENTS) : end]


def _kineto(head: bytes, events: list[msgspec.Raw]) -> bytes:
    out = []
    for raw in events:
        event = {
            key: bytes(value) for key, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items()
        }
        args, times = event.pop("args", None), [event.pop(key, None) for key in ("ts", "dur")]
        first = ", ".join(f'"{key}": {value.decode()}' for key, value in event.items())
        text = f'  {{\n    {first},\n    "ts": {(times[0] or b"0").decode()}'
        text += f', "dur": {times[1].decode()}' if times[1] else ""
        if args:
            inner = msgspec.json.format(args, indent=0).decode()[1:-1]
            text += f',\n    "args": {{\n      {inner}\n    }}'
        out.append(text + "\n  }")
    return head + b"[\n" + ",\n".join(out).encode() + b'\n  ],\n  "traceName": "x"\n}'


def _damage(text: bytes, chance: random.Random) -> tuple[bytes, int, bool]:
    """Damaged text, in how many places, and whether its end was cut off."""
    data = bytearray(text)
    start = max(0, data.find(b'"traceEvents"')) + 16
    places = chance.randint(1, 4)
    cut = False
    for _ in range(places):
        at = chance.randrange(start, max(start + 1, len(data)))
        kind = chance.randrange(7)
        if kind == 0:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[at : at + chance.choice((1, 2, 5, 40, 300))]
        elif kind == 2:
            data[at:at] = chance.choice(NASTY)
        elif kind == 3:
            data[at : at + 1] = chance.choice(NASTY)
        elif kind == 4:
            piece = data[at : at + chance.choice((3, 30, 300))]
            data[at:at] = piece
        elif kind == 5:
            other = chance.randrange(start, max(start + 1, len(data)))
            data[at : at + 8], data[other : other + 8] = data[other : other + 8], data[at : at + 8]
        elif chance.random() < 0.3:
            del data[at:]
            cut = True
    return bytes(data), places, cut


def _problem(text: bytes, places: int, cut: bool, whole: int, path: Path) -> str | None:
    """What is wrong with how the reader takes `text`, None where nothing is."""
    path.write_bytes(text)
    answers: list[object] = []
    for block, processes in READS:
        workers._processes = lambda _, processes=processes: processes  # however small it is
        try:
            signal.setitimer(signal.ITIMER_PROF, 10)
            traces = read(path, limits=replace(Limits(), block_bytes=block))
            signal.setitimer(signal.ITIMER_PROF, 0)
        except (InputError, NothingToAnalyzeError) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            answers.append(str(error))
            ENDINGS[type(error).__name__] += 1
            if "\n" in str(error):
                return f"an error of more than one line: {error!r}"
            continue
        except HangError:
            return "took over ten seconds"
        except MemoryError:
            return "ran out of memory"
        except Exception:  # that is what this looks for
            signal.setitimer(signal.ITIMER_PROF, 0)
            return traceback.format_exc(limit=-3).replace("\n", " | ")
        answers.append(_answer(traces))
        ENDINGS.update({warning.code for trace in traces for warning in trace.warnings} or ["no warning"])
        lost = whole - sum(len(trace.operations) for trace in traces)
        if not cut and lost > 12 * places:
            return f"lost {lost} of {whole} operations to {places} places ({[w.code for w in traces[0].warnings]})"
        if lost and not any(trace.warnings for trace in traces) and lost > 2 * places:
            return f"lost {lost} operations without a word"
    if answers[0] != answers[1]:
        return "another answer for the same bytes"
    if answers[0] != answers[3]:
        return "another answer for another number of processes"
    return None


def _answer(traces: list[Trace]) -> object:
    return [
        (
            *(hash(frame.write_csv()) for frame in (trace.operations, trace.rejected, trace.launches, trace.markers)),
            [(warning.code, warning.count) for warning in trace.warnings],
            trace.events_read, trace.rank, trace.metadata, trace.devices,
        )
        for trace in traces
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
