"""In-process servers that speak as vLLM, SGLang and TensorRT-LLM do, with a scheduler behind them and faults.

Shapes from the engines' published sources: vllm/entrypoints/{openai/completion,serve/profile,serve/instrumentator}
(0.26 and 0.33), sglang/srt/entrypoints/http_server.py with managers/io_struct.py (0.5.23), and
tensorrt_llm/serve/openai_{server,protocol}.py. They run on starlette and uvicorn, as the real ones do, so that
routing (405 for OPTIONS), disconnects, chunked streams and Date headers are real.
"""

import asyncio
import gzip
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class Faults:
    """What goes wrong; everything is off by default."""

    no_profiler: bool = False  # /start_profile answers 404
    unready: bool = False  # 503 everywhere
    overloaded: bool = False  # 503 for generation only
    key: str | None = None  # the API key that is wanted
    echo_key: bool = False  # the server's settings show it
    redirect_to: str | None = None
    first_token_s: float = 0.0
    silent_after: int | None = None  # the scheduler stops after so many steps
    drop_after: int | None = None  # one stream is cut after so many tokens
    error_after: int | None = None  # one stream reports an error after so many tokens
    profiler_busy: bool = False  # another profile is running
    start_hangs: bool = False
    stop_s: float = 0.0  # how long writing the trace blocks the engine
    trace_late_s: float = 0.0  # the file appears so long after the answer
    trace_slowly_s: float = 0.0  # the file grows for so long
    trace_truncated: bool = False
    trace_nowhere: bool = False
    dirty_windows: int = 0  # so many profiler windows show a prefill step
    vocabulary: int | None = None
    no_metrics: bool = False
    others: int = 0  # requests of someone else
    slower_after_profile: float = 1.0
    bare: bool = False  # no /v1/models, and 404 for every OPTIONS


@dataclass
class Sequence:
    """A request inside the fake engine."""

    prompt: int
    limit: int
    queue: "asyncio.Queue[int | str]" = field(default_factory=asyncio.Queue)
    prefilled: int = 0
    tokens: int = 0


