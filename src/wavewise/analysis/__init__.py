"""The main job: traces in, Findings out. Composes the floors below and computes nothing itself."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from wavewise._version import __version__
from wavewise.analysis.conclusions import conclude
from wavewise.analysis.files import (
    DescribedFile,
    Source,
    Unreadable,
    describe_files,
    sources,
    untraced_runs,
)
from wavewise.analysis.recordings import (
    Runs,
    known_with,
    recorded_points,
    recordings,
    runs_of,
    telemetry_of,
    unfinished,
)
from wavewise.analysis.settings import Label as Label
from wavewise.analysis.settings import Settings as Settings
from wavewise.decode import FamilyRules
from wavewise.decode.pool import Context, operating_points
from wavewise.decode.ranks import compare_ranks
from wavewise.errors import UsageError
from wavewise.findings import Findings, Note
from wavewise.hardware import catalogue
from wavewise.trace import Progress

PathLike = str | os.PathLike[str]


def analyze(
    paths: Sequence[PathLike] | PathLike,
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
    unreadable: Unreadable | None = None,
) -> Findings:
    """Analyses decode traces.

    Args:
        paths: trace files or folders of them; together they are one investigation. A recording's folder
            without a trace gives what the recorder measured, with every figure that needs a trace null.
        settings: see `Settings`.
        progress: called with what is being done and the share done.
        unreadable: called for each file of a *folder* that cannot be read; the rest is analysed. A file that
            was named itself and cannot be read raises.

    Returns:
        The findings, as `wavewise analyze --json` writes them.

    Raises:
        InputError: a path does not exist, cannot be read or is no trace; or nothing readable is left.
        NothingToAnalyzeError: traces without GPU activity, or a recording that has measured nothing yet.
        UsageError: an unknown GPU or a wrong rule file.
    """
    settings = settings or Settings()
    named = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if "" in named:
        raise UsageError("a path is empty: name a trace file or a folder of traces (the current one is '.')")
    given = [Path(path) for path in named]
    if not given:
        raise UsageError("nothing to analyse: name a trace file or a folder of traces")
    gpus = catalogue(settings.gpus)
    if settings.gpu is not None:
        gpus.find(settings.gpu)
    FamilyRules.load(settings.rules)
    untraced = untraced_runs(given, settings)
    found = sources([path for path in given if path not in untraced], settings)
    files = describe_files(found, settings, progress, unreadable)
    runs = runs_of((file.source for file in files), untraced)
    settings = dataclasses.replace(settings, known=known_with(settings.known, runs.values()))
    return conclude(_measured(files, runs, untraced), settings, gpus, telemetry_of(runs))


def _measured(files: Sequence[DescribedFile], runs: Runs, untraced: Runs) -> Findings:
    """The measurements of all files and recordings as one value."""
    pairs = [(file.source, one) for file in files for one in file.described]
    contexts = [
        Context(tokens=one.findings.context_length, label=source.label.get("context"))
        for source, one in pairs
    ]
    described = [one for _, one in pairs]
    points, notes = operating_points(described, contexts, [source.model() for source, _ in pairs])
    traces = tuple(replace(one.findings, model=source.model()) for source, one in pairs)
    recorded = recorded_points(runs, traces)
    return Findings(
        wavewise=__version__,
        traces=traces,
        notes=(*_named_again(file.source for file in files), *unfinished(runs), *notes),
        ranks=compare_ranks(traces),
        operating_points=points,
        recorded=recorded,
        recordings=recordings(runs, recorded, untraced),
    )


def _named_again(named: Iterable[Source]) -> list[Note]:
    return [
        Note(
            level="info",
            code="named_again",
            message=f"{source.file.name} is named {source.named_times} times; it is one recording and counts once.",
        )
        for source in named
        if source.named_times > 1
    ]
