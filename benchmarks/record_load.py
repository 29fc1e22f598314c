"""How many streams the load generator holds on one core, and how well it keeps time.

    python benchmarks/record_load.py [--streams 1024] [--step-ms 50] [--seconds 10] [--json FILE]

A server process sends every stream one vLLM-shaped chunk per step and notes when it did; the client process,
pinned to one core, holds the streams with `wavewise.record.streams.Load`. Printed: events per second, CPU share,
and inter-token latency as the client saw it beside the server's own step times.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

from wavewise.record.client import parse_target
from wavewise.record.engines.vllm import Vllm
from wavewise.record.latency import measure
from wavewise.record.streams import Limits, Load

CHUNK = (
    b'data: {"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion","created":1764460000,'
    b'"model":"m","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null,"stop_reason":null}],'
    b'"usage":{"prompt_tokens":4096,"total_tokens":%d,"completion_tokens":%d}}\n\n'
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Sender(asyncio.Protocol):
    """One stream of the server; takes part once its request's head has come."""

    everyone: "set[Sender]" = set()  # noqa: RUF012 - shared on purpose

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.count = transport, 0

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        if self not in self.everyone:
            self.transport.write(HEAD)
            self.everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.everyone.discard(self)


def serve(pipe: Connection, step_s: float) -> None:
    """The server process: says its port, steps until told to stop, answers with the times of its steps."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Sender, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        times: list[float] = []
        due = time.perf_counter()
        while not pipe.poll():
            due = max(due + step_s, time.perf_counter())
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            times.append(time.time())
            for sender in list(Sender.everyone):
                sender.count += 1
                chunk = CHUNK % (4096 + sender.count, sender.count)
                sender.transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        pipe.send(times)

    os.sched_setaffinity(0, {0})
    asyncio.run(run())


async def hold(port: int, streams: int, seconds: float) -> dict[str, float]:
    """Hold the streams; what was seen in the last `seconds`."""
    target = parse_target(f"http://127.0.0.1:{port}", None)
    read = Vllm(None).read_event  # type: ignore[arg-type] - reading asks nothing of a server
    async with Load(target, "/v1/completions", [b"{}"] * streams, read, Limits()) as load:
        await load.start()
        await load.until(lambda: load.decoding == streams, 60, "first tokens")
        begin, cpu, lags = time.perf_counter(), time.process_time(), []
        while time.perf_counter() - begin < seconds:
            asked = time.perf_counter()
            await asyncio.sleep(0.01)
            lags.append(time.perf_counter() - asked - 0.01)
            load.check()
        end = time.perf_counter()
        cpu = time.process_time() - cpu
    seen = measure(load.streams, begin, end, time.time() - time.perf_counter())
    assert seen is not None
    lags.sort()
    events = sum(sum(1 for at in stream.times if begin <= at < end) for stream in load.streams)
    return {
        "streams_held": float(seen.streams),
        "events_per_s": events / (end - begin),
        "cpu_share_of_one_core": cpu / (end - begin),
        "cpu_us_per_event": cpu / events * 1e6,
        "loop_lag_ms_p50": lags[len(lags) // 2] * 1e3,
        "loop_lag_ms_p99": lags[int(len(lags) * 0.99)] * 1e3,
        "inter_token_ms_mean": seen.inter_token_ms_mean,
        "inter_token_ms_p50": seen.inter_token_ms_p50,
        "inter_token_ms_p99": seen.inter_token_ms_p99,
        "tokens_per_event": seen.tokens_per_event,
        "begin_unix_s": seen.start_unix_s,
        "end_unix_s": seen.end_unix_s,
    }


def main() -> None:
    """Measure once and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=1024)
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, options.step_ms / 1e3))
    server.start()
    port = ours.recv()
    os.sched_setaffinity(0, {os.cpu_count() - 1 if os.cpu_count() else 0})
    found = asyncio.run(hold(port, options.streams, options.seconds))
    ours.send("stop")
    steps = [at for at in ours.recv() if found["begin_unix_s"] <= at < found["end_unix_s"]]
    server.join()
    gaps = sorted((b - a) * 1e3 for a, b in pairwise(steps))
    found |= {
        "server_step_ms_mean": statistics.fmean(gaps),
        "server_step_ms_p50": statistics.median(gaps),
        "server_step_ms_p99": gaps[int(len(gaps) * 0.99)],
    }
    result = {
        "streams": options.streams,
        "step_ms": options.step_ms,
        **{k: round(v, 3) for k, v in found.items()},
    }
    del result["begin_unix_s"], result["end_unix_s"]
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
