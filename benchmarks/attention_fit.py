"""Fit the planner's time model to measured rows and write src/wavewise/attention/time_model.toml.

    python benchmarks/attention_fit.py benchmarks/results/*attention-sweep*.json

The rows must hold several split counts and batch sizes of each configuration: what `benchmarks/attention.py
--sweep` records. Prints the residual of every row that misses by more than 10 %.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from wavewise.attention.configurations import configurations, footprints_for
from wavewise.attention.plan import Coefficients, DecodeShape, Rates, TimeModel, predict_us, tiles_of
from wavewise.hardware import catalogue
from wavewise.occupancy import residency

TARGET = Path(__file__).parents[1] / "src/wavewise/attention/time_model.toml"
LAUNCH_US = 2.0
"""Not separable from cta_us where every row is one wave; CUDA's own launch latency in a graph is about this."""

MEMORY_SHARE = 0.89
"""4.27 TB/s, a large device-to-device copy on the H200, over the datasheet's 4.8."""

Key = tuple[str, int, int, int]

START = {
    "cta_us": 3.0,
    "tile_latency_us": 1.5,
    "tile_sm_us": 1.0,
    "combine_us": 1.0,
    "combine_split_us": 0.02,
}


def regret(rows: dict[Key, list[dict]], predicted: dict[Key, np.ndarray]) -> None:
    """What the model's choice costs over the best of the measured rows, per batch and heads."""
    cases: dict[tuple, list[tuple[float, float, str]]] = defaultdict(list)
    for key, found in rows.items():
        for row, us in zip(found, predicted[key], strict=True):
            name = f"{row['config']} x{row['num_splits']}"
            cases[row["heads"], tuple(row["scopes"]), row["batch"]].append((us, row["median_us"], name))
    for case, found in sorted(cases.items()):
        chosen, best = min(found), min(found, key=lambda f: f[1])
        print(
            f"{case}: {chosen[2]} {chosen[1]:.1f} us, {chosen[1] / best[1] - 1:+.1%} over {best[2]} {best[1]:.1f}"
        )


def main(paths: list[str]) -> int:
    """Entry point."""
    files = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    gpu = catalogue().find(files[0]["gpu"])
    resident = {
        f.config.id: residency(gpu, f.launch((1, 1, 1))).ctas_per_sm or 1 for f in footprints_for(gpu)
    }
    configs = {c.id: c for c in configurations(gpu.compute_capability or "")}
    rows: dict[Key, list[dict]] = defaultdict(list)
    for file in files:
        for row in file["rows"]:
            config = configs.get(row.get("config") or "")
            if row["kernel"] == "wavewise" and config is not None:
                rows[config.kernel, config.block_h, config.block_t, config.warps].append(row)

    def shape_of(row: dict) -> DecodeShape:
        window, extra = (*row["scopes"], 0)[:2]
        return DecodeShape(row["batch"], row["heads"], window, extra)

    def coefficients(values: np.ndarray) -> dict[str, float]:
        found = dict(zip(START, map(float, values), strict=True))
        # An SM's throughput can't take longer for a tile than a CTA that has the SM to itself; with one CTA an
        # SM the two can't be told apart at all.
        found["tile_sm_us"] = min(found["tile_sm_us"], found["tile_latency_us"])
        return found

    def predicted(values: np.ndarray, rates: Rates, key: Key) -> np.ndarray:
        model = TimeModel(*key, LAUNCH_US, **coefficients(values))
        figures = Coefficients("", rates, (model,))
        found = []
        for row in rows[key]:
            config, shape = configs[row["config"]], shape_of(row)
            tiles = tiles_of(shape, None, config.block_t)
            found.append(
                predict_us(shape, tiles, row["num_splits"], config, gpu, resident[config.id], figures)[0]
            )
        return np.array(found)

    keys = sorted(rows)
    best: tuple[float, Rates, dict] | None = None
    for partials in np.arange(0.6, 2.01, 0.1):
        rates = Rates(MEMORY_SHARE, round(float(partials), 2))
        fits, total = {}, 0.0
        for key in keys:
            measured = np.array([row["median_us"] for row in rows[key]])
            done = least_squares(
                lambda v, r=rates, k=key, m=measured: predicted(v, r, k) / m - 1,
                list(START.values()),
                bounds=(0, 20),
                loss="soft_l1",
                f_scale=0.05,
            )
            fits[key], total = done.x, total + done.cost
        if best is None or total < best[0]:
            best = (total, rates, fits)
    assert best is not None
    _, rates, fits = best
    lines = [
        "# Coefficients of the planner's time model, in microseconds. Written by benchmarks/attention_fit.py.",
        f'source = "least squares over {sum(map(len, rows.values()))} rows measured on one {gpu.name}; other '
        "GPUs: the same kernel's figures per SM, with their own SM count, residency and memory rate (estimated)\"",
        "",
        "[rates]",
        f"memory = {rates.memory}",
        f"partials = {rates.partials}",
    ]
    for key in keys:
        measured = np.array([row["median_us"] for row in rows[key]])
        off = predicted(fits[key], rates, key) / measured - 1
        print(
            f"{key}: {len(measured)} rows, median miss {np.median(abs(off)):.1%}, worst {abs(off).max():.1%}"
        )
        for row, miss in zip(rows[key], off, strict=True):
            if abs(miss) > 0.1:
                print(
                    f"   B={row['batch']} H={row['heads']} splits={row['num_splits']}: "
                    f"{miss:+.1%} of {row['median_us']:.1f}"
                )
        lines += [
            "",
            "[[models]]",
            f'kernel = "{key[0]}"',
            f"block_h = {key[1]}",
            f"block_t = {key[2]}",
            f"warps = {key[3]}",
        ]
        lines += [f"launch_us = {LAUNCH_US}"]
        lines += [f"{name} = {value:.3f}" for name, value in coefficients(fits[key]).items()]
    regret(rows, {key: predicted(fits[key], rates, key) for key in keys})
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
