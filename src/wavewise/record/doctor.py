"""What a server offers to a recording, what is missing, and the flag that fixes each."""

import asyncio
from pathlib import Path

from wavewise.findings.base import Result
from wavewise.record.client import Client, Target
from wavewise.record.engines import Counts, Engine, connect
from wavewise.record.host import is_local, server_command
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


async def _examine(
    target: Target, engine_name: str, model: str | None, batches: tuple[int, ...], prompt_tokens: int
) -> Diagnosis:
    local = is_local(target.host)
    client = Client(target)
    try:
        engine = await connect(client, engine_name)
        argv = server_command(target.port) if local else None
        server = await engine.describe(model, argv)
        counts = await engine.counts()
    finally:
        await client.close()
    biggest = max(batches)
    checks = [
        Check(
            name="server",
            status="ok",
            finding=(f"{server.engine} {server.version or '(version unknown)'}, model {server.model}"),
        ),
        *_profiler(engine, server, local),
        _metrics(engine, counts),
        _idle(counts),
        _graphs(server, biggest),
        _prefix_cache(server),
        _batch_limit(server, biggest),
        _room(server, biggest, prompt_tokens),
        _streaming(server),
        _telemetry(local),
    ]
    return Diagnosis(url=target.url, server=server, checks=tuple(checks))


def _profiler(engine: Engine, server: Server, local: bool) -> list[Check]:
    if not engine.can_profile:
        return [
            Check(
                name="profiler",
                status="missing",
                finding=f"{engine.name} has none that HTTP could start",
                fix="record load and telemetry alone: --no-profile",
            )
        ]
    if server.profiler is False:
        return [
            Check(
                name="profiler",
                status="missing",
                finding="no /start_profile",
                fix=f"start the server with {engine.turn_on_profiler}",
            )
        ]
    checks = [
        Check(
            name="profiler",
            status="ok" if server.profiler else "unknown",
            finding="/start_profile is there"
            if server.profiler
            else "the server does not say whether it has /start_profile",
        )
    ]
    if engine.chooses_folder:
        fix = (
            None
            if local
            else ("a folder both hosts see: --trace-dir, and --server-trace-dir if its name differs")
        )
        return [
            *checks,
            Check(
                name="trace folder",
                status="ok" if local else "note",
                finding="the recording chooses it",
                fix=fix,
            ),
        ]
    folder = server.profiler_dir
    if folder is None:
        checks.append(
            Check(
                name="trace folder",
                status="unknown",
                finding="the server does not say where it writes traces",
                fix="name it with --trace-dir",
            )
        )
    elif local and (Path(folder).is_dir() or Path(folder).parent.is_dir()):
        checks.append(Check(name="trace folder", status="ok", finding=folder))
    else:
        checks.append(
            Check(
                name="trace folder",
                status="note",
                finding=f"{folder}, as the server sees it",
                fix="name the folder that this host sees with --trace-dir",
            )
        )
    if server.profiler_with_stack is not False:
        checks.append(
            Check(
                name="profiler stacks",
                status="note",
                finding=("Python stacks are recorded, which slows profiled steps and makes traces large"),
                fix='"torch_profiler_with_stack": false in --profiler-config',
            )
        )
    return checks


def _metrics(engine: Engine, counts: Counts) -> Check:
    if counts.running is not None:
        return Check(name="request count", status="ok", finding="the server counts its running requests")
    return Check(
        name="request count",
        status="missing",
        finding=counts.reason or "the server does not count its requests",
        fix=engine.turn_on_metrics or None,
    )


def _idle(counts: Counts) -> Check:
    if counts.running is None:
        return Check(name="idle", status="unknown", finding="the server does not count its requests")
    busy = counts.running + (counts.waiting or 0)
    if busy:
        return Check(
            name="idle",
            status="note",
            finding=f"serves {busy} requests now",
            fix="record when nobody else uses it, or wait with --wait-idle",
        )
    return Check(name="idle", status="ok", finding="serves no requests now")


def _graphs(server: Server, biggest: int) -> Check:
    if server.cuda_graphs is None:
        return Check(
            name="CUDA graphs", status="unknown", finding="the server does not say whether they are on"
        )
    if not server.cuda_graphs:
        return Check(
            name="CUDA graphs",
            status="missing",
            finding="off: decode steps are bound by launches",
            fix="leave out --enforce-eager (vLLM) or --disable-cuda-graph (SGLang)",
        )
    largest = server.cuda_graph_max_batch
    if largest is not None and largest < biggest:
        return Check(
            name="CUDA graphs",
            status="note",
            finding=f"captured up to batch {largest}: larger batches run without",
            fix=(
                f"capture up to {biggest}: --cuda-graph-sizes or "
                "cudagraph_capture_sizes (vLLM), --cuda-graph-max-bs (SGLang)"
            ),
        )
    return Check(
        name="CUDA graphs",
        status="ok",
        finding="on" + (f", captured up to batch {largest}" if largest else ""),
    )


