"""Memory: the frames of a large trace take little more than themselves, however much was read for them."""

import subprocess
import sys

import pytest

_MAKE_FRAMES = """
import resource
import numpy as np
from wavewise.trace.kineto.columns import Frames
from wavewise.trace.kineto.events import KERNEL, LAUNCH, MARKER, Rows, Tables
from wavewise.trace.notes import Notes

tables = Tables()
for key in ((KERNEL, "k", None, None), (LAUNCH, "cudaLaunchKernel", 1, 2), (MARKER, "step", 1, 2)):
    tables.keys.of(key)
for grid in range(1, 100):
    tables.shapes.of((0, 7, None, grid, 1, 1, 128, 1, 1, 32, 0, 0.5, 1.0))

def made(count):
    # Kernels, a launch or a marker now and then, all out of order by a few places.
    number = np.arange(count)
    key = np.where(number % 1000 == 0, 1 + number // 1000 % 2, 0).astype(np.int32)
    columns = {
        "key": key, "shape": np.where(key == 0, number % 99, -1).astype(np.int32), "start": (number ^ 6) * 1000,
        "duration": np.full(count, 900), "correlation": number // 2,
    }
    # As the processes hand them over: stretches of whole columns.
    parts = [
        Rows(**{name: column[at : at + 10_000] for name, column in columns.items()}, events=10_000, notes=Notes())
        for at in range(0, count, 10_000)
    ]
    del columns, number, key
    return Frames(parts, tables, Notes())

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

small = made(10_000)  # whatever is loaded or set up once
before = peak()
count = 2_000_000
frames = made(count)
columns = sum(frame.estimated_size() for frame in (frames.operations, frames.launches, frames.markers))
assert len(frames.operations) + len(frames.launches) + len(frames.markers) == count
assert frames.operations["start_ns"].is_sorted() and frames.launches["start_ns"].is_sorted()
print(peak() - before, columns, count * 32)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident sets are counted in another unit")
def test_rows_and_frames_do_not_lie_in_memory_side_by_side() -> None:
    ran = subprocess.run([sys.executable, "-c", _MAKE_FRAMES], check=True, capture_output=True, text=True)
    grown, columns, rows = map(int, ran.stdout.split())
    assert columns > 2 * rows  # else there is nothing to see
    # Side by side they would take that much and, beside it, what sorting and moving the rows takes.
    assert grown < columns + rows, (grown, columns, rows)
