"""Single requests: does the server take them, how long are its prompts, is it idle?"""

import asyncio
import random
import time
from collections.abc import Callable

from wavewise.errors import InputError
from wavewise.record import prompts as make
from wavewise.record.engines import Engine
from wavewise.record.engines.base import Prompt
from wavewise.record.options import Options
from wavewise.record.streams import Limits, Load

_CALIBRATION_WORDS = 64
_DRAIN_S = 20.0
_NUDGE_S = 3.0
POLL_S = 0.25


class Probe:
    """Asks one server with one request at a time, and makes the prompts for many."""

    def __init__(self, engine: Engine, model: str, options: Options, say: Callable[[str], None]) -> None:
        self._engine, self._model, self._options, self._say = engine, model, options, say
        self._url = engine.client.target.url
        self._source = random.Random()
        self._last_id = make.WIDE_LAST_ID
        self._words: int | None = None

    def prompt(self) -> Prompt:
        """A fresh prompt of the wanted length."""
        if self._engine.takes_token_ids:
            return make.token_ids(self._options.prompt_tokens, self._last_id, self._source)
        return make.words(self._words or _CALIBRATION_WORDS, self._source)

    async def one_request(self, prompt: Prompt, tokens: int) -> int | None:
        """Run one request to its end; its prompt tokens as the server counts them."""
        body = self._engine.body(self._model, prompt, tokens)
        limits = Limits(stall_s=self._options.stall_s)
        async with Load(
            self._engine.client.target, self._engine.generate_path, [body], self._engine.read_event, limits
        ) as load:
            await load.start()
            stream = load.streams[0]
            deadline = time.perf_counter() + self._options.stall_s
            while stream.ended is None:
                if time.perf_counter() > deadline:
                    raise InputError(
                        f"{self._url}: a single request brought no answer within "
                        f"{self._options.stall_s:.0f} s; is the server stuck? (--stall-timeout)"
                    )
                await asyncio.sleep(0.005)
            if not stream.counts:
                raise InputError(
                    f"{self._url}{self._engine.generate_path}: {stream.ended}{_remedy(stream.status)}"
                )
            return stream.prompt_tokens

    async def try_out(self) -> None:
        """One short request: key, model and prompts are right, and the token ids are in the vocabulary."""
        if not self._engine.takes_token_ids:
            await self._calibrate()
        while True:
            try:
                prompt = self.prompt()
                if isinstance(prompt, list):
                    prompt[-1] = self._last_id  # what the vocabulary must hold
                await self.one_request(prompt, 2)
                return
            except InputError as error:
                if "vocab" not in str(error).lower() or not self._engine.takes_token_ids or self._last_id < 8:
                    raise
                self._last_id //= 2

    async def _calibrate(self) -> None:
        """How many words make the wanted number of tokens, by the server's own count."""
        self._words = _CALIBRATION_WORDS
        for _ in range(3):
            counted = await self.one_request(self.prompt(), 1)
            if counted is None or counted < 1:
                self._words = max(1, self._options.prompt_tokens // 2)
                self._say("the server does not count prompt tokens: the length of the prompts is not known")
                return
            self._words = max(1, round(self._words * self._options.prompt_tokens / counted))

    async def idle(self) -> None:
        """Until the server runs nothing: beside other requests no batch size can be held.

        The gauges of a server that has gone idle may be stale until its next step; a request of one token
        brings them up to date.
        """
        deadline = time.monotonic() + self._options.wait_idle_s
        nudged = False
        while True:
            counts = await self._engine.counts()
            if not counts.running and not counts.waiting:
                return
            if time.monotonic() > deadline:
                raise InputError(
                    f"{self._url}: serves {counts.running} running and "
                    f"{counts.waiting or 0} waiting requests of others; record when it is "
                    "idle, or wait longer with --wait-idle"
                )
            if not nudged and time.monotonic() > deadline - self._options.wait_idle_s + _NUDGE_S:
                nudged = True
                await self.one_request(self.prompt(), 1)
            await asyncio.sleep(POLL_S)

    async def drained(self) -> None:
        """Until the server has noticed that its clients are gone (it counts, or a moment passes)."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            counts = await self._engine.counts()
            if not counts.running and not counts.waiting:
                return
            await asyncio.sleep(POLL_S)
        await self.one_request(self.prompt(), 1)


def _remedy(status: int | None) -> str:
    return {
        401: "; set the API key in the variable that --api-key-env names",
        403: "; set the API key in the variable that --api-key-env names",
        404: "; is the model right (--model), and has this server that route?",
        503: "; the server is not ready or overloaded: wait and try again",
    }.get(status or 0, "")
