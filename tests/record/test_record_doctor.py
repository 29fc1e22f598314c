"""`wavewise doctor`: what is missing, with the flag that fixes it."""

import json
from pathlib import Path

import pytest
from record_fakes import Faults
from typer.testing import CliRunner

from wavewise.cli.app import build
from wavewise.errors import InputError
from wavewise.record.client import parse_target
from wavewise.record.doctor import Check, examine
from wavewise.record.engines.vllm import Vllm
from wavewise.record.model import Server


def checks(server, batches: tuple[int, ...] = (1, 96), prompt_tokens: int = 4096) -> dict[str, Check]:
    diagnosis = examine(
        parse_target(server.url, server.fake.faults.key), "auto", None, batches, prompt_tokens
    )
    return {check.name: check for check in diagnosis.checks}


def test_a_server_that_offers_everything(serve) -> None:
    found = checks(serve("sglang"))
    assert {name: check.status for name, check in found.items() if name not in ("telemetry", "prefix caching")} == {
        "server": "ok", "profiler": "ok", "trace folder": "ok", "request count": "ok", "idle": "ok",
        "CUDA graphs": "ok", "batch limit": "ok", "key/value memory": "ok", "streaming": "ok",
    }  # fmt: skip
    assert found["prefix caching"].status == "note"
    assert found["prefix caching"].fix is not None
    assert "--disable-radix-cache" in found["prefix caching"].fix


def test_nothing_is_loaded_or_profiled(serve) -> None:
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        server = serve(engine)
        checks(server)
        assert server.fake.bodies == []
        assert server.fake.profiles_written == 0
        assert {line.split()[0] for line in server.fake.log} == {"GET"}


def test_a_vllm_without_profiler_or_metrics(serve) -> None:
    found = checks(serve("vllm", Faults(no_profiler=True, no_metrics=True)))
    assert found["profiler"].status == "missing"
    assert "--profiler-config" in (found["profiler"].fix or "")
    assert found["request count"].status == "missing"
    assert "--disable-log-stats" in (found["request count"].fix or "")


def test_the_key_is_not_in_the_diagnosis(serve) -> None:
    server = serve("sglang", Faults(key="sk-very-secret", echo_key=True))
    diagnosis = examine(parse_target(server.url, "sk-very-secret"), "auto", None, (1,), 64)
    assert "sk-very-secret" not in str(diagnosis)
    assert "(hidden)" in diagnosis.server.flags["launch_command"]


def test_limits_and_room(serve) -> None:
    found = checks(serve("sglang", max_num_seqs=64))
    assert (found["batch limit"].status, found["batch limit"].fix) == (
        "missing",
        "--max-num-seqs 96 (vLLM) or --max-running-requests 96 (SGLang)",
    )
    found = checks(serve("vllm"), batches=(500,))
    assert found["key/value memory"].status == "missing"
    assert checks(serve("vllm", max_model_len=2048))["context"].status == "missing"
    assert checks(serve("sglang"), batches=(200,))["CUDA graphs"].status == "note"
    assert checks(serve("vllm", Faults(others=3)))["idle"].status == "note"


def test_an_engine_without_profiler(serve) -> None:
    found = checks(serve("tensorrt-llm"))
    assert (found["profiler"].status, found["profiler"].fix) == (
        "missing",
        "record load and telemetry alone: --no-profile",
    )


class Scripted:
    """Answers like a development-mode vLLM, without a network."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.target = parse_target("http://h:1", None)

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 0):
        from wavewise.record.client import Answer

        text = self.answers.get(f"{method} {path}")
        return Answer(404 if text is None else int(text) if text.isdigit() else 200, text or "", "")


ARGV = [
    "python3", "/usr/bin/vllm", "serve", "m", "--max-num-seqs=48", "-tp", "2", "--tensor-parallel-size", "2",
    "--enforce-eager", "--profiler-config", '{"profiler": "torch", "torch_profiler_dir": "/d"}',
    "--no-enable-prefix-caching", "--stream-interval", "4", "--api-key", "s3cret",
]  # fmt: skip
CONFIG = {
    "vllm_config": {
        "scheduler_config": {"max_num_seqs": 32, "stream_interval": 1},
        "parallel_config": {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "data_parallel_size": 1},
        "compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE", "cudagraph_capture_sizes": [1, 2, 32]},
        "profiler_config": {"torch_profiler_dir": "/traces", "torch_profiler_with_stack": True},
        "cache_config": {"enable_prefix_caching": True},
    }
}


async def described(argv: list[str] | None, config: bool) -> Server:
    answers = {
        "GET /v1/models": '{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}]}',
        "GET /version": '{"version": "0.26.0"}',
        "GET /metrics": "vllm:num_requests_running 0\n",
        "OPTIONS /start_profile": "405",
    }
    if config:
        answers["GET /server_info?config_format=json"] = json.dumps(CONFIG)
    return await Vllm(Scripted(answers)).describe(None, argv)  # type: ignore[arg-type]


def run(coroutine):
    import asyncio

    return asyncio.run(coroutine)


def test_vllm_by_its_command_line() -> None:
    server = run(described(ARGV, config=False))
    assert (server.max_batch, server.ranks, server.cuda_graphs, server.prefix_caching) == (
        48,
        2,
        False,
        False,
    )
    assert (server.profiler, server.profiler_dir, server.stream_interval) == (True, "/d", 4)
    assert server.flags["api_key"] == "(hidden)"
    assert "s3cret" not in str(server)
    assert server.flags_source == "command line"


def test_vllm_by_its_own_answers_which_win() -> None:
    server = run(described(ARGV, config=True))
    assert (server.max_batch, server.ranks, server.cuda_graphs, server.cuda_graph_max_batch) == (
        32,
        8,
        True,
        32,
    )
    assert (server.profiler_dir, server.profiler_with_stack, server.stream_interval) == ("/traces", True, 1)
    assert server.flags_source == "answers and command line"


def test_vllm_that_tells_nothing_is_unknown_not_guessed() -> None:
    server = run(described(None, config=False))
    told = (server.max_batch, server.ranks, server.cuda_graphs, server.prefix_caching, server.profiler_dir)
    assert told == (None,) * 5
    assert server.flags == {}


def test_the_command(serve, tmp_path: Path) -> None:
    server = serve("vllm", Faults(no_profiler=True))
    target = tmp_path / "doctor.json"
    runner, app = CliRunner(), build()
    done = runner.invoke(app, ["doctor", server.url, "--json", str(target)])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == server.url
    assert any(line.startswith("  MISSING  profiler") for line in lines)
    assert any("-> start the server with --profiler-config" in line for line in lines)
    assert json.loads(target.read_text())["server"]["engine"] == "vllm"
    assert runner.invoke(app, ["doctor", server.url, "--json", str(target)]).exception is not None
    assert runner.invoke(app, ["doctor", server.url, "--json", str(target), "--force"]).exit_code == 0


def test_not_a_server() -> None:
    with pytest.raises(InputError, match="no server answers there"):
        examine(parse_target("http://127.0.0.1:9", None), "auto", None, (1,), 16)
