"""`wavewise record`: load, trace and telemetry of a live server, in one folder."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from wavewise.errors import UsageError

_INTERRUPTED = 130  # 128 + SIGINT, what a shell expects


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("record")(record)


def record(
    url: Annotated[str, typer.Argument(help="The server, like http://localhost:8000.")],
    out: Annotated[Path, typer.Option("--out", help="Run folder; an unfinished recording there goes on.")],
    engine: Annotated[
        str, typer.Option("--engine", help="vllm, sglang, tensorrt-llm, openai, or auto.")
    ] = "auto",
    batches: Annotated[
        str, typer.Option("--batches", help="Requests to hold at once, one size after the other.")
    ] = "1,8,16,32,64,96",
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Length of every prompt.")] = 4096,
    steps: Annotated[int, typer.Option("--steps", help="Decode steps in each profiler window.")] = 12,
    model: Annotated[str | None, typer.Option("--model", help="Which of the server's models.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before load and profiler.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile/--no-profile", help="Without: load and telemetry alone.")
    ] = True,
    trace_dir: Annotated[
        Path | None, typer.Option("--trace-dir", help="Where this host finds the server's traces.")
    ] = None,
    server_trace_dir: Annotated[
        str | None, typer.Option("--server-trace-dir", help="The same folder as the server sees it (SGLang).")
    ] = None,
    leave_traces: Annotated[
        bool,
        typer.Option("--leave-traces", help="Profile, but leave the traces where the server writes them."),
    ] = False,
    move_traces: Annotated[
        bool, typer.Option("--move-traces", help="Remove the server's copies once they are taken over.")
    ] = False,
    telemetry: Annotated[
        str,
        typer.Option("--telemetry", help="auto, local, none, or a telemetry file from the server's host."),
    ] = "auto",
    gpus: Annotated[str | None, typer.Option("--gpus", help="Local GPUs to sample, like 0,1.")] = None,
    max_concurrency: Annotated[
        int | None, typer.Option("--max-concurrency", help="Refuse to send more requests at once.")
    ] = None,
    request_rate: Annotated[
        float | None, typer.Option("--request-rate", help="Most requests started per second.")
    ] = None,
    warmup_steps: Annotated[int, typer.Option("--warmup-steps", help="Steps before measuring.")] = 8,
    measure_seconds: Annotated[
        float, typer.Option("--measure-seconds", help="Un-profiled decoding before and behind the window.")
    ] = 1.5,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="Length cap of every request.")
    ] = None,
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable that holds the API key.")
    ] = "WAVEWISE_API_KEY",
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="Certificates to trust instead of the system's.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for a batch's first tokens.")
    ] = 600.0,
    stall_timeout: Annotated[
        float,
        typer.Option("--stall-timeout", help="Seconds of silence after which the server counts as stuck."),
    ] = 120.0,
    trace_timeout: Annotated[
        float, typer.Option("--trace-timeout", help="Seconds to wait for a complete trace.")
    ] = 300.0,
    wait_idle: Annotated[
        float, typer.Option("--wait-idle", help="Seconds to wait for requests of others to end.")
    ] = 30.0,
) -> None:
    """Hold decode batches on a live server; record traces, latency and GPU telemetry into one folder."""
    from wavewise.record.client import parse_target
    from wavewise.record.options import Options
    from wavewise.record.session import Interrupted
    from wavewise.record.session import record as run_recording

    options = Options(
        url=url,
        out=out,
        batches=_numbers("--batches", batches),
        engine=engine,
        model=model,
        prompt_tokens=prompt_tokens,
        steps=steps,
        warmup_steps=warmup_steps,
        measure_s=measure_seconds,
        max_tokens=max_tokens,
        profile=profile,
        trace_dir=trace_dir,
        server_trace_dir=server_trace_dir,
        leave_traces=leave_traces,
        move_traces=move_traces,
        telemetry=telemetry,
        gpus=_numbers("--gpus", gpus) if gpus else None,
        max_concurrency=max_concurrency,
        requests_per_s=request_rate,
        timeout_s=timeout,
        stall_s=stall_timeout,
        trace_timeout_s=trace_timeout,
        wait_idle_s=wait_idle,
        ca_file=ca_file,
    )
    target = parse_target(url, os.environ.get(api_key_env) or None, ca_file)
    try:
        run = run_recording(options, target, lambda question: yes or _ask(question), _say)
    except Interrupted as stopped:
        line = f"{stopped} in {out}; the profiler is stopped and the requests are cancelled. Run it again to go on."
        print(line, file=sys.stderr)
        raise typer.Exit(_INTERRUPTED) from None
    traced = any(batch.traces for batch in run.batches)
    count = f"{len(run.batches)} batch{'es' if len(run.batches) > 1 else ''}"
    without = "" if traced else ", without a trace: throughput and latency alone"
    _say(f"{count} in {out}{without}; next: wavewise analyze {out}")


def _say(line: str) -> None:
    print(line, flush=True)


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to confirm load and profiler on this server; --yes answers for you")
    # The recorder's event loop has taken SIGINT over, and would not be reached while this waits for a key.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        return False
    finally:
        signal.signal(signal.SIGINT, before)


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}: give whole numbers with commas between, like 1,8,32") from None
