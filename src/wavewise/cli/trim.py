"""`wavewise trim`: a small part of a trace that analyses to the same decode rows, safe to share."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavewise.cli import output
from wavewise.errors import NothingToAnalyzeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavewise.decode import Segmentation
    from wavewise.findings import StepRow


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("trim", no_args_is_help=True)(trim)


def trim(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The trace file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Where to write: .json, or .json.gz. Else here, named after TRACE: NAME.trim.json.gz.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Clean steps to keep of each batch size, and their neighbours."
        ),
    ] = 3,
    only: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="A:B", help="Keep the steps A to B (numbers as in the findings), clean or not."
        ),
    ] = None,
    scrub: Annotated[
        bool,
        typer.Option("--scrub", help="Take out paths, host names, user strings, process ids, times of day."),
    ] = False,
    document: Annotated[
        int, typer.Option(metavar="N", min=0, help="Which document of the file, where it holds several.")
    ] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.")] = False,
) -> None:
    """Write a small part of a trace that analyses to the same decode steps.

    By default: N clean decode steps of each batch size, and the step on either side of them, which an analysis
    needs to tell that they are clean. The result is a Kineto trace, whatever TRACE was; markers in it tell where
    time was cut out, and an analysis does not count that as idle.

    Example: wavewise trim trace.json.gz --steps 3 --scrub -o small.json.gz
    """
    import gzip

    import numpy as np

    from wavewise.decode import segment
    from wavewise.decode.cuts import between, is_cut, with_cuts
    from wavewise.decode.markers import parse
    from wavewise.trace import read
    from wavewise.trace import trim as trimming

    out = out or Path(f"{_stem(trace)}.trim.json.gz")
    if not out.name.endswith((".json", ".json.gz")):
        raise UsageError(f"{out}: the result is Kineto JSON; name it .json or .json.gz")
    wanted = _range(only) if only is not None else None
    output.refuse_existing([out], force)
    with output.progress_on_stderr() as progress:
        traces = {one.document: one for one in read(trace, progress=progress)}
    if document not in traces:
        raise UsageError(f"{trace}: no document {document} with GPU activity (there are: {sorted(traces)})")
    whole = traces[document]
    keep = np.zeros(len(whole.operations), bool)
    stretches: list[tuple[int, int]] = []
    cuts: dict[int, list[tuple[int, int]]] = {}
    for device in whole.device_ids():
        properties = whole.properties_of(device)
        found = segment(whole, device, sm_count=properties.sm_count if properties else None)
        chosen = _clean(found.rows, steps) if wanted is None else _within(found.rows, wanted)
        on_device = np.flatnonzero(whole.operations["device"].to_numpy() == device)
        keep[on_device] = np.isin(found.step, chosen)
        cuts[device] = between(found.step, found.operations.start_ns, found.operations.end_ns, chosen)
        stretches += _host_stretches(found, chosen)
    if not keep.any():
        what = (
            f"no clean decode step in {trace}"
            if wanted is None
            else f"no GPU work in steps {only} of {trace}"
        )
        raise NothingToAnalyzeError(
            f"{what}; see `wavewise analyze {trace}`, or choose steps with --range A:B"
        )
    small = with_cuts(trimming.cut(whole, keep, _merged(stretches)), whole, cuts)
    if scrub:
        small = trimming.scrub(small, lambda name: parse(name) is not None or is_cut(name))
    data = trimming.to_kineto(small)
    output.write_files({out: gzip.compress(data, 6, mtime=0) if out.name.endswith(".gz") else data})
    typer.echo(
        f"{out}: {len(small.operations):,} of {len(whole.operations):,} GPU operations"
        + ("" if scrub else "; not scrubbed: names and ids are those of the trace (--scrub takes them out)")
    )


def _stem(trace: Path) -> str:
    """The trace's name without what tells its format."""
    return re.sub(r"(\.(json|sqlite))?(\.(gz|zst))?$", "", trace.name) or "trace"


def _range(text: str) -> range:
    first, colon, last = text.partition(":")
    if not (first.isdigit() and (last or first).isdigit() and (colon or not last)):
        raise UsageError(f"--range {text}: two step numbers are meant, such as 4:9")
    return range(int(first), int(last or first) + 1)


def _within(rows: "Sequence[StepRow]", wanted: range) -> list[int]:
    return [row.index for row in rows if row.index in wanted]


def _clean(rows: "Sequence[StepRow]", count: int) -> list[int]:
    """Per batch size, the run of up to `count` clean steps whose median step time is nearest to that of all of
    them, with the step before and the step after.
    """
    import statistics

    chosen: set[int] = set()
    sizes = {(row.batch_size, row.bucket) for row in rows if row.clean}
    for size in sizes:
        clean = [row for row in rows if row.clean and (row.batch_size, row.bucket) == size]
        typical = statistics.median(row.step_ns or 0 for row in clean)
        runs = _runs([row.index for row in clean], count)
        times = {row.index: row.step_ns or 0 for row in clean}
        best = min(
            runs, key=lambda run: (-len(run), abs(statistics.median(times[i] for i in run) - typical), run[0])
        )
        chosen.update(range(best[0] - 1, best[-1] + 2))
    return sorted(chosen)


def _runs(indices: list[int], count: int) -> list[list[int]]:
    """Every stretch of up to `count` numbers that follow one another."""
    runs: list[list[int]] = []
    for at in range(len(indices)):
        run = indices[at : at + count]
        while run[-1] - run[0] != len(run) - 1:
            run.pop()
        runs.append(run)
    return runs


def _host_stretches(found: "Segmentation", chosen: list[int]) -> list[tuple[int, int]]:
    """From each chosen step's beginning on the host to the next step's.

    A step known only by structure begins with its first launch.
    """
    begins: list[int] = []
    for row in found.rows:
        begin = row.host_start_ns
        if begin is None:
            launched = found.operations.launch_ns[found.step == row.index]
            begin = int(launched.min()) if len(launched) else (begins[-1] if begins else 0)
        begins.append(begin)
    begins.append((1 << 63) - 1)
    return [(begins[i], begins[i + 1]) for i in chosen]


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
