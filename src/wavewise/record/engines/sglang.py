"""SGLang's native server.

Routes and fields as in sglang/srt/entrypoints/http_server.py and managers/io_struct.py (0.5.x): /generate,
/start_profile with its options, /stop_profile, /server_info (formerly /get_server_info), /v1/loads, /metrics.
https://github.com/sgl-project/sglang/tree/main/python/sglang/srt
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from wavewise.record.engines.base import (
    PROFILE_START_TIMEOUT_S,
    PROFILE_STOP_TIMEOUT_S,
    Counts,
    Engine,
    Prompt,
    as_bool,
    as_int,
    get_json,
    pick_model,
    profiler_failed,
)
from wavewise.record.host import flags_of, hide_secrets
from wavewise.record.metrics import parse_metrics, total
from wavewise.record.model import Server
from wavewise.record.streams import Event


class _Finish(msgspec.Struct, frozen=True):
    type: str | None = None
    message: str | None = None


class _Meta(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: _Finish | None = None


class _Chunk(msgspec.Struct, frozen=True):
    meta_info: _Meta | None = None
    error: Any = None


_CHUNK = msgspec.json.Decoder(_Chunk)
_UNNAMED = "(the server's own)"


class Sglang(Engine):
    """`sglang.launch_server` / `sglang serve`."""

    name: ClassVar[str] = "sglang"
    generate_path: ClassVar[str] = "/generate"
    can_profile: ClassVar[bool] = True
    closes_window_itself: ClassVar[bool] = True
    chooses_folder: ClassVar[bool] = True
    # The scheduler reserves a share of max_new_tokens (clipped at 4096) before it admits a request.
    max_tokens: ClassVar[int] = 2048
    turn_on_profiler: ClassVar[str] = "a release with /start_profile (0.4 or later)"
    turn_on_metrics: ClassVar[str] = "--enable-metrics"

    async def describe(self, model: str | None, argv: Sequence[str] | None) -> Server:
        """From /server_info; the command line adds nothing that it does not say."""
        info = await server_info(self) or {}
        models = tuple(str(info[name]) for name in ("served_model_name", "model_path") if info.get(name))[:1]
        models = models or (_UNNAMED,)  # requests need not name it
        state = next(iter(info.get("internal_states") or ()), {})
        graphs_off = as_bool(info.get("disable_cuda_graph"))
        return Server(
            engine=self.name,
            version=str(info["version"]) if info.get("version") else None,
            model=pick_model(models, model, self.client.target.url),
            models=models,
            profiler=await self.profiler_offered(),
            metrics=(await self.client.ask("GET", "/metrics")).status == 200,
            max_model_len=as_int(info.get("context_length")) or as_int(info.get("max_req_input_len")),
            max_batch=as_int(
                state.get("effective_max_running_requests_per_dp", info.get("max_running_requests"))
            ),
            kv_tokens=as_int(info.get("max_total_num_tokens")),
            ranks=(as_int(info.get("tp_size")) or 1) * (as_int(info.get("pp_size")) or 1),
            prefix_caching=None if (off := as_bool(info.get("disable_radix_cache"))) is None else not off,
            cuda_graphs=None if graphs_off is None else not graphs_off,
            cuda_graph_max_batch=as_int(info.get("cuda_graph_max_bs")),
            stream_interval=as_int(info.get("stream_interval")),
            flags=hide_secrets(_plain(info)) or flags_of(list(argv or ())),
            flags_source="answers" if info else None,
        )

    def body(self, model: str, prompt: Prompt, max_tokens: int) -> bytes:  # noqa: ARG002 - it serves one
        """A native request; `input_ids` or `text`."""
        return msgspec.json.encode(
            {
                "input_ids" if isinstance(prompt, list) else "text": prompt,
                "sampling_params": {"max_new_tokens": max_tokens, "ignore_eos": True, "temperature": 0.0},
                "stream": True,
            }
        )

    def read_event(self, payload: bytes) -> Event | None:
        """One chunk; `meta_info` counts the tokens so far."""
        try:
            chunk = _CHUNK.decode(payload)
        except msgspec.DecodeError as error:
            return Event(error=f"a chunk that is no generation ({error})")
        if chunk.error is not None:
            return Event(
                error=str(chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error)
            )
        meta = chunk.meta_info
        if meta is None:
            return None
        finish = meta.finish_reason
        if finish is not None and finish.type == "abort":
            return Event(error=finish.message or "the request was aborted")
        return Event(
            tokens=meta.completion_tokens,
            prompt_tokens=meta.prompt_tokens,
            cached_tokens=meta.cached_tokens,
            finish=finish.type if finish else None,
        )

    async def counts(self) -> Counts:
        """From /v1/loads, which is live; else from /metrics, which is renewed every 40 decode steps."""
        answer = await get_json(self.client, "/v1/loads?include=core")
        loads = answer.get("loads") if isinstance(answer, dict) else None
        if loads:
            return Counts(
                sum(load.get("num_running_reqs", 0) for load in loads),
                sum(load.get("num_waiting_reqs", 0) for load in loads),
            )
        metrics = await self.client.ask("GET", "/metrics")
        samples = parse_metrics(metrics.text) if metrics.status == 200 else {}
        running = total(samples, "sglang:num_running_reqs")
        if running is None:
            return Counts(reason=f"neither /v1/loads nor /metrics counts requests ({self.turn_on_metrics})")
        return Counts(running, total(samples, "sglang:num_queue_reqs"))

    async def start_profiler(self, steps: int, folder: str | None, label: str) -> None:
        """Open a window of `steps` steps.

        Not by stage: the batch is decode only when the window opens, and a by-stage request would leave the
        prefill stage armed, so that the server's next prefill would be profiled.
        """
        body = {
            "output_dir": folder,
            "num_steps": steps,
            "activities": ["CPU", "GPU"],
            "profile_by_stage": False,
            "with_stack": False,
            "record_shapes": True,
            "profile_prefix": label,
        }
        answer = await self.client.ask("POST", "/start_profile", body, PROFILE_START_TIMEOUT_S)
        url = self.client.target.url
        if answer.status == 404:
            raise profiler_failed(
                answer, url, f"this server needs {self.turn_on_profiler}; or use --no-profile"
            )
        if answer.status != 200:
            raise profiler_failed(
                answer,
                url,
                "is a profile in progress? POST /stop_profile ends it; the server's log says more",
            )

    async def stop_profiler(self) -> None:
        """Close the window. A server whose window has closed itself answers 500, which is as good."""
        await self.client.ask("POST", "/stop_profile", None, PROFILE_STOP_TIMEOUT_S)


_TELLING = {"internal_states", "model_path", "tp_size", "max_total_num_tokens", "max_running_requests"}


async def server_info(engine: Engine) -> dict[str, Any] | None:
    """The server's settings under the newer or the older name of the route, None where it has neither."""
    for path in ("/server_info", "/get_server_info"):
        info = await get_json(engine.client, path)
        if isinstance(info, dict) and _TELLING & info.keys() and "vllm_config" not in info:
            return info
    return None


def _plain(info: dict[str, Any]) -> dict[str, str]:
    """Scalar settings that are set."""
    return {
        name: str(value)
        for name, value in info.items()
        if isinstance(value, str | int | float) and value != ""
    }