def _prefix_cache(server: Server) -> Check:
    if server.prefix_caching is None:
        return Check(
            name="prefix caching",
            status="unknown",
            finding="the server does not say; prompts are random, so that none is shared",
        )
    if server.prefix_caching:
        return Check(
            name="prefix caching",
            status="note",
            finding=("on; prompts are random, so that none is shared, but earlier ones fill the cache"),
            fix=(
                "--no-enable-prefix-caching (vLLM) or --disable-radix-cache (SGLang) for the cleanest prefill"
            ),
        )
    return Check(name="prefix caching", status="ok", finding="off")


def _batch_limit(server: Server, biggest: int) -> Check:
    if server.max_batch is None:
        return Check(
            name="batch limit",
            status="unknown",
            finding="the server does not say how many requests it runs at once",
        )
    if server.max_batch < biggest:
        return Check(
            name="batch limit",
            status="missing",
            finding=f"{server.max_batch} requests at once, batch {biggest} does not fit",
            fix=(f"--max-num-seqs {biggest} (vLLM) or --max-running-requests {biggest} (SGLang)"),
        )
    return Check(name="batch limit", status="ok", finding=f"{server.max_batch} requests at once")


def _room(server: Server, biggest: int, prompt_tokens: int) -> Check:
    each = prompt_tokens + _GROWTH_TOKENS
    if server.max_model_len is not None and each > server.max_model_len:
        return Check(
            name="context",
            status="missing",
            finding=(
                f"{server.max_model_len} tokens, {prompt_tokens} prompt tokens and the "
                f"measured steps need {each}"
            ),
            fix=("fewer --prompt-tokens, or --max-model-len (vLLM), --context-length (SGLang)"),
        )
    if server.kv_tokens is None:
        return Check(
            name="key/value memory", status="unknown", finding="the server does not say how many tokens fit"
        )
    fits = server.kv_tokens // each
    if fits < biggest:
        return Check(
            name="key/value memory",
            status="missing",
            finding=(f"{server.kv_tokens} tokens: {fits} requests of {each}, batch {biggest} does not fit"),
            fix=(
                "fewer --prompt-tokens, or more memory: --gpu-memory-utilization "
                "(vLLM), --mem-fraction-static (SGLang)"
            ),
        )
    return Check(
        name="key/value memory", status="ok", finding=f"{server.kv_tokens} tokens: {fits} requests of {each}"
    )


def _streaming(server: Server) -> Check:
    if server.stream_interval is not None and server.stream_interval > 1:
        return Check(
            name="streaming",
            status="note",
            finding=(
                f"sends every {server.stream_interval} tokens: inter-token latency is averaged over them"
            ),
            fix="--stream-interval 1",
        )
    return Check(
        name="streaming",
        status="ok" if server.stream_interval else "unknown",
        finding="sends every token"
        if server.stream_interval
        else "the server does not say its stream interval (usually 1)",
    )


def _telemetry(local: bool) -> Check:
    if not local:
        return Check(
            name="telemetry",
            status="note",
            finding="the server runs on another host",
            fix=(
                "run `python -m wavewise.record.telemetry --out telemetry.csv` there, "
                "then --telemetry telemetry.csv"
            ),
        )
    from wavewise.record import nvml

    def problem(error: Exception) -> Check:
        return Check(
            name="telemetry",
            status="missing",
            finding=f"no NVIDIA GPU can be read here ({error})",
            fix="run on the GPU's host with its driver visible",
        )

    try:
        nvml.pynvml.nvmlInit()
        gpus = [nvml.Gpu(index).describe() for index in range(nvml.pynvml.nvmlDeviceGetCount())]
    except nvml.pynvml.NVMLError as error:
        return problem(error)
    if not gpus:
        return problem(RuntimeError("none found"))
    first = gpus[0]
    gpm = (
        "with performance metrics (GPM)" if first.gpm else f"without performance metrics: {first.gpm_reason}"
    )
    return Check(
        name="telemetry", status="ok" if first.gpm else "note", finding=f"{len(gpus)} x {first.name}, {gpm}"
    )
