"""What is settled before anything is sent: folders, limits, and the question to the user."""

from pathlib import Path

from wavewise.errors import InputError
from wavewise.record.batch import MEASURE_EVENTS, default_max_tokens
from wavewise.record.engines import Engine
from wavewise.record.model import Server
from wavewise.record.options import Options

OWN_TRACES = ".traces"
"""Where an engine that is told where to write writes, when nobody names a folder; emptied again."""


def check_limits(server: Server, engine: Engine, options: Options, sizes: list[int]) -> None:
    """Refuse what the server is known not to take, before anything is sent.

    Raises:
        InputError: with the limit and the flag that raises it.
    """
    biggest = max(sizes)
    if server.max_model_len is not None:
        needed = options.prompt_tokens + (
            options.max_tokens or options.warmup_steps + options.steps + 3 * MEASURE_EVENTS
        )
        if needed > server.max_model_len:
            raise InputError(
                f"{options.prompt_tokens} prompt tokens and the steps to measure need a "
                f"context of {needed}, the server has {server.max_model_len}; ask for "
                "fewer --prompt-tokens, or raise --max-model-len (vLLM) or "
                "--context-length (SGLang)"
            )
    if server.max_batch is not None and biggest > server.max_batch:
        raise InputError(
            f"batch {biggest} is beyond the server's limit of {server.max_batch} "
            "running requests; raise --max-num-seqs (vLLM) or "
            "--max-running-requests (SGLang), or ask for smaller --batches"
        )
    if server.kv_tokens is not None:
        each = options.prompt_tokens + min(
            default_max_tokens(engine, server, options),
            options.warmup_steps + options.steps + 3 * MEASURE_EVENTS,
        )
        if biggest * each > server.kv_tokens:
            raise InputError(
                f"batch {biggest} at {options.prompt_tokens} prompt tokens needs "
                f"{biggest * each} key/value tokens, the server has room for "
                f"{server.kv_tokens}; ask for smaller --batches or --prompt-tokens, or "
                "give it more memory (--gpu-memory-utilization, --mem-fraction-static)"
            )


def trace_folders(
    engine: Engine, server: Server, options: Options, local: bool
) -> tuple[Path | None, str | None]:
    """Where this host finds the traces, and where the server is told to write them (None: it knows).

    Raises:
        InputError: there is no profiler, or no folder that this host could look into.
    """
    url = engine.client.target.url
    if not options.profile:
        return None, None
    if not engine.can_profile or server.profiler is False:
        fix = engine.turn_on_profiler
        how = f"start it with {fix}, or use" if fix else "use"
        raise InputError(
            f"{url}: {engine.name} offers no profiler here (no "
            f"/start_profile); {how} --no-profile for load and telemetry alone"
        )
    if options.leave_traces:
        return None, options.server_trace_dir
    folder = options.trace_dir
    if folder is None and local:
        if engine.chooses_folder:
            folder = (options.out / OWN_TRACES).absolute()
        elif server.profiler_dir and "://" not in server.profiler_dir:
            folder = Path(server.profiler_dir)
    if folder is None:
        where = f" (the server writes to {server.profiler_dir})" if server.profiler_dir else ""
        raise InputError(
            f"{url}: cannot tell where this host finds the server's "
            f"traces{where}; name the folder with --trace-dir, or use "
            "--leave-traces or --no-profile"
        )
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be opened for traces ({error.strerror}); name the folder with --trace-dir"
        ) from error
    return folder, options.server_trace_dir or (str(folder) if engine.chooses_folder else None)


def question(server: Server, options: Options, url: str, sizes: list[int]) -> str:
    """What is asked before anything is sent."""
    profiled = (
        (f", and runs its profiler {len(sizes)} times, which stalls it for seconds each")
        if options.profile
        else ""
    )
    return (
        f"This sends up to {max(sizes)} requests of "
        f"{options.prompt_tokens} prompt tokens at once to "
        f"{url} ({server.model}){profiled}. Go on?"
    )
