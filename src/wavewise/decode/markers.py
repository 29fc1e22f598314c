"""Engine step markers: what a marker's name says of the step.

The grammars are those that the engines write today:

- vLLM, `GPUModelRunner.execute_model` (v1): `execute_context_A(T)_generation_B(N)`: A requests prefill T tokens,
  B requests decode N tokens.
- vLLM and SGLang builds with the long form: `execute_T_context_A(sq..sk..)_generation_B(sq..sk..)`, where sq are
  query tokens and sk key/value tokens over all requests of the group.
- SGLang, `Scheduler.run_batch`: `step[DECODE bs=32]`, `step[EXTEND bs=15 toks=15360]`, MIXED, IDLE and the
  speculative TARGET_VERIFY, DRAFT_EXTEND.
- graph capture: `capture_N_...`.
- PyTorch's own `ProfilerStep#n`, which tells where a step is and nothing else.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

_VLLM = re.compile(r"execute_context_(\d+)\((\d+)(?:_\d+)?\)_generation_(\d+)\((\d+)(?:_\d+)?\)")
_LONG = re.compile(
    r"execute_(\d+)_context_(\d+)\(sq(\d+)sk(\d+)[^)]*\)_generation_(\d+)\(sq(\d+)sk(\d+)[^)]*\)"
)
_SGLANG = re.compile(r"step\[(?P<mode>[A-Z_]+)(?P<fields>[^\]]*)\]")
_FIELD = re.compile(r"(\w+)=(\d+)")
_CAPTURE = re.compile(r"(?i)^(?:cuda_?graph_?)?capture_(\d+)(?:_|$)")
_WARMUP = re.compile(r"(?i)^(?:kernel_)?warm_?up(?:_|\b|\[)|^dummy_run\b")
_PROFILER_STEP = re.compile(r"^ProfilerStep#?\s*(\d+)$")

_SGLANG_KINDS = {
    "DECODE": "decode",
    "TARGET_VERIFY": "decode",
    "EXTEND": "prefill",
    "PREFILL": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DRAFT_EXTEND": "prefill",
    "MIXED": "mixed",
    "IDLE": "idle",
    "DUMMY_FIRST": "warmup",
}


@dataclass(frozen=True, slots=True)
class MarkerFacts:
    """What one marker's name says; None where it does not."""

    kind: str
    engine: str
    batch_size: int | None = None
    context_requests: int | None = None
    context_tokens: int | None = None
    generation_tokens: int | None = None
    kv_tokens: int | None = None


def parse(name: str) -> MarkerFacts | None:
    """The facts in a marker's name, None for a name that is no engine step."""
    if found := _VLLM.search(name):
        a, t, b, n = (int(x) for x in found.groups())
        return _by_counts("vllm", a, t, b, n, None)
    if found := _LONG.search(name):
        _, a, sq_context, _, b, sq, sk = (int(x) for x in found.groups())
        return _by_counts("vllm", a, sq_context, b, sq, sk)
    if found := _SGLANG.search(name):
        return _sglang(found)
    if found := _CAPTURE.search(name):
        return MarkerFacts(kind="capture", engine="unknown", batch_size=None)
    if _WARMUP.search(name):
        return MarkerFacts(kind="warmup", engine="unknown")
    if _PROFILER_STEP.search(name):
        return MarkerFacts(kind="unknown", engine="profiler")
    return None


def _by_counts(
    engine: str, context_requests: int, context_tokens: int, decoding: int, tokens: int, kv_tokens: int | None
) -> MarkerFacts:
    if context_requests and decoding:
        kind = "mixed"
    elif context_requests:
        kind = "prefill"
    elif decoding:
        kind = "decode"
    else:
        kind = "idle"
    return MarkerFacts(
        kind=kind,
        engine=engine,
        batch_size=decoding,
        context_requests=context_requests,
        context_tokens=context_tokens,
        generation_tokens=tokens,
        kv_tokens=kv_tokens,
    )


