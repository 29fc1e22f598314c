"""Servers with OpenAI's completions route: the part that vLLM, TensorRT-LLM and others share."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from wavewise.record.engines.base import Counts, Engine, Prompt, as_int, get_json, pick_model
from wavewise.record.host import flags_of
from wavewise.record.model import Server
from wavewise.record.streams import Event


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)


class OpenAi(Engine):
    """Any server with /v1/models and /v1/completions. Text prompts only, unless a subclass knows better."""

    name: ClassVar[str] = "openai"
    generate_path: ClassVar[str] = "/v1/completions"
    takes_token_ids: ClassVar[bool] = False

    async def describe(self, model: str | None, argv: Sequence[str] | None) -> Server:
        """What /v1/models and /version tell."""
        cards = await model_cards(self) or await self.unlisted_models()
        models = tuple(str(card["id"]) for card in cards)
        version = await get_json(self.client, "/version")
        chosen = pick_model(models, model, self.client.target.url)
        card = next((card for card in cards if card["id"] == chosen), {})
        return Server(
            engine=self.name,
            version=str(version["version"]) if isinstance(version, dict) and "version" in version else None,
            model=chosen,
            models=models,
            profiler=False,
            max_model_len=as_int(card.get("max_model_len")),
            flags=flags_of(list(argv or ())),
            flags_source="command line" if argv else None,
        )

    async def unlisted_models(self) -> list[dict[str, Any]]:
        """Models that a server without /v1/models names elsewhere."""
        return []

    def request(self, model: str, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        """The request's fields; a subclass adds its engine's own."""
        return {
            "model": model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def body(self, model: str, prompt: Prompt, max_tokens: int) -> bytes:
        """The request as JSON."""
        return msgspec.json.encode(self.request(model, prompt, max_tokens))

    def read_event(self, payload: bytes) -> Event | None:
        """One chunk of the completions stream.

        Tokens are counted by `usage` where each chunk carries it, else by the token ids, else one for each
        chunk with text.
        """
        try:
            chunk = _CHUNK.decode(payload)
        except msgspec.DecodeError as error:
            return Event(error=f"a chunk that is no completion ({error})")
        if chunk.error is not None:
            message = chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error
            return Event(error=str(message))
        usage = chunk.usage or _Usage()
        choice = chunk.choices[0] if chunk.choices else _Choice()
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
        new = len(choice.token_ids) if choice.token_ids else int(bool(choice.text))
        return Event(
            tokens=usage.completion_tokens,
            new_tokens=new,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=cached,
            finish=choice.finish_reason,
        )


class TensorRtLlm(OpenAi):
    """`trtllm-serve`: load and telemetry; it has no profiler that HTTP could start.

    Request fields and iteration statistics as in its openai_protocol.py and openai_server.py,
    https://github.com/NVIDIA/TensorRT-LLM/tree/main/tensorrt_llm/serve.
    """

    name: ClassVar[str] = "tensorrt-llm"
    takes_token_ids: ClassVar[bool] = True
    turn_on_metrics: ClassVar[str] = "`enable_iter_perf_stats: true` in its --extra_llm_api_options file"

    def request(self, model: str, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
        """With a count in every chunk, and no stop at the end-of-sequence token."""
        return super().request(model, prompt, max_tokens) | {
            "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }

    async def counts(self) -> Counts:
        """From the newest iteration statistics that /metrics hands out (and forgets)."""
        stats = await get_json(self.client, "/metrics")
        if not isinstance(stats, list) or not stats:
            return Counts(reason=f"/metrics has no iteration statistics; set {self.turn_on_metrics}")
        newest = stats[-1]
        batching = newest.get("inflightBatchingStats") or {}
        running = as_int(newest.get("numActiveRequests", batching.get("numScheduledRequests")))
        reason = None if running is not None else "the iteration statistics name no running requests"
        return Counts(running, as_int(newest.get("numQueuedRequests")), reason)


async def model_cards(engine: Engine) -> list[dict[str, Any]]:
    """The entries of /v1/models that have an id."""
    answer = await get_json(engine.client, "/v1/models")
    data = answer.get("data") if isinstance(answer, dict) else None
    return [card for card in data or () if isinstance(card, dict) and "id" in card]
