"""vLLM's OpenAI server.

Routes and fields as in vllm/entrypoints (0.26 and 0.33): /v1/completions with `ignore_eos` and
`continuous_usage_stats`, /start_profile and /stop_profile (only with a profiler configured; a body with
`profile_prefix` and `max_iterations` is honoured by 0.33 and ignored by 0.26), /metrics, /version, and
/server_info in development mode. https://github.com/vllm-project/vllm/tree/main/vllm/entrypoints
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from wavewise.record.advice import VLLM_PROFILER
from wavewise.record.engines.base import (
    PROFILE_START_TIMEOUT_S,
    PROFILE_STOP_TIMEOUT_S,
    Counts,
    Prompt,
    as_bool,
    as_int,
    get_json,
    profiler_failed,
)
from wavewise.record.engines.openai import OpenAi
from wavewise.record.host import hide_secrets
from wavewise.record.metrics import parse_metrics, total
from wavewise.record.model import Server

_STEPS_TO_SPARE = 64
_RUNNING = "vllm:num_requests_running"


class Vllm(OpenAi):
    """`vllm serve`."""

    name: ClassVar[str] = "vllm"
    can_profile: ClassVar[bool] = True
    takes_token_ids: ClassVar[bool] = True
    turn_on_profiler: ClassVar[str] = VLLM_PROFILER
    turn_on_metrics: ClassVar[str] = "leave out --disable-log-stats"

    async def describe(self, model: str | None, argv: Sequence[str] | None) -> Server:
        """From /v1/models, /version, /metrics, /server_info if it is on, the command line if it is seen."""
        plain = await super().describe(model, argv)
        samples = parse_metrics((await self.client.ask("GET", "/metrics")).text)
        info = samples.get("vllm:cache_config_info")
        cache = dict(info[0][0]) if info else {}
        answered = await get_json(self.client, "/server_info?config_format=json")
        config = _flat(answered.get("vllm_config")) if isinstance(answered, dict) else {}
        seen = argv is not None and any("vllm" in word.lower() for word in argv)
        flags = _with_json_options(plain.flags) if seen else {}
        blocks, block = as_int(cache.get("num_gpu_blocks")), as_int(cache.get("block_size"))
        sources = [name for name, there in (("answers", config), ("command line", seen)) if there]
        return Server(
            engine=self.name,
            version=plain.version,
            model=plain.model,
            models=plain.models,
            profiler=await self.profiler_offered(),
            profiler_dir=_first(
                config, "profiler_config.torch_profiler_dir", flags, "profiler_config.torch_profiler_dir"
            ),
            profiler_with_stack=as_bool(
                _first(
                    config,
                    "profiler_config.torch_profiler_with_stack",
                    flags,
                    "profiler_config.torch_profiler_with_stack",
                )
            ),
            metrics=bool(samples),
            max_model_len=plain.max_model_len,
            max_batch=as_int(_first(config, "scheduler_config.max_num_seqs", flags, "max_num_seqs")),
            kv_tokens=blocks * block if blocks and block else None,
            ranks=_ranks(config, flags),
            prefix_caching=_prefix_caching(cache, flags),
            cuda_graphs=_cuda_graphs(config, flags, seen),
            cuda_graph_max_batch=_largest_graph(config, flags),
            stream_interval=as_int(
                _first(config, "scheduler_config.stream_interval", flags, "stream_interval")
            ),
            flags=hide_secrets({**{k: v for k, v in config.items() if _telling(k)}, **flags}),
            flags_source=" and ".join(sources) or None,
        )

    async def unlisted_models(self) -> list[dict[str, Any]]:
        """The name that its gauges carry."""
        samples = parse_metrics((await self.client.ask("GET", "/metrics")).text)
        named = {labels.get("model_name") for labels, _ in samples.get(_RUNNING, ())}
        return [{"id": name} for name in sorted(filter(None, named))]

    def request(self, model: str, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        """With a count in every chunk, and no stop at the end-of-sequence token."""
        return super().request(model, prompt, max_tokens) | {
            "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    async def counts(self) -> Counts:
        """The scheduler's gauges, summed over data-parallel engines."""
        answer = await self.client.ask("GET", "/metrics")
        samples = parse_metrics(answer.text) if answer.status == 200 else {}
        running = total(samples, _RUNNING)
        if running is None:
            return Counts(reason=f"/metrics has no {_RUNNING} ({self.turn_on_metrics})")
        return Counts(running, total(samples, "vllm:num_requests_waiting"))

    async def start_profiler(self, steps: int, folder: str | None, label: str) -> None:  # noqa: ARG002
        """Open the window; newer servers close it themselves should this recorder die."""
        body = {"profile_prefix": label, "max_iterations": steps + _STEPS_TO_SPARE}
        answer = await self.client.ask("POST", "/start_profile", body, PROFILE_START_TIMEOUT_S)
        url = self.client.target.url
        if answer.status == 404:
            raise profiler_failed(
                answer, url, f"start vLLM with {self.turn_on_profiler}, or use --no-profile"
            )
        if answer.status == 409:
            raise profiler_failed(
                answer, url, "someone else profiles this server; wait, or POST /stop_profile yourself"
            )
        if answer.status != 200:
            raise profiler_failed(answer, url, "the server's log says why; is its profiler running already?")

    async def stop_profiler(self) -> None:
        """Close the window; vLLM answers when the trace is written."""
        await self.client.ask("POST", "/stop_profile", None, PROFILE_STOP_TIMEOUT_S)