def _sglang(found: re.Match[str]) -> MarkerFacts:
    fields = {key: int(value) for key, value in _FIELD.findall(found["fields"])}
    kind = _SGLANG_KINDS.get(found["mode"], "unknown")
    size = fields.get("bs")
    tokens = fields.get("toks", fields.get("tokens"))
    if kind == "decode":
        return MarkerFacts(
            kind=kind,
            engine="sglang",
            batch_size=size,
            context_requests=0,
            context_tokens=0,
            generation_tokens=tokens if tokens is not None else (size if found["mode"] == "DECODE" else None),
        )
    if kind == "prefill":
        return MarkerFacts(
            kind=kind,
            engine="sglang",
            batch_size=0,
            context_requests=size,
            context_tokens=tokens,
            generation_tokens=0,
        )
    if kind == "idle":
        return MarkerFacts(kind=kind, engine="sglang", batch_size=0, context_requests=0, context_tokens=0)
    return MarkerFacts(kind=kind, engine="sglang", batch_size=None, context_tokens=tokens)


@dataclass(frozen=True, slots=True)
class StepMarkers:
    """The outermost engine markers of a trace in time order.

    Attributes:
        start_ns, end_ns: int64 arrays, one entry a step.
        facts, names: what each says.
        source: "markers" or "profiler_steps".
        engine: "vllm", "sglang" or "unknown".
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    facts: tuple[MarkerFacts, ...]
    names: tuple[str, ...]
    source: str
    engine: str

    def __len__(self) -> int:
        return len(self.facts)


def step_markers(markers: pl.DataFrame, threads: frozenset[tuple[int, int]] | None = None) -> StepMarkers:
    """The markers that delimit steps: engine markers, else ProfilerStep, outermost only.

    Args:
        markers: the trace's marker frame, sorted by start, longer first.
        threads: (pid, tid) that launched work on the device in question; when several threads carry engine
            markers, only those that launched are used (one worker thread per GPU in one process).
    """
    names = markers["name"].unique().to_list()
    known = {name: facts for name in names if (facts := parse(name)) is not None}
    engine_names = [n for n, facts in known.items() if facts.engine != "profiler"]
    chosen = engine_names or list(known)
    rows = markers.filter(pl.col("name").is_in(chosen))
    if threads:
        mine = rows.filter(
            pl.struct("pid", "tid").map_elements(
                lambda at: (at["pid"], at["tid"]) in threads, return_dtype=pl.Boolean
            )
        )
        rows = mine if mine.height else rows
    rows = _outermost(rows)
    facts = tuple(known[name] for name in rows["name"].to_list())
    engines = {facts.engine for facts in known.values()} - {"unknown", "profiler"}
    # Only SGLang writes `step[...]`; the long form beside it, around it or inside it, is its own too.
    engine = "sglang" if "sglang" in engines else next(iter(engines), "unknown")
    start = rows["start_ns"].to_numpy()
    return StepMarkers(
        start_ns=start,
        end_ns=start + rows["duration_ns"].fill_null(0).to_numpy(),
        facts=_with_nested(facts, rows, markers, known),
        names=tuple(rows["name"].to_list()),
        source="markers" if engine_names else "profiler_steps",
        engine=engine,
    )


def _outermost(rows: pl.DataFrame) -> pl.DataFrame:
    """Drops every marker that lies wholly inside an earlier one (rows: sorted by start, longer first)."""
    if rows.height < 2:
        return rows
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].fill_null(0).to_numpy()
    reached = np.maximum.accumulate(end)
    nested = np.zeros(len(start), dtype=bool)
    nested[1:] = end[1:] <= reached[:-1]
    return rows.filter(~pl.Series(nested))


def _with_nested(
    facts: tuple[MarkerFacts, ...], rows: pl.DataFrame, markers: pl.DataFrame, known: dict[str, MarkerFacts]
) -> tuple[MarkerFacts, ...]:
    """Takes the key/value tokens from a long-form marker nested in one that does not tell them."""
    inner = [name for name, f in known.items() if f.kv_tokens is not None]
    if not inner or all(f.kv_tokens is not None for f in facts):
        return facts
    found = markers.filter(pl.col("name").is_in(inner))
    starts = rows["start_ns"].to_numpy()
    ends = starts + rows["duration_ns"].fill_null(0).to_numpy()
    at: list[int] = (np.searchsorted(starts, found["start_ns"].to_numpy(), side="right") - 1).tolist()
    result = list(facts)
    for index, name, start in zip(at, found["name"].to_list(), found["start_ns"].to_list(), strict=True):
        if index < 0 or start > ends[index]:
            continue
        outer, nested = result[index], known[name]
        if outer.kv_tokens is None and outer.batch_size == nested.batch_size:
            tokens = outer.generation_tokens
            result[index] = replace(
                outer,
                generation_tokens=nested.generation_tokens if tokens is None else tokens,
                kv_tokens=nested.kv_tokens,
            )
    return tuple(result)
