"""Records what NVIDIA's own occupancy calculator answers for every NVIDIA architecture of the catalogue.

`cuda_occupancy.h` of the CUDA toolkit is the calculator as one C header, which takes the device as numbers and so
needs no GPU and no CUDA. It is compiled here with a C compiler and asked about random launches, half of them next
to a step of one of its rules. The device numbers it is given are those of the programming guide as
tests/support/programming_guide.py holds them, not the catalogue's: the two meet in the test only.

    python tests/occupancy/occupancy_calculator.py path/to/include/cuda_occupancy.h "CUDA 13.5.37"

writes golden_calculator.json, which test_occupancy_calculator.py replays. The header is in the toolkit and in the
PyPI package nvidia-cuda-runtime.
"""

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from support.programming_guide import GUIDE, GuideLimits  # noqa: E402

GOLDEN = HERE / "golden_calculator.json"
POINTS = 600
"""Launches per capability."""

COLUMNS = ("threads", "registers", "static_shared", "dynamic_shared", "barriers")

# Reads one launch a line, after a line that describes the device; prints the CTAs per SM and, in the order of
# wavewise's own names, the CTAs that each resource allows (-1: it sets no limit).
PROGRAM = r"""
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "cuda_occupancy.h"

static int told(int limit) { return limit == INT_MAX ? -1 : limit; }

int main(void) {
  struct cudaOccDeviceProp device;
  struct cudaOccDeviceState state;
  int threads, registers, statics, dynamic, barriers;
  memset(&device, 0, sizeof device);
  memset(&state, 0, sizeof state);
  state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
  device.warpSize = 32;
  device.numSms = 1;
  if (scanf("%d %d %d %d %d %d %zu %zu %zu %zu", &device.computeMajor, &device.computeMinor,
            &device.maxThreadsPerBlock, &device.maxThreadsPerMultiprocessor, &device.regsPerBlock,
            &device.regsPerMultiprocessor, &device.sharedMemPerBlock, &device.sharedMemPerMultiprocessor,
            &device.sharedMemPerBlockOptin, &device.reservedSharedMemPerBlock) != 10)
    return 2;
  while (scanf("%d %d %d %d %d", &threads, &registers, &statics, &dynamic, &barriers) == 5) {
    struct cudaOccFuncAttributes kernel;
    struct cudaOccResult result;
    memset(&kernel, 0, sizeof kernel);
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = statics;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin - statics;
    kernel.numBlockBarriers = barriers;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, dynamic))
      return 3;
    printf("%d %d %d %d %d %d\n", result.activeBlocksPerMultiprocessor, told(result.blockLimitWarps),
           told(result.blockLimitRegs), told(result.blockLimitSharedMem), told(result.blockLimitBlocks),
           told(result.blockLimitBarriers));
  }
  return 0;
}
"""


def device_line(capability: str, guide: GuideLimits) -> str:
    """The device as the calculator's ten numbers; 1 KB a CTA is reserved from 8.0 on, as the guide says."""
    major, minor = capability.split(".")
    shared, optin = guide.shared_memory_per_sm_kb * 1024, guide.shared_memory_per_cta_kb * 1024
    return " ".join(
        map(
            str,
            (
                major,
                minor,
                guide.threads_per_cta,
                guide.threads_per_sm,
                guide.registers_per_cta,
                guide.registers_per_sm,
                48 * 1024,
                shared,
                optin,
                guide.reserved_shared_memory_kb * 1024,
            ),
        )
    )


def drawn(guide: GuideLimits, unit: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Launches in the order of COLUMNS: small CTAs as often as large ones, half of them next to a step."""
    optin, shared = guide.shared_memory_per_cta_kb * 1024, guide.shared_memory_per_sm_kb * 1024
    points: list[tuple[int, ...]] = []
    while len(points) < POINTS:
        threads = int(2 ** rng.uniform(0, 10)) if rng.random() < 0.5 else int(rng.integers(1, 1025))
        if rng.random() < 0.5:
            threads = max(1, min(1024, threads // 32 * 32 + int(rng.integers(-1, 2))))
        registers = int(rng.integers(1, 256)) if rng.random() < 0.7 else int(rng.integers(8, 40))
        if threads * registers > 65_536 and rng.random() < 0.9:
            continue
        statics = int(rng.choice([0, 0, 0, 16, 1000, 4096, 20_000, 49_152]))
        how = rng.random()
        if how < 0.35:
            dynamic = 0
        elif how < 0.55:
            dynamic = int(rng.integers(0, optin - statics + 1))
        else:
            step = shared // int(rng.integers(1, 33)) // unit * unit - guide.reserved_shared_memory_kb * 1024
            dynamic = step - statics + int(rng.integers(-1, 2))
        barriers = int(rng.choice([0, 1, 1, 1, 1, 2, 3, 5, 8, 16]))
        points.append((threads, registers, statics, max(0, min(optin - statics, dynamic)), barriers))
    return points


def main(header: str, release: str) -> None:
    rng = np.random.default_rng(20261130)
    recorded = {}
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "calculator.c"), Path(folder, "calculator")
        source.write_text(PROGRAM)
        subprocess.run(["cc", "-O1", "-I", Path(header).parent, source, "-o", program], check=True)
        for capability, guide in GUIDE.items():
            points = drawn(guide, 256 if capability.startswith("7") else 128, rng)
            asked = "\n".join([device_line(capability, guide), *(" ".join(map(str, p)) for p in points)])
            done = subprocess.run([program], input=asked, capture_output=True, text=True, check=True)
            answers = [list(map(int, line.split())) for line in done.stdout.splitlines()]
            assert len(answers) == len(points)
            columns = [*zip(*points, strict=True), *zip(*answers, strict=True)]
            names = (
                *COLUMNS,
                "ctas_per_sm",
                "warps",
                "by_registers",
                "shared_memory",
                "cta_slots",
                "by_barriers",
            )
            recorded[capability] = dict(zip(names, columns, strict=True))
    origin = {
        "function": "cudaOccMaxActiveBlocksPerMultiprocessor",
        "header": "cuda_occupancy.h",
        "release": release,
        "recorded": datetime.now(UTC).date().isoformat(),
    }
    GOLDEN.write_text(json.dumps({"origin": origin, "points": recorded}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
