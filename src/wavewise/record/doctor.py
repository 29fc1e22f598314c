"""What a server offers to a recording, what is missing, and the flag that fixes each."""

import asyncio
from pathlib import Path

from wavewise.findings.base import Result
from wavewise.record.client import Client, Target
from wavewise.record.engines import Counts, Engine, connect
from wavewise.record.host import is_local, server_command, without_key
from wavewise.record.model import Server

_GROWTH_TOKENS = 512  # what warm-up, measuring and the window add to a prompt, at least


class Check(Result, frozen=True, kw_only=True):
    """One thing looked at.

    Attributes:
        status: "ok", "note" (works, but mind it), "missing" (a recording lacks something without it) or
            "unknown" (the server does not say).
        fix: flag or action, None where nothing needs fixing.
    """

    name: str
    status: str
    finding: str
    fix: str | None = None


class Diagnosis(Result, frozen=True, kw_only=True):
    """All checks of one server."""

    url: str
    server: Server
    checks: tuple[Check, ...]


def examine(
    target: Target, engine: str, model: str | None, batches: tuple[int, ...], prompt_tokens: int
) -> Diagnosis:
    """Ask a server what it offers. Sends no load and starts no profiler.

    Args:
        target: the server.
        engine: its kind, or "auto".
        model: which of its models, None for its first.
        batches: the batch sizes that one wants to record.
        prompt_tokens: the prompt length that one has in mind.

    Raises:
        InputError: nothing there that could be recorded.
    """
    return asyncio.run(_examine(target, engine, model, batches, prompt_tokens))


def _ok(name: str, finding: str) -> Check:
    return Check(name=name, status="ok", finding=finding)


def _note(name: str, finding: str, fix: str | None = None) -> Check:
    return Check(name=name, status="note", finding=finding, fix=fix)


def _missing(name: str, finding: str, fix: str | None) -> Check:
    return Check(name=name, status="missing", finding=finding, fix=fix)


def _unknown(name: str, finding: str, fix: str | None = None) -> Check:
    return Check(name=name, status="unknown", finding=finding, fix=fix)


async def _examine(
    target: Target, engine_name: str, model: str | None, batches: tuple[int, ...], prompt_tokens: int
) -> Diagnosis:
    local = is_local(target.host)
    client = Client(target)
    try:
        engine = await connect(client, engine_name)
        argv = server_command(target.port) if local else None
        server = without_key(await engine.describe(model, argv), target.key)
        counts = await engine.counts()
    finally:
        await client.close()
    biggest = max(batches)
    checks = (
        _ok("server", f"{server.engine} {server.version or '(version unknown)'}, model {server.model}"),
        *_profiler(engine, server),
        *_trace_folder(engine, server, local),
        _metrics(engine, counts),
        _idle(counts),
        _graphs(server, biggest),
        _prefix_cache(server),
        _batch_limit(server, biggest),
        _room(server, biggest, prompt_tokens),
        _streaming(server),
        _telemetry(local),
    )
    return Diagnosis(url=target.url, server=server, checks=checks)


def _profiler(engine: Engine, server: Server) -> list[Check]:
    if not engine.can_profile:
        finding = f"{engine.name} has none that HTTP could start"
        return [_missing("profiler", finding, "record load and telemetry alone: --no-profile")]
    if server.profiler is None:
        return [_unknown("profiler", "the server does not say whether it has /start_profile")]
    if not server.profiler:
        return [_missing("profiler", "no /start_profile", f"start the server with {engine.turn_on_profiler}")]
    return [_ok("profiler", "/start_profile is there")]


def _trace_folder(engine: Engine, server: Server, local: bool) -> list[Check]:
    name, folder = "trace folder", server.profiler_dir
    if not engine.can_profile or server.profiler is False:
        return []
    if engine.chooses_folder:
        fix = "a folder both hosts see: --trace-dir, and --server-trace-dir if its name differs"
        return [
            _ok(name, "the recording chooses it") if local else _note(name, "the recording chooses it", fix)
        ]
    if folder is None:
        found = _unknown(name, "the server does not say where it writes traces", "name it with --trace-dir")
    elif local and (Path(folder).is_dir() or Path(folder).parent.is_dir()):
        found = _ok(name, folder)
    else:
        fix = "name the folder that this host sees with --trace-dir"
        found = _note(name, f"{folder}, as the server sees it", fix)
    if server.profiler_with_stack is False:
        return [found]
    stacks = "Python stacks may be recorded, which slows profiled steps and makes traces large"
    return [
        found,
        _note("profiler stacks", stacks, '"torch_profiler_with_stack": false in --profiler-config'),
    ]


