"""Runs compile jobs on all cores, in processes that may crash."""

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from wavewise.audit.compile import Job
from wavewise.audit.records import Resources

Done = Callable[[int, Resources], None]


def picklable(jobs: Sequence[Job]) -> bool:
    """Whether the jobs can travel to another process."""
    try:
        pickle.dumps(list(jobs))
    except Exception:
        # pickle raises whatever an object's own __reduce__ raises; all of it means "stay here".
        return False
    return True


def run(jobs: Sequence[Job], workers: int, done: Done) -> None:
    """Compiles all jobs; calls `done(index, resources)` in this thread of the caller's, as they finish."""
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, Resources] | None] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    count = max(1, min(workers, len(jobs)))
    for _ in range(count):
        waiting.put(None)
    stop = threading.Event()
    threads = [
        threading.Thread(target=_feed, args=(jobs, waiting, finished, stop), daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(len(jobs)):
            item = finished.get()
            if item is not None:
                done(*item)
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=5)


def _feed(
    jobs: Sequence[Job],
    waiting: "queue.SimpleQueue[int | None]",
    finished: "queue.SimpleQueue[tuple[int, Resources] | None]",
    stop: threading.Event,
) -> None:
    """Keeps one process busy; starts another when it dies."""
    process: subprocess.Popen[bytes] | None = None
    try:
        while not stop.is_set() and (index := waiting.get()) is not None:
            try:
                process = process if process is not None and process.poll() is None else _started()
                found = _asked(process, jobs[index])
                if found is None:
                    found = _crashed(jobs[index], f"crashed ({_end_of(process)})")
                    _ended(process)
                    process = None
            except OSError as error:
                found = _crashed(jobs[index], f"could not be started ({error.strerror or error})")
            finished.put((index, found))
    finally:
        if process is not None:
            _ended(process)


def _started() -> "subprocess.Popen[bytes]":
    package_root = str(Path(__file__).resolve().parents[2])
    environment = {
        **os.environ,
        "WAVEWISE_AUDIT_PATH": os.pathsep.join([package_root, *filter(None, sys.path)]),
    }
    return subprocess.Popen(
        # Warnings of the compiler's own libraries are none of the user's, who may have made them errors.
        [sys.executable, "-W", "ignore", "-m", "wavewise.audit.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment, "PYTHONPATH": os.pathsep.join([package_root, environment.get("PYTHONPATH", "")])},
    )


def _asked(process: "subprocess.Popen[bytes]", job: Job) -> Resources | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(job, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        return None


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    status = process.wait()
    return f"signal {-status}" if status < 0 else f"status {status}"


def _crashed(job: Job, how: str) -> Resources:
    name = job.source.name if job.source else "kernel"
    return Resources(kernel=name, arch=f"sm_{job.capability}", error=f"the compiler {how}")


def _ended(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
