"""`wavewise doctor`: what a server offers to a recording, and what would fix the rest."""

import os
from pathlib import Path
from typing import Annotated

import typer

from wavewise.errors import UsageError

_SIGN = {"ok": "ok", "note": "note", "missing": "MISSING", "unknown": "unknown"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(doctor)


def doctor(
    url: Annotated[str, typer.Argument(help="The server, like http://localhost:8000.")],
    engine: Annotated[
        str, typer.Option("--engine", help="vllm, sglang, tensorrt-llm, openai, or auto.")
    ] = "auto",
    model: Annotated[str | None, typer.Option("--model", help="Which of the server's models.")] = None,
    batches: Annotated[
        str, typer.Option("--batches", help="Batch sizes that you want to record.")
    ] = "1,8,16,32,64,96",
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", help="Prompt length in mind.")] = 4096,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the diagnosis to this file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable that holds the API key.")
    ] = "WAVEWISE_API_KEY",
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", help="Certificates to trust instead of the system's.")
    ] = None,
) -> None:
    """Ask a live server what it offers to `wavewise record`; sends no load, starts no profiler."""
    from wavewise.record.client import parse_target
    from wavewise.record.doctor import examine

    try:
        sizes = tuple(int(part) for part in batches.split(","))
    except ValueError:
        raise UsageError(
            f"--batches {batches!r}: give whole numbers with commas between, like 1,8,32"
        ) from None
    if json_file is not None and json_file.exists() and not force:
        raise UsageError(f"{json_file}: exists already; --force overwrites it")
    target = parse_target(url, os.environ.get(api_key_env) or None, ca_file)
    diagnosis = examine(target, engine, model, sizes, prompt_tokens)
    width = max(len(check.name) for check in diagnosis.checks)
    typer.echo(diagnosis.url)
    for check in diagnosis.checks:
        typer.echo(f"  {_SIGN[check.status]:7}  {check.name:{width}}  {check.finding}")
        if check.fix is not None:
            typer.echo(f"  {'':7}  {'':{width}}  -> {check.fix}")
    if json_file is not None:
        import msgspec

        temporary = json_file.with_name(f".{json_file.name}.tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n")
        temporary.replace(json_file)
