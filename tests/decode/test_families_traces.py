"""The families on recorded traces, against sums taken from the raw JSON without any of the package's code."""

import gzip
import json
import os
import sqlite3
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean, median

import pytest

from wavewise.decode.families import FamilyRules

CORPUS = os.environ.get("WAVEWISE_CORPUS")
pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(CORPUS is None, reason="WAVEWISE_CORPUS does not name the folder of recorded traces"),
]
SWEEP = {1: "bs001", 8: "bs008", 16: "bs016", 32: "bs032", 64: "bs064", 80: "bs080"}
GPU_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}


def events(path: Path) -> list[dict]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def gpu_operations(path: Path) -> list[tuple[str, str, float, int]]:
    """(name, kind, microseconds, correlation) of every GPU operation."""
    return [
        (event["name"], GPU_KINDS[event["cat"]], float(event["dur"]), event["args"].get("correlation", 0))
        for event in events(path)
        if event.get("ph") == "X" and event.get("cat") in GPU_KINDS
    ]


def replay_sums(path: Path) -> list[Counter]:
    """Microseconds per family of each graph replay in a trace."""
    launches = {
        event["args"]["correlation"]
        for event in events(path)
        if event.get("ph") == "X" and event.get("name") == "cudaGraphLaunch"
    }
    rules = FamilyRules.load()
    sums: dict[int, Counter] = defaultdict(Counter)
    for name, kind, microseconds, correlation in gpu_operations(path):
        if correlation in launches:
            sums[correlation][rules.classify([name], [kind])[0]] += microseconds
    return list(sums.values())


def h200(name: str) -> Path:
    return Path(CORPUS or "") / "traces" / "h200-vllm-dsv4" / name


# Sum time per replay in us (means over a file's eight replays), from the recording's own notes: MoE GEMM,
# attention split, schedule metadata.
@pytest.mark.parametrize(
    ("batch", "moe", "split", "schedule"),
    [
        (1, 368, 126, 206),
        (8, 910, 123, 213),
        (16, 1556, 147, 219),
        (32, 2633, 172, 231),
        (64, 4207, 230, 253),
        (80, 4748, 245, 272),
    ],
)
def test_sums_of_the_recorded_sweep(batch: int, moe: float, split: float, schedule: float) -> None:
    sums = replay_sums(h200(f"context4k/{SWEEP[batch]}.json.gz"))
    assert len(sums) == 8
    # Tolerance: the notes are rounded to whole microseconds.
    for family, expected in (("moe_gemm", moe), ("attention_split", split), ("attention_schedule", schedule)):
        assert mean(replay[family] for replay in sums) == pytest.approx(expected, abs=0.51), family


def test_longer_context_costs_split_and_indexer_but_not_the_experts() -> None:
    short, long = (replay_sums(h200(f"context{length}/bs064.json.gz")) for length in ("4k", "12k"))

    def ratio(family: str) -> float:
        return median(replay[family] for replay in long) / median(replay[family] for replay in short)

    assert mean(replay["attention_split"] for replay in long) == pytest.approx(253, abs=0.51)
    assert ratio("indexer") > 1.25
    assert ratio("moe_gemm") == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    "name", [f"context4k/{file}.json.gz" for file in SWEEP.values()] + ["context12k/bs064.json.gz"]
)
def test_replays_of_the_sweep_lie_in_named_families(name: str) -> None:
    for replay in replay_sums(h200(name)):
        assert replay["other"] <= 0.03 * replay.total()


def test_indexer_holds_no_router_and_no_compressor() -> None:
    names = sorted({name for name, kind, _, _ in gpu_operations(h200("mixed.json.gz")) if kind == "kernel"})
    families = dict(zip(names, FamilyRules.load().classify(names), strict=True))
    indexer = {name for name, family in families.items() if family == "indexer"}
    assert any("mqa_logits" in name for name in indexer)
    assert not any("_dsv4_topk" in name or "compress" in name or "HashTopk" in name for name in indexer)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("tracelens-mi300x-sglang-decode.json.gz", 0.01),
        ("tracelens-mi300x-vllm-decode-full-graph.json.gz", 0.01),
        ("tracelens-b200-eager.json.gz", 0.01),
        ("tracelens-h100-qwen-eager.json.gz", 0.01),
    ],
)
def test_public_engine_traces_leave_little_unnamed(name: str, share: float) -> None:
    operations = gpu_operations(Path(CORPUS or "") / "traces" / "public" / name)
    families = FamilyRules.load().classify([row[0] for row in operations], [row[1] for row in operations])
    sums: Counter = Counter()
    for (_, _, microseconds, _), family in zip(operations, families, strict=True):
        sums[family] += microseconds
    assert sums["other"] <= share * sums.total()


def test_training_kernels_stay_other() -> None:
    """A convolutional network's kernels belong to no family of an LLM decode step: coverage is not forced."""
    operations = gpu_operations(Path(CORPUS or "") / "traces" / "public" / "hta-ns-resolution.json.gz")
    names = sorted({name for name, kind, _, _ in operations if kind == "kernel" and "cudnn" in name})
    assert names
    assert set(FamilyRules.load().classify(names)) == {"other"}


def test_nsight_spelling_of_names() -> None:
    path = Path(CORPUS or "") / "traces" / "public" / "nsysai-h100-2gpu-1s.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        rows = database.execute(
            "SELECT s.value, SUM(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
        ).fetchall()
    families = FamilyRules.load().classify([name for name, _ in rows])
    sums: Counter = Counter()
    for (_, nanoseconds), family in zip(rows, families, strict=True):
        sums[family] += nanoseconds
    assert sums["other"] <= 0.01 * sums.total()
    assert sums["dense_gemm"] > 0.5 * sums.total()