def _metrics(engine: Engine, counts: Counts) -> Check:
    if counts.running is not None:
        return _ok("request count", "the server counts its running requests")
    finding = counts.reason or "the server does not count its requests"
    return _missing("request count", finding, engine.turn_on_metrics or None)


def _idle(counts: Counts) -> Check:
    if counts.running is None:
        return _unknown("idle", "the server does not count its requests")
    if busy := counts.running + (counts.waiting or 0):
        fix = "record when nobody else uses it, or wait with --wait-idle"
        return _note("idle", f"serves {busy} requests now", fix)
    return _ok("idle", "serves no requests now")


def _graphs(server: Server, biggest: int) -> Check:
    name, largest = "CUDA graphs", server.cuda_graph_max_batch
    if server.cuda_graphs is None:
        return _unknown(name, "the server does not say whether they are on")
    if not server.cuda_graphs:
        fix = "leave out --enforce-eager (vLLM) or --disable-cuda-graph (SGLang)"
        return _missing(name, "off: decode steps are bound by launches", fix)
    if largest is not None and largest < biggest:
        finding = f"captured up to batch {largest}: larger batches run without"
        return _note(
            name, finding, f"capture {biggest}: cudagraph_capture_sizes (vLLM), --cuda-graph-max-bs (SGLang)"
        )
    return _ok(name, f"on, captured up to batch {largest}" if largest else "on")


def _prefix_cache(server: Server) -> Check:
    name = "prefix caching"
    if server.prefix_caching is None:
        return _unknown(name, "the server does not say; prompts are random, so that none is shared")
    if server.prefix_caching:
        finding = "on; prompts are random, so that none is shared, but earlier ones fill the cache"
        fix = "--no-enable-prefix-caching (vLLM) or --disable-radix-cache (SGLang) for the cleanest prefill"
        return _note(name, finding, fix)
    return _ok(name, "off")


def _batch_limit(server: Server, biggest: int) -> Check:
    name = "batch limit"
    if server.max_batch is None:
        return _unknown(name, "the server does not say how many requests it runs at once")
    if server.max_batch < biggest:
        finding = f"{server.max_batch} requests at once, batch {biggest} does not fit"
        return _missing(
            name, finding, f"--max-num-seqs {biggest} (vLLM) or --max-running-requests {biggest} (SGLang)"
        )
    return _ok(name, f"{server.max_batch} requests at once")


def _room(server: Server, biggest: int, prompt_tokens: int) -> Check:
    name, each = "key/value memory", prompt_tokens + _GROWTH_TOKENS
    if server.max_model_len is not None and each > server.max_model_len:
        finding = (
            f"{server.max_model_len} tokens; {prompt_tokens} prompt tokens and the measured steps need {each}"
        )
        fix = "fewer --prompt-tokens, or --max-model-len (vLLM), --context-length (SGLang)"
        return _missing("context", finding, fix)
    if server.kv_tokens is None:
        return _unknown(name, "the server does not say how many tokens fit")
    fits = server.kv_tokens // each
    if fits < biggest:
        finding = f"{server.kv_tokens} tokens: {fits} requests of {each}, batch {biggest} does not fit"
        fix = (
            "fewer --prompt-tokens, or more: --gpu-memory-utilization (vLLM), --mem-fraction-static (SGLang)"
        )
        return _missing(name, finding, fix)
    return _ok(name, f"{server.kv_tokens} tokens: {fits} requests of {each}")


def _streaming(server: Server) -> Check:
    name, interval = "streaming", server.stream_interval
    if interval is None:
        return _unknown(name, "the server does not say its stream interval (usually 1)")
    if interval > 1:
        finding = f"sends every {interval} tokens: inter-token latency is averaged over them"
        return _note(name, finding, "--stream-interval 1")
    return _ok(name, "sends every token")


def _telemetry(local: bool) -> Check:
    name = "telemetry"
    if not local:
        fix = "run `python -m wavewise.record.telemetry --out telemetry.csv` there, then --telemetry telemetry.csv"
        return _note(name, "the server runs on another host", fix)
    from wavewise.record import nvml

    try:
        nvml.pynvml.nvmlInit()
        gpus = [nvml.Gpu(index).describe() for index in range(nvml.pynvml.nvmlDeviceGetCount())]
    except nvml.pynvml.NVMLError as error:
        finding = f"no NVIDIA GPU can be read here ({error})"
        return _missing(name, finding, "run on the GPU's host with its driver visible")
    if not gpus:
        return _missing(name, "this host has no NVIDIA GPU", "run on the GPU's host with its driver visible")
    first = gpus[0]
    if first.gpm:
        return _ok(name, f"{len(gpus)} x {first.name}, with performance metrics (GPM)")
    return _note(name, f"{len(gpus)} x {first.name}, without performance metrics: {first.gpm_reason}")
