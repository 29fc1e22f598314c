"""Which engine answers at a URL, found from its answers."""

from wavewise.errors import InputError, UsageError
from wavewise.record.client import Client
from wavewise.record.engines.base import Counts as Counts
from wavewise.record.engines.base import Engine as Engine
from wavewise.record.engines.openai import OpenAi, TensorRtLlm, model_cards
from wavewise.record.engines.sglang import Sglang, server_info
from wavewise.record.engines.vllm import Vllm
from wavewise.record.metrics import parse_metrics

ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (Vllm, Sglang, TensorRtLlm, OpenAi)}
_OWNERS = {"vllm": Vllm, "sglang": Sglang, "tensorrt_llm": TensorRtLlm}  # `owned_by` in /v1/models


async def connect(client: Client, engine: str) -> Engine:
    """The engine at a URL.

    Args:
        client: asks the server.
        engine: a name of `ENGINES`, or "auto".

    Raises:
        UsageError: no such engine.
        InputError: nothing there that generates text.
    """
    if engine != "auto":
        if engine not in ENGINES:
            raise UsageError(f"--engine {engine!r}: choose auto, {', '.join(ENGINES)}")
        return ENGINES[engine](client)
    probe = OpenAi(client)
    cards = await model_cards(probe)
    for card in cards:
        if card.get("owned_by") in _OWNERS:
            return _OWNERS[card["owned_by"]](client)
    if await server_info(probe) is not None:
        return Sglang(client)
    if by_metrics := await _by_metrics(client):
        return by_metrics(client)
    if cards:
        return probe
    health = await client.ask("GET", "/health")
    if health.status == 503:
        raise InputError(
            f"{client.target.url}: the server is not ready (503); wait until it has loaded its model"
        )
    raise InputError(
        f"{client.target.url}: answers, but not like an LLM server (no "
        "/v1/models, no /server_info); is the port right? --engine skips this "
        "check"
    )


async def _by_metrics(client: Client) -> type[Engine] | None:
    """The engine whose gauges /metrics shows, for a server behind a front end that renames its models' owner."""
    metrics = await client.ask("GET", "/metrics")
    if metrics.status != 200:
        return None
    prefixes = {name.partition(":")[0] for name in parse_metrics(metrics.text) if ":" in name}
    return next((kind for kind in (Vllm, Sglang) if kind.name in prefixes), None)
