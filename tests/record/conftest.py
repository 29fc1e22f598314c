"""Fixtures of the recorder's tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from record_fakes import Fake, Faults, Running

from wavewise.record import collect, probe, traces


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts fake servers: `serve("vllm", step_s=0.01, faults=Faults(...))`."""
    with ExitStack() as stack:

        def start(engine: str, faults: Faults | None = None, **settings: object) -> Running:
            given = {"step_s": 0.002, "trace_dir": tmp_path / "traces", **settings}
            return stack.enter_context(Running(Fake(engine, faults or Faults(), **given)))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def quick_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience is shorter in this process: the servers are quick."""
    monkeypatch.setattr(traces, "_SETTLE_S", 0.1)
    monkeypatch.setattr(probe, "POLL_S", 0.02)
    monkeypatch.setattr(collect, "POLL_S", 0.02)
