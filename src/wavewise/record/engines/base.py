"""What every engine must answer, so that a recording is written once for all of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from wavewise.errors import InputError
from wavewise.record.client import Answer, Client
from wavewise.record.model import Server
from wavewise.record.streams import Event

Prompt = str | list[int]
PROFILE_START_TIMEOUT_S = 120.0
PROFILE_STOP_TIMEOUT_S = 900.0  # exporting a trace with stacks of a dozen steps can take minutes


@dataclass(frozen=True)
class Counts:
    """The server's own count of its requests; None with the reason where it does not say."""

    running: int | None = None
    waiting: int | None = None
    reason: str | None = None


class Engine(ABC):
    """One kind of server.

    Attributes:
        name: "vllm", "sglang", "tensorrt-llm" or "openai".
        generate_path: where streaming requests go.
        can_profile: the engine has a profiler that can be driven over HTTP.
        closes_window_itself: the profiler stops after the number of steps it was given.
        chooses_folder: the request says where traces go (else the server was started with it).
        takes_token_ids: prompts may be token ids.
        max_tokens: length cap of a request, unless the user sets one. Long enough that no request ends before
            its batch has been measured, short enough that a scheduler which reserves for it still admits all.
        turn_on_profiler, turn_on_metrics: the flags that bring what is missing.
    """

    name: ClassVar[str]
    generate_path: ClassVar[str]
    can_profile: ClassVar[bool] = False
    closes_window_itself: ClassVar[bool] = False
    chooses_folder: ClassVar[bool] = False
    takes_token_ids: ClassVar[bool] = True
    max_tokens: ClassVar[int] = 4096
    turn_on_profiler: ClassVar[str] = ""
    turn_on_metrics: ClassVar[str] = ""

    def __init__(self, client: Client) -> None:
        self.client = client

    @abstractmethod
    async def describe(self, model: str | None, argv: Sequence[str] | None) -> Server:
        """Ask what the server is and how it was set up.

        Args:
            model: the model to use, None for the one it serves.
            argv: its command line, where the recording host can see it.
        """

    @abstractmethod
    def body(self, model: str, prompt: Prompt, max_tokens: int) -> bytes:
        """A streaming request that does not stop at an end-of-sequence token."""

    @abstractmethod
    def read_event(self, payload: bytes) -> Event | None:
        """Read the data of one server-sent event, None for one without news."""

    async def counts(self) -> Counts:
        """Running and waiting requests now."""
        return Counts(reason=f"{self.name} does not report them")

    async def start_profiler(self, steps: int, folder: str | None, label: str) -> None:  # noqa: ARG002
        """Open the profiler window.

        Args:
            steps: engine steps wanted in it.
            folder: where to write the trace, for an engine that chooses.
            label: prefix of the trace's file name, where the engine can take one.

        Raises:
            InputError: the server has no profiler, or it is busy.
        """
        raise InputError(f"{self.name} has no profiler that can be started over HTTP; use --no-profile")

    async def stop_profiler(self) -> None:  # noqa: B027 - nothing to stop where nothing can be started
        """Close the window; closing a closed one is no error."""

    async def profiler_offered(self, path: str = "/start_profile") -> bool | None:
        """Whether the route is there, None where the server does not tell.

        OPTIONS reaches no handler: FastAPI and axum answer 405 for a route that exists with other methods and
        404 for one that does not. A server that answers 404 for the route of its requests too tells nothing.
        """
        status = (await self.client.ask("OPTIONS", path)).status
        if status == 404 and (await self.client.ask("OPTIONS", self.generate_path)).status == 404:
            return None
        return {404: False, 405: True, 200: True, 204: True}.get(status)


async def get_json(client: Client, path: str) -> Any:
    """The JSON of a GET, None where there is none."""
    answer = await client.ask("GET", path)
    return answer.json if answer.status == 200 else None


def pick_model(models: tuple[str, ...], wanted: str | None, url: str) -> str:
    """The model to send requests for.

    Raises:
        InputError: it is not served, or the choice is not clear.
    """
    if wanted is not None:
        if models and wanted not in models:
            raise InputError(f"{url}: has no model {wanted!r}; it serves {', '.join(models)} (--model)")
        return wanted
    if not models:
        raise InputError(f"{url}: does not say which model it serves; name it with --model")
    return models[0]


def as_int(value: object) -> int | None:
    """An integer out of a flag or an answer, None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value)
    try:
        return int(str(value))
    except ValueError:
        return None


def as_bool(value: object) -> bool | None:
    """A truth value out of a flag or an answer, None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False, "1": True, "0": False}.get(str(value).lower())


def profiler_failed(answer: Answer, url: str, advice: str) -> InputError:
    """The error for a profiler that would not start."""
    detail = f": {answer.error}" if answer.error else ""
    return InputError(f"{url}/start_profile: {answer.status}{detail}; {advice}")