@dataclass
class Fake:
    """A fake engine: continuous batching with chunked prefill, one token per request and step."""

    engine: str
    faults: Faults = field(default_factory=Faults)
    step_s: float = 0.004
    per_request_s: float = 0.0
    profiled_factor: float = 1.5
    max_num_seqs: int = 256
    max_model_len: int = 16384
    prefill_budget: int = 16384
    trace_dir: Path | None = None
    version: str = "0.26.0"
    model: str = "tiny-random"
    running: list[Sequence] = field(default_factory=list)
    waiting: list[Sequence] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    bodies: list[dict] = field(default_factory=list)
    profile: dict | None = None
    steps: list[tuple[int, int]] = field(default_factory=list)  # (prefilling, decoding) of profiled steps
    aborted: int = 0
    peak: int = 0
    step_count: int = 0
    gauge: int = 0
    factor_now: float = 1.0
    profiles_written: int = 0
    max_iterations: int | None = None
    marked: bool = False

    # ------------------------------------------------------------------ the engine

    async def loop(self) -> None:
        while True:
            batch = self.running
            if not batch and not self.waiting:
                self.gauge = 0
                await asyncio.sleep(0.001)
                continue
            pace = self.step_s + self.per_request_s * len(batch)
            pace *= self.profiled_factor if self.profile is not None else self.factor_now
            await asyncio.sleep(pace)
            if self.faults.silent_after is not None and self.step_count >= self.faults.silent_after:
                continue
            self.step_count += 1
            while self.waiting and len(self.running) < self.max_num_seqs:
                self.running.append(self.waiting.pop(0))
            self.peak = max(self.peak, len(self.running))
            budget, prefilling, decoding = self.prefill_budget, 0, 0
            for request in list(self.running):
                if request.prefilled < request.prompt:
                    if budget <= 0:
                        continue
                    take = min(budget, request.prompt - request.prefilled)
                    request.prefilled += take
                    budget -= take
                    prefilling += 1
                    if request.prefilled < request.prompt:
                        continue
                else:
                    decoding += 1
                request.tokens += 1
                request.queue.put_nowait(request.tokens)
                if request.tokens >= request.limit:
                    self.running.remove(request)
            if self.engine != "sglang" or self.step_count % 40 == 0:
                self.gauge = len(self.running)
            await self._profiled_step(prefilling, decoding)

    async def _profiled_step(self, prefilling: int, decoding: int) -> None:
        if self.profile is None:
            return
        self.steps.append((prefilling, decoding))
        wanted = self.profile.get("num_steps")
        if self.engine == "sglang" and wanted and len(self.steps) > wanted:
            await self.write_trace()
        if self.engine == "vllm" and self.max_iterations and len(self.steps) > self.max_iterations:
            self.log.append("max_iterations reached")
            await self.write_trace()

    async def write_trace(self) -> None:
        """Stop profiling and export; the engine stands still meanwhile, as the real ones do."""
        profile, self.profile = self.profile, None
        steps, self.steps = self.steps, []
        if self.faults.stop_s:
            time.sleep(self.faults.stop_s)  # blocks the loop on purpose
        self.factor_now = self.faults.slower_after_profile
        self.profiles_written += 1
        assert profile is not None
        if self.faults.trace_nowhere:
            return
        if self.profiles_written <= self.faults.dirty_windows:
            steps = [(1, steps[0][1]), *steps[1:]]
        folder = Path(profile["output_dir"]) if profile.get("output_dir") else self.trace_dir
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        data = trace_bytes(self.engine, steps)
        stamp = f"{time.time_ns()}"
        if self.engine == "sglang":
            name = f"{profile.get('profile_prefix') or 'p'}-{stamp}-TP-0.trace.json.gz"
        else:
            name = f"dp0_pp0_tp0_dcp0_ep0_rank0.{stamp}.pt.trace.json.gz"
            (folder / f"host_1.async_llm.{stamp}.pt.trace.json.gz").write_bytes(
                gzip.compress(b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add"}]}')
            )
            (folder / "profiler_out_0.txt").write_text("a table")
        if self.faults.trace_truncated:
            data = data[: len(data) * 2 // 3]
        asyncio.get_running_loop().create_task(self._deliver(folder / name, data))

    async def _deliver(self, path: Path, data: bytes) -> None:
        if self.faults.trace_late_s:
            await asyncio.sleep(self.faults.trace_late_s)
        if self.faults.trace_slowly_s:
            parts = 8
            for part in range(parts):
                with path.open("ab") as out:
                    out.write(data[len(data) * part // parts : len(data) * (part + 1) // parts])
                await asyncio.sleep(self.faults.trace_slowly_s / parts)
        else:
            path.write_bytes(data)

    # ------------------------------------------------------------------ requests

    async def tokens(self, prompt: int, limit: int) -> AsyncIterator[int]:
        """The token counts of one request, until it ends or the client goes."""
        request = Sequence(prompt, limit)
        if self.faults.first_token_s:
            await asyncio.sleep(self.faults.first_token_s)
        self.waiting.append(request)
        finished = False
        try:
            while True:
                count = await request.queue.get()
                assert isinstance(count, int)
                yield count
                if count >= limit:
                    finished = True
                    return
        finally:
            if not finished:
                self.aborted += 1
            for queue in (self.running, self.waiting):
                if request in queue:
                    queue.remove(request)

    def refuse(self, request: Request, guarded: bool = True) -> Response | None:
        """What middleware answers before a handler is reached."""
        self.log.append(f"{request.method} {request.url.path}")
        faults = self.faults
        if faults.redirect_to:
            return RedirectResponse(faults.redirect_to + request.url.path, status_code=307)
        if faults.unready:
            return PlainTextResponse("", status_code=503)
        if guarded and faults.key and request.headers.get("authorization") != f"Bearer {faults.key}":
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        return None

    def validate(self, ids: list[int] | str, limit: int) -> str | None:
        """The engine's refusal of a prompt, in its words."""
        length = len(ids) if isinstance(ids, list) else len(ids.split()) * 2
        if isinstance(ids, list) and self.faults.vocabulary and max(ids) >= self.faults.vocabulary:
            return f"Token id {max(ids)} is out of vocabulary"
        if length + limit > self.max_model_len:
            return (
                f"This model's maximum context length is {self.max_model_len} tokens. However, you requested {limit} "
                f"output tokens and your prompt contains {length} input tokens."
            )
        return None


def trace_bytes(engine: str, steps: list[tuple[int, int]]) -> bytes:
    """A small Kineto trace: a marker and one graph replay of three kernels for every step."""
    events, ts = [], 5_000_000.0
    for index, (prefilling, decoding) in enumerate(steps):
        if engine == "sglang":
            kind = "EXTEND" if prefilling else "DECODE"
            marker = f"step[{kind} bs={prefilling or decoding}]"
        else:
            marker = f"execute_context_{prefilling}({prefilling * 64})_generation_{decoding}({decoding})"
        correlation = 1000 + index
        host = {"ph": "X", "pid": 7, "tid": 7}
        events.append(host | {"cat": "user_annotation", "name": marker, "ts": ts, "dur": 900.0})
        launch = {"cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": ts + 10, "dur": 5.0}
        events.append(host | launch | {"args": {"correlation": correlation, "cbid": 311}})
        device = {"ph": "X", "pid": 0, "tid": 7}
        events.append(device | {"cat": "gpu_user_annotation", "name": marker, "ts": ts + 20, "dur": 900.0})
        for place, name in enumerate(("gemm_kernel", "flash_fwd_splitkv_kernel", "rms_norm_kernel")):
            args = {
                "device": 0, "stream": 7, "correlation": correlation, "grid": [64, 1, 1], "block": [256, 1, 1],
                "registers per thread": 64, "shared memory": 0, "graph node id": place,
            }  # fmt: skip
            at = {"cat": "kernel", "name": name, "ts": ts + 30 + 300 * place, "dur": 250.0 + decoding}
            events.append(device | at | {"args": args})
        ts += 1000.0 + decoding
    document = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132,
             "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
             "sharedMemPerMultiprocessor": 233472, "warpSize": 32}
        ],
        "baseTimeNanoseconds": 1_780_000_000_000_000_000,
        "traceEvents": events,
        "traceName": "trace.json",
    }  # fmt: skip
    # Kineto writes one "ph, cat, name, pid, tid" group per line.
    text = json.dumps(document).replace('{"ph"', '\n  {\n    "ph"')
    return gzip.compress(text.encode())


# ---------------------------------------------------------------------- vLLM and TensorRT-LLM


def openai_app(fake: Fake, owner: str) -> Starlette:
    """`vllm serve` or `trtllm-serve`."""

    async def models(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        card = {"id": fake.model, "object": "model", "created": 1, "owned_by": owner}
        if owner == "vllm":
            card |= {
                "root": fake.model,
                "parent": None,
                "max_model_len": fake.max_model_len,
                "permission": [],
            }
        return JSONResponse({"object": "list", "data": [card]})

    async def version(request: Request) -> Response:
        return fake.refuse(request, guarded=False) or JSONResponse({"version": fake.version})

    async def health(request: Request) -> Response:
        return fake.refuse(request, guarded=False) or Response(status_code=200)

    async def metrics(request: Request) -> Response:
        if refused := fake.refuse(request, guarded=False):
            return refused
        if owner == "someone":
            return JSONResponse({"detail": "Not Found"}, 404)
        running, waiting = fake.gauge + fake.faults.others, len(fake.waiting)
        if owner == "tensorrt_llm":
            stats = [{"iter": fake.step_count, "numActiveRequests": running, "numQueuedRequests": waiting}]
            return JSONResponse([] if fake.faults.no_metrics else stats)
        if fake.faults.no_metrics:
            return PlainTextResponse("# HELP python_info Python platform information\n")
        label = f'{{engine="0",model_name="{fake.model}"}}'
        return PlainTextResponse(
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{label} {float(running)}\n"
            f"vllm:num_requests_waiting{label} {float(waiting)}\n"
            'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",'
            'num_gpu_blocks="100000"} 1.0\n'
        )

    async def completions(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        body = await request.json()
        fake.bodies.append(body)
        prompt, limit = body["prompt"], body.get("max_tokens", 16)
        if fake.faults.overloaded:
            said = f"overloaded for {fake.faults.key}" if fake.faults.echo_key else "overloaded"
            return JSONResponse({"error": {"message": said, "type": "x", "code": 503}}, status_code=503)
        if body["model"] != fake.model:
            message = f"The model `{body['model']}` does not exist."
            return JSONResponse({"error": {"message": message, "type": "NotFoundError", "code": 404}}, 404)
        if problem := fake.validate(prompt, limit):
            error = {"message": problem, "type": "BadRequestError", "param": None, "code": 400}
            return JSONResponse({"error": error} if owner == "vllm" else {"object": "error"} | error, 400)
        length = len(prompt) if isinstance(prompt, list) else len(prompt.split()) * 2
        continuous = (body.get("stream_options") or {}).get("continuous_usage_stats", False)
        one_is_cut = limit > 8 and not fake.marked  # the first request of a batch, not the probes
        fake.marked = fake.marked or one_is_cut

        async def stream() -> AsyncIterator[str]:
            name = f"cmpl-{uuid.uuid4().hex}"
            async for count in fake.tokens(length, limit):
                if one_is_cut and fake.faults.drop_after == count:
                    raise ConnectionResetError
                if one_is_cut and fake.faults.error_after == count:
                    error = {"message": "EngineCore died", "type": "InternalServerError", "code": 500}
                    yield f"data: {json.dumps({'error': error})}\n\n"
                    return
                choice = {"index": 0, "text": " w", "logprobs": None}
                choice["finish_reason"] = "length" if count == limit else None
                chunk = {"id": name, "object": "text_completion", "created": 1, "model": fake.model}
                chunk["choices"] = [choice]
                if continuous:
                    chunk["usage"] = {
                        "prompt_tokens": length,
                        "total_tokens": length + count,
                        "completion_tokens": count,
                    }
                yield f"data: {json.dumps(chunk)}\n\n"
            usage = {"prompt_tokens": length, "total_tokens": length + limit, "completion_tokens": limit}
            yield f"data: {json.dumps({'id': name, 'choices': [], 'usage': usage})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def start(request: Request) -> Response:
        if refused := fake.refuse(request, guarded=False):
            return refused
        raw = await request.body()
        if fake.faults.start_hangs:
            await asyncio.sleep(3600)
        newer = fake.version >= "0.3"
        if newer and (fake.profile is not None or fake.faults.profiler_busy):
            message = (
                "A profiling session is already active. Call /stop_profile before starting another session."
            )
            return JSONResponse({"error": {"message": message, "type": "Conflict", "code": 409}}, 409)
        fake.profile, fake.steps = {}, []
        fake.max_iterations = json.loads(raw)["max_iterations"] if raw and newer else None
        return Response(status_code=200)

    async def stop(request: Request) -> Response:
        if refused := fake.refuse(request, guarded=False):
            return refused
        if fake.profile is None:  # as 0.26.0 was seen to
            return Response("Internal Server Error", 500)
        await fake.write_trace()
        return Response(status_code=200)

    routes = [
        Route("/v1/models", models), Route("/version", version), Route("/health", health),
        Route("/metrics", metrics), Route("/v1/completions", completions, methods=["POST"]),
    ]  # fmt: skip
    if owner == "vllm" and not fake.faults.no_profiler:
        routes += [
            Route("/start_profile", start, methods=["POST"]),
            Route("/stop_profile", stop, methods=["POST"]),
        ]
    return Starlette(routes=routes, lifespan=_lifespan(fake))


# ---------------------------------------------------------------------- SGLang


def sglang_app(fake: Fake) -> Starlette:
    """`sglang serve`."""

    async def info(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        settings = {
            "model_path": fake.model, "served_model_name": fake.model, "tp_size": 1, "pp_size": 1,
            "max_running_requests": fake.max_num_seqs, "context_length": fake.max_model_len,
            "disable_radix_cache": False, "disable_cuda_graph": False, "cuda_graph_max_bs": 160,
            "max_total_num_tokens": 1_600_000, "max_req_input_len": fake.max_model_len - 6,
            "version": "0.5.23", "stream_interval": 1, "api_key": fake.faults.key,
            "internal_states": [{"effective_max_running_requests_per_dp": fake.max_num_seqs}],
        }  # fmt: skip
        if fake.faults.echo_key:
            settings["launch_command"] = f"sglang serve --api-key {fake.faults.key}"
        return JSONResponse(settings)

    async def models(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        return JSONResponse(
            {"object": "list", "data": [{"id": fake.model, "object": "model", "owned_by": "sglang"}]}
        )

    async def health(request: Request) -> Response:
        return fake.refuse(request) or Response(status_code=200)

    async def loads(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        if fake.faults.no_metrics:
            return JSONResponse({"detail": "Not Found"}, 404)
        running = len(fake.running) + fake.faults.others
        load = {"dp_rank": 0, "num_running_reqs": running, "num_waiting_reqs": len(fake.waiting)}
        return JSONResponse({"timestamp": "now", "version": "0.5.23", "loads": [load]})

    async def metrics(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        if fake.faults.no_metrics:
            return JSONResponse({"detail": "Not Found"}, 404)
        return PlainTextResponse(f'sglang:num_running_reqs{{model_name="m"}} {fake.gauge}.0\n')

    async def generate(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        body = await request.json()
        fake.bodies.append(body)
        prompt = body.get("input_ids") or body.get("text")
        limit = body["sampling_params"]["max_new_tokens"]

        async def stream() -> AsyncIterator[str]:
            if problem := fake.validate(prompt, limit):
                error = {"message": problem, "type": "invalid_request_error", "code": 400, "retryable": False}
                yield f"data: {json.dumps({'error': error})}\n\n"
                yield "data: [DONE]\n\n"
                return
            length = len(prompt) if isinstance(prompt, list) else len(prompt.split()) * 2
            ids: list[int] = []
            async for count in fake.tokens(length, limit):
                ids.append(17)
                finish = {"type": "length", "length": limit} if count == limit else None
                meta = {
                    "id": "x",
                    "finish_reason": finish,
                    "prompt_tokens": length,
                    "weight_version": "default",
                }
                meta |= {"completion_tokens": count, "cached_tokens": 0, "e2e_latency": 0.1}
                yield f"data: {json.dumps({'text': ' w' * count, 'output_ids': ids, 'meta_info': meta})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def start(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        body = json.loads(await request.body() or b"{}")
        if fake.profile is not None or fake.faults.profiler_busy:
            return PlainTextResponse("Internal Server Error", status_code=500)
        fake.profile, fake.steps = body, []
        return PlainTextResponse("Start profiling.\n")

    async def stop(request: Request) -> Response:
        if refused := fake.refuse(request):
            return refused
        if fake.profile is None:
            return PlainTextResponse("Internal Server Error", status_code=500)
        await fake.write_trace()
        return PlainTextResponse("Stop profiling. This will take some time.\n")

    routes = [
        Route("/server_info", info), Route("/get_server_info", info), Route("/v1/models", models),
        Route("/health", health), Route("/v1/loads", loads), Route("/metrics", metrics),
        Route("/generate", generate, methods=["POST", "PUT"]),
    ]  # fmt: skip
    if not fake.faults.no_profiler:
        routes += [Route("/start_profile", start, methods=["GET", "POST"])]
        routes += [Route("/stop_profile", stop, methods=["GET", "POST"])]
    return Starlette(routes=routes, lifespan=_lifespan(fake))


def plain_app(fake: Fake) -> Starlette:
    """A web server that is no LLM server."""

    async def root(request: Request) -> Response:
        fake.log.append(f"{request.method} {request.url.path}")
        return PlainTextResponse("It works!")

    return Starlette(routes=[Route("/", root)], lifespan=_lifespan(fake))


def _lifespan(fake: Fake):
    @asynccontextmanager
    async def run(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(fake.loop())
        yield
        task.cancel()

    return run


class Bare:
    """ASGI in front of a fake: a dispatcher that knows neither /v1/models nor OPTIONS."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and (scope["method"] == "OPTIONS" or scope["path"] == "/v1/models"):
            await PlainTextResponse("nothing here", status_code=404)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class Running:
    """A fake server on a port of its own, in a thread of this process."""

    def __init__(self, fake: Fake, **tls: Any) -> None:
        owners = {"vllm": "vllm", "tensorrt-llm": "tensorrt_llm", "openai": "someone"}
        make = {"sglang": sglang_app, "web": plain_app}.get(fake.engine)
        app = make(fake) if make else openai_app(fake, owners[fake.engine])
        asgi = Bare(app) if fake.faults.bare else app
        self.fake = fake
        config = uvicorn.Config(asgi, port=0, log_level="critical", lifespan="on", **tls)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "Running":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._server.config.is_ssl else ''}://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(timeout=5)

    def wait(self, reached, timeout_s: float = 10.0) -> bool:
        """Whether a condition of the fake comes true in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if reached(self.fake):
                return True
            time.sleep(0.005)
        return False
