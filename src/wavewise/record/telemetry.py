"""GPU telemetry beside the load: a sampler in its own process, so that neither disturbs the other.

    python -m wavewise.record.telemetry --out telemetry.csv [--seconds 600] [--period-ms 100] [--gpus 0,1]

runs the same sampler by hand, on the server's host when that is another one; `wavewise record --telemetry
FILE` then takes the file over. The columns are documented in docs/record.md.
"""

import argparse
import csv
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import msgspec

from wavewise.errors import InputError
from wavewise.record.folder import PART, TELEMETRY_FILE, put_in_place
from wavewise.record.model import Telemetry, TelemetryGpu

DEFAULT_PERIOD_MS = 100.0
_START_TIMEOUT_S = 20.0
_REQUIRED_COLUMNS = {"ts_unix_s", "gpu", "sm_activity_percent"}


class _Hello(msgspec.Struct, frozen=True):
    """The sampler's first line: what it samples, or why it cannot."""

    driver: str | None = None
    gpus: tuple[TelemetryGpu, ...] = ()
    reason: str | None = None


class Sampler:
    """A running sampler process. It ends when told, or when this process dies (its stdin closes)."""

    def __init__(self, out: Path, gpus: tuple[int, ...] | None, period_ms: float = DEFAULT_PERIOD_MS) -> None:
        command = [sys.executable, "-m", "wavewise.record.telemetry", "--out", str(out), "--follow-stdin"]
        command += ["--period-ms", str(period_ms)]
        command += ["--gpus", ",".join(map(str, gpus))] if gpus else []
        self._period_ms = period_ms
        # A session of its own keeps Ctrl-C at the terminal from reaching it before the recorder is done.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._hello = self._first_line()

    def _first_line(self) -> _Hello:
        assert self._process.stdout is not None
        timer = threading.Timer(_START_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        try:
            return msgspec.json.decode(line, type=_Hello)
        except msgspec.DecodeError:
            return _Hello(reason="the sampler did not start")

    @property
    def telemetry(self) -> Telemetry:
        """What is being recorded."""
        if self._hello.reason is not None:
            return Telemetry(source="local", reason=self._hello.reason)
        return Telemetry(
            file=TELEMETRY_FILE,
            source="local",
            period_ms=self._period_ms,
            driver=self._hello.driver,
            gpus=self._hello.gpus,
        )

    def stop(self) -> None:
        """End the sampling; what was sampled is on disk."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def check_file(choice: str) -> None:
    """Refuse a telemetry file that cannot be taken over, before anything is sent.

    Args:
        choice: a file, or one of the words that mean none.

    Raises:
        InputError: it cannot be read or is not one of the sampler's files.
    """
    if choice in ("auto", "local", "none"):
        return
    file = Path(choice)
    try:
        with file.open(newline="") as source:
            columns = next(csv.reader(source), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read as telemetry ({error})") from error
    if missing := _REQUIRED_COLUMNS - set(columns):
        raise InputError(
            f"{file}: not a telemetry file (no column "
            f"{', '.join(sorted(missing))}); record one with `python -m "
            f"wavewise.record.telemetry --out {file.name}`"
        )


def take_over(file: Path, folder: Path) -> Telemetry:
    """Copy a telemetry file recorded elsewhere into the run folder; samples that are there already stay.

    Raises:
        InputError: it cannot be read or is not one of the sampler's files.
    """
    check_file(str(file))
    try:
        _join(file, folder / TELEMETRY_FILE)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read as telemetry ({error})") from error
    return Telemetry(file=TELEMETRY_FILE, source=f"file {file.name}", samples=count_samples(folder))


def _join(file: Path, ours: Path) -> None:
    """The samples of both files under the columns of both, each once, in the order of their time."""
    rows: dict[tuple[str | None, str | None], dict[str, str]] = {}
    columns: dict[str, None] = {}
    for source in (ours, file):
        if source == ours and not source.exists():
            continue
        with source.open(newline="") as lines:
            reader = csv.DictReader(lines)
            columns |= dict.fromkeys(reader.fieldnames or ())
            for row in reader:
                if None not in row and None not in row.values():  # a row cut off when its sampler was killed
                    rows[row["ts_unix_s"], row["gpu"]] = row
    temporary = ours.with_name(f".{ours.name}{PART}")
    with temporary.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(columns), restval="")
        writer.writeheader()
        writer.writerows(sorted(rows.values(), key=_at))
    put_in_place(temporary, ours)


def _at(row: dict[str, str]) -> float:
    try:
        return float(row["ts_unix_s"])
    except ValueError:
        return 0.0


def count_samples(folder: Path) -> int:
    """Rows in the run folder's telemetry file."""
    try:
        with (folder / TELEMETRY_FILE).open("rb") as rows:
            return max(0, sum(1 for _ in rows) - 1)
    except OSError:
        return 0


def main(argv: list[str] | None = None) -> int:
    """The sampler process. Returns 0, or 2 when there is nothing to sample."""
    parser = argparse.ArgumentParser(
        prog="python -m wavewise.record.telemetry", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="CSV file; rows are appended to an earlier one"
    )
    parser.add_argument("--period-ms", type=float, default=DEFAULT_PERIOD_MS, help="time between samples")
    parser.add_argument("--seconds", type=float, help="how long; without it until interrupted")
    parser.add_argument("--gpus", help="indices like 0,1; all without it")
    parser.add_argument("--follow-stdin", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    from wavewise.record import nvml

    try:
        nvml.pynvml.nvmlInit()
        count = nvml.pynvml.nvmlDeviceGetCount()
        chosen = [int(part) for part in options.gpus.split(",")] if options.gpus else list(range(count))
        gpus = [nvml.Gpu(index) for index in chosen]
        driver = str(nvml.pynvml.nvmlSystemGetDriverVersion())
    except (nvml.pynvml.NVMLError, ValueError) as error:
        _say(_Hello(reason=f"no NVIDIA GPU can be read here ({error})"))
        return 2
    if not gpus:
        _say(_Hello(reason="this machine has no NVIDIA GPU"))
        return 2
    _say(_Hello(driver=driver, gpus=tuple(gpu.describe() for gpu in gpus)))
    _sample_until(
        _stop_event(options.follow_stdin, options.seconds), gpus, options.out, options.period_ms / 1e3
    )
    return 0


def _say(hello: _Hello) -> None:
    sys.stdout.write(msgspec.json.encode(hello).decode() + "\n")
    sys.stdout.flush()


def _stop_event(follow_stdin: bool, seconds: float | None) -> threading.Event:
    """Set by a signal, by the end of stdin, or when the time is up."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    if follow_stdin:
        threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()
    return stop


def _sample_until(stop: threading.Event, gpus: "list[nvml.Gpu]", out: Path, period_s: float) -> None:  # type: ignore[name-defined] # noqa: F821
    from wavewise.record.nvml import COLUMNS

    fresh = not out.exists() or out.stat().st_size == 0
    with out.open("a", newline="", buffering=1) as rows:
        if not fresh and not out.read_bytes().endswith(b"\n"):
            rows.write("\r\n")  # a killed sampler may leave half a row
        writer = csv.DictWriter(rows, COLUMNS)
        if fresh:
            writer.writeheader()
        due = time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + period_s, time.monotonic())
            for gpu in gpus:
                writer.writerow(gpu.sample(time.time()))


if __name__ == "__main__":
    sys.exit(main())
