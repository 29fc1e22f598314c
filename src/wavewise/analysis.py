"""The main job: traces in, Findings out. Composes the floors below and computes nothing itself."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wavewise._version import __version__
from wavewise.decode import Described, FamilyRules, describe
from wavewise.decode.pool import Context, operating_points
from wavewise.errors import InputError, NothingToAnalyzeError, UsageError, WavewiseError
from wavewise.findings import Findings, Note, OperatingPoint
from wavewise.hardware import Catalogue, GpuSpec, catalogue
from wavewise.trace import Progress, Trace, find_traces, read

PathLike = str | os.PathLike[str]
Label = Mapping[str, str]
"""What the user says of one input: `context` is the context length, in tokens or with a k for 1,024."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to analyse.

    Attributes:
        gpu: catalogue name of the GPU, overriding what the traces say.
        gpus: a GPU catalogue file to add.
        rules: a family rule file to add (or to use instead, if it says so).
        labels: what is known of a path given on the command line.
        recursive: search folders below the given ones.
    """

    gpu: str | None = None
    gpus: Path | None = None
    rules: Path | None = None
    labels: Mapping[Path, Label] = field(default_factory=dict[Path, Label])
    recursive: bool = False


def analyze(
    paths: Sequence[PathLike] | PathLike,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    unreadable: Callable[[Path, WavewiseError], None] | None = None,
) -> Findings:
    """Analyses decode traces.

    Args:
        paths: trace files or folders of them; together they are one investigation.
        settings: see `Settings`.
        progress: called with what is being done and the share done.
        unreadable: called for each file of a *folder* that cannot be read; the rest is analysed. A file that
            was named itself and cannot be read raises.

    Returns:
        The findings, as `wavewise analyze --json` writes them.

    Raises:
        InputError: a path does not exist, cannot be read or is no trace; or nothing readable is left.
        NothingToAnalyzeError: traces without GPU activity.
        UsageError: an unknown GPU or a wrong rule file.
    """
    settings = settings or Settings()
    given = [Path(paths)] if isinstance(paths, (str, os.PathLike)) else [Path(path) for path in paths]
    if not given:
        raise UsageError("nothing to analyse: name a trace file or a folder of traces")
    gpus = catalogue(settings.gpus)
    gpu = gpus.find(settings.gpu) if settings.gpu else None
    rules = FamilyRules.load(settings.rules)
    described: list[Described] = []
    contexts: list[Context] = []
    for trace, label in _traces(given, settings, progress, unreadable):
        context = Context(tokens=_tokens(label.get("context")), label=label.get("context"))
        for one in _describe(trace, context, rules, gpus, gpu):
            described.append(one)
            contexts.append(Context(tokens=one.findings.context_length, label=context.label))
    points, notes = operating_points(described, contexts, [None] * len(described))
    return Findings(
        wavewise=__version__,
        traces=tuple(one.findings for one in described),
        notes=notes,
        operating_points=points,
        scaling_reason=_no_scaling(points, notes),
    )


def _describe(
    trace: Trace, context: Context, rules: FamilyRules, gpus: Catalogue, gpu: GpuSpec | None
) -> list[Described]:
    return [
        describe(
            trace,
            device,
            rules=rules,
            gpus=gpus,
            gpu=gpu,
            context_length=context.tokens,
            context_source="label" if context.tokens is not None else None,
        )
        for device in trace.device_ids()
    ]


def _traces(
    given: Sequence[Path],
    settings: Settings,
    progress: Progress | None,
    unreadable: Callable[[Path, WavewiseError], None] | None,
) -> Iterator[tuple[Trace, Label]]:
    """Every readable trace with the label of the path that brought it, one at a time."""
    files = [(path, file) for path in given for file in find_traces([path])]
    last: WavewiseError | None = None
    none_yet = True
    for at, (path, file) in enumerate(files):
        if progress:
            progress(f"reading {file.name}", at / len(files))
        try:
            traces = read(file)
        except (InputError, NothingToAnalyzeError) as error:
            if not path.is_dir():
                raise
            last = error
            if unreadable:
                unreadable(file, error)
            continue
        for trace in traces:
            none_yet = False
            yield trace, settings.labels.get(path, {})
    if none_yet and last is not None:
        raise last


def _tokens(text: str | None) -> int | None:
    """A context length in tokens from "4096", "4k" or "12 K" (k = 1,024); None for free text."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKmM]?)\s*(?:tokens)?\s*", text or "")
    if not found:
        return None
    return round(float(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()])


def _no_scaling(points: Sequence[OperatingPoint], notes: Sequence[Note]) -> str | None:
    stop = next((note.message for note in notes if note.level == "stop"), None)
    if stop:
        return stop
    if len({point.batch_size for point in points}) < 2:
        return "needs clean decode steps at two or more batch sizes"
    return None