def _flat(config: object, prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted names."""
    if isinstance(config, dict):
        flat: dict[str, str] = {}
        for name, value in config.items():
            flat |= _flat(value, f"{prefix}{name}.")
        return flat
    return {prefix.rstrip("."): config if isinstance(config, str) else json.dumps(config)}


def _with_json_options(flags: dict[str, str]) -> dict[str, str]:
    """Options that carry a JSON object (`--profiler-config '{...}'`) also as dotted names."""
    dotted: dict[str, str] = {}
    for name, value in flags.items():
        if value.startswith("{"):
            try:
                dotted |= _flat(json.loads(value), f"{name}.")
            except ValueError:
                continue
    return {**dotted, **flags}


def _first(config: dict[str, str], config_name: str, flags: dict[str, str], flag: str) -> str | None:
    value = config.get(config_name, flags.get(flag))
    return None if value in (None, "", "null") else value


def _ranks(config: dict[str, str], flags: dict[str, str]) -> int | None:
    if not config and not flags:
        return None
    product = 1
    for part, short in (
        ("tensor_parallel_size", "tp"),
        ("pipeline_parallel_size", "pp"),
        ("data_parallel_size", "dp"),
    ):
        value = config.get(f"parallel_config.{part}", flags.get(part, flags.get(short)))
        product *= as_int(value) or 1
    return product


def _prefix_caching(cache: dict[str, str], flags: dict[str, str]) -> bool | None:
    if "enable_prefix_caching" in cache:
        return as_bool(cache["enable_prefix_caching"])
    if "no_enable_prefix_caching" in flags:
        return False
    return True if "enable_prefix_caching" in flags else None


def _cuda_graphs(config: dict[str, str], flags: dict[str, str], command_seen: bool) -> bool | None:
    mode = config.get("compilation_config.cudagraph_mode")
    if mode is not None:
        return mode.upper() not in ("NONE", "0")
    if as_bool(flags.get("enforce_eager", "false")):
        return False
    return True if command_seen else None


def _largest_graph(config: dict[str, str], flags: dict[str, str]) -> int | None:
    name = "compilation_config.cudagraph_capture_sizes"
    try:
        return max(json.loads(config.get(name) or flags.get(name) or "[]"))
    except ValueError:
        return None


def _telling(name: str) -> bool:
    """The settings of /server_info that a reader of a recording asks for; the whole is hundreds of lines."""
    section, _, _ = name.partition(".")
    return (
        section
        in (
            "model_config",
            "scheduler_config",
            "parallel_config",
            "cache_config",
            "profiler_config",
            "speculative_config",
            "compilation_config",
        )
        and name.count(".") == 1
    )
