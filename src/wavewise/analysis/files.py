"""From files to described devices: finds the traces, reads and describes each, in parallel where that pays."""

import multiprocessing
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from wavewise.analysis.settings import Label, Settings
from wavewise.decode import Described, FamilyRules, describe
from wavewise.decode.pool import Context
from wavewise.errors import InputError, NothingToAnalyzeError, WavewiseError
from wavewise.hardware import catalogue
from wavewise.record import Run, read_run
from wavewise.trace import Progress, find_traces, read

PARALLEL_BYTES = 100_000_000
"""Files of less than this together are read one after another: starting processes would cost more."""

_READING = 0.65
"""Share of a file's time that reading it takes, for the progress bar; the rest goes into finding its steps."""

Unreadable = Callable[[Path, WavewiseError], None]


@dataclass(frozen=True, slots=True)
class Source:
    """One trace file and what is known of it from beside it.

    Attributes:
        given: the path on the command line that brought it.
        file: the file itself.
        label: what the user says of `given`.
        run: the recording that it belongs to, if there is a run.json beside it.
        named_times: how often the paths bring it; it counts once.
    """

    given: Path
    file: Path
    label: Label
    run: Run | None
    named_times: int = 1

    @property
    def named(self) -> bool:
        """Whether the user named the file itself, not its folder."""
        return not self.given.is_dir()

    def context(self) -> tuple[Context, str | None]:
        """The context length of its decode steps, and who says so."""
        label = self.label.get("context")
        if label is not None:
            tokens = tokens_of(label)
            return Context(tokens=tokens, label=label), "label"
        batch = self.run.batch_of(self.file.name) if self.run else None
        if batch is not None:
            return Context(tokens=batch.context_tokens or batch.prompt_tokens), "run.json"
        return Context(tokens=None), None

    def model(self) -> str | None:
        """The name of its model, where the user or a recording tells it."""
        return self.label.get("model") or (self.run.server.model if self.run else None)


@dataclass(frozen=True, slots=True)
class DescribedFile:
    """What one file says, one entry per document and device."""

    source: Source
    described: tuple[Described, ...]


def untraced_runs(given: Sequence[Path], settings: Settings) -> dict[Path, Run]:
    """The recordings among the paths that hold no trace file: they have latencies, and maybe telemetry, to tell."""
    found: dict[Path, Run] = {}
    for path in given:
        run = _run_in(path) if path.is_dir() else None
        if run is None:
            continue
        try:
            find_traces([path], recursive=settings.recursive)
        except InputError:
            found[path] = run
    return found


def sources(given: Sequence[Path], settings: Settings) -> list[Source]:
    """Every trace file that the paths name, in order, each once: a file named again is no second recording.

    A file counts as named itself, and has the labels of all paths that bring it, however often it is named; where
    they contradict each other, the file's own hold rather than its folder's.

    Raises:
        InputError: a path does not exist, or a folder holds no trace.
    """
    found: dict[Path, Source] = {}
    for path in given:
        label = settings.labels.get(path, {})
        for file in find_traces([path], recursive=settings.recursive):
            source = Source(given=path, file=file, label=label, run=_run_beside(file))
            before = found.setdefault(file.resolve(), source)
            if before is not source:
                found[file.resolve()] = replace(
                    before,
                    given=before.given if before.named else path,
                    label={**label, **before.label} if before.named else {**before.label, **label},
                    named_times=before.named_times + 1,
                )
    return list(found.values())


def describe_files(
    found: Sequence[Source], settings: Settings, progress: Progress | None, unreadable: Unreadable | None
) -> list[DescribedFile]:
    """Describes every file that can be read, in order.

    Raises:
        InputError, NothingToAnalyzeError: a file that the user named cannot be used, or none of a folder can.
    """
    result: list[DescribedFile] = []
    failed: list[tuple[Path, WavewiseError]] = []
    for at, (source, outcome) in enumerate(_outcomes(found, settings, progress)):
        if progress:
            progress(f"described {source.file.name}", (at + 1) / len(found))
        if isinstance(outcome, WavewiseError):
            if source.named:
                raise outcome
            failed.append((source.file, outcome))
        else:
            result.append(DescribedFile(source=source, described=outcome))
    # With nothing left, the last one becomes the error itself; it need not be named twice.
    last = None if result or not failed else failed.pop()[1]
    for path, error in failed:
        if unreadable:
            unreadable(path, error)
    if last is not None:
        raise last
    return result


def _outcomes(
    found: Sequence[Source], settings: Settings, progress: Progress | None
) -> Iterator[tuple[Source, tuple[Described, ...] | WavewiseError]]:
    workers = min(len(found), os.cpu_count() or 1)
    if workers < 2 or sum(source.file.stat().st_size for source in found) < PARALLEL_BYTES:
        for at, source in enumerate(found):
            yield source, _describe_file(source, settings, _within(progress, at, len(found)))
        return
    # Fresh interpreters: a fork would copy the threads' locks of the column library in whatever state they are.
    spawn = multiprocessing.get_context("spawn")
    if progress:
        progress(f"describing {len(found)} traces", 0.0)
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        futures = [pool.submit(_describe_file, source, settings, None) for source in found]
        for source, future in zip(found, futures, strict=True):
            yield source, future.result()


def _within(progress: Progress | None, at: int, count: int) -> Progress | None:
    """The progress of one file as a part of all."""
    if progress is None:
        return None
    return lambda what, share: progress(what, (at + share) / count)


def _describe_file(
    source: Source, settings: Settings, progress: Progress | None
) -> tuple[Described, ...] | WavewiseError:
    """All documents and devices of one file; the error where it cannot be used (errors travel as values)."""
    gpus = catalogue(settings.gpus)
    gpu = gpus.find(settings.gpu) if settings.gpu is not None else None
    context, told_by = source.context()
    try:
        traces = read(
            source.file, progress=progress and (lambda what, share: progress(what, share * _READING))
        )
    except (InputError, NothingToAnalyzeError) as error:
        return error
    parts = [(trace, device) for trace in traces for device in trace.device_ids()]
    described: list[Described] = []
    for trace, device in parts:
        if progress:
            progress("finding the steps", _READING + (1 - _READING) * len(described) / len(parts))
        described.append(
            describe(
                trace,
                device,
                rules=_rules(settings.rules),
                gpus=gpus,
                gpu=gpu,
                context_length=context.tokens,
                context_source=told_by if context.tokens is not None else None,
            )
        )
    return tuple(described)


@lru_cache(maxsize=4)
def _rules(path: Path | None) -> FamilyRules:
    return FamilyRules.load(path)


@lru_cache(maxsize=64)
def _run_in(folder: Path) -> Run | None:
    try:
        return read_run(folder)
    except InputError:
        return None  # somebody else's run.json: nothing to learn from it


def _run_beside(file: Path) -> Run | None:
    return _run_in(file.parent)


def tokens_of(text: str) -> int | None:
    """A context length in tokens from "4096", "4k" or "12 K" (k = 1,024); None for free text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmM]?)\s*(?:tokens)?\s*", text)
    if not found:
        return None
    return round(float(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()])
