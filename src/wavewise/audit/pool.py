"""Runs compile jobs on all cores, in processes that may crash or take too long."""

import contextlib
import os
import pickle
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wavewise.audit.clock import over_limit
from wavewise.audit.compile import Job
from wavewise.audit.records import Resources
from wavewise.audit.worker import COMPILING, SCRATCH

Done = Callable[[int, Resources], None]

_START_S = 120.0
"""Seconds that a process may take before it compiles: it imports Triton and the user's module, on busy machines."""


def picklable(jobs: Sequence[Job]) -> bool:
    """Whether the jobs can travel to another process."""
    try:
        pickle.dumps(list(jobs))
    except Exception:
        # pickle raises whatever an object's own __reduce__ raises; all of it means "stay here".
        return False
    return True


def run(jobs: Sequence[Job], workers: int, done: Done, timeout_s: float | None = None) -> None:
    """Compiles all jobs; calls `done(index, resources)` in this thread of the caller's, as they finish.

    Args:
        jobs: what to compile.
        workers: processes at a time.
        done: called once per job.
        timeout_s: seconds that one compile may take; a job over it ends with its process, and its resources say
            so. None sets no limit.
    """
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    finished: queue.SimpleQueue[tuple[int, Resources]] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    count = max(1, min(workers, len(jobs)))
    for _ in range(count):
        waiting.put(None)
    crew = _Crew()
    threads = [
        threading.Thread(target=_feed, args=(jobs, waiting, finished, crew, timeout_s), daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(len(jobs)):
            done(*finished.get())
    finally:
        # However this ends (Ctrl-C among others), no process outlives it.
        crew.dismiss()
        for thread in threads:
            thread.join(timeout=5)


class _Crew:
    """The processes that run, so that all of them can be ended at once; none starts after that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working: set[_Process] = set()
        self.dismissed = False

    def hire(self) -> "_Process | None":
        """A new process; None once the crew is dismissed."""
        with self._lock:
            if self.dismissed:
                return None
            process = _Process()
            self._working.add(process)
            return process

    def release(self, process: "_Process") -> None:
        """Ends one process."""
        with self._lock:
            self._working.discard(process)
        process.end()

    def dismiss(self) -> None:
        """Ends all processes, whatever they are compiling."""
        with self._lock:
            self.dismissed = True
            working, self._working = self._working, set()
        for process in working:
            process.kill()


class _Process:
    """One compiling process with what it started (ptxas), and its folder for temporary files."""

    def __init__(self) -> None:
        package_root = str(Path(__file__).resolve().parents[2])
        # A process that is killed cannot tidy up after itself: what Triton and ptxas leave goes with this folder.
        self._scratch = tempfile.mkdtemp(prefix="wavewise-audit-")
        environment = {
            **os.environ,
            "TMPDIR": self._scratch,
            SCRATCH: self._scratch,
            "WAVEWISE_AUDIT_PATH": os.pathsep.join([package_root, *filter(None, sys.path)]),
            "PYTHONPATH": os.pathsep.join([package_root, os.environ.get("PYTHONPATH", "")]),
        }
        try:
            self._process = subprocess.Popen(
                # Warnings of the compiler's own libraries are none of the user's, who may have made them errors.
                [sys.executable, "-W", "ignore", "-m", "wavewise.audit.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                # A group of its own, so that ptxas ends with the process that waits for it.
                start_new_session=True,
            )
        except OSError:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: Job, timeout_s: float | None) -> Resources:
        """What compiling `job` gives; a process that crashes or takes too long is dead afterwards."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()
        doing, limit_s = (
            "importing the kernel's module",
            None if timeout_s is None else max(timeout_s, _START_S),
        )
        found, ran_out = self._answer(limit_s)
        if found == COMPILING:
            doing, limit_s = "compiling", timeout_s
            found, ran_out = self._answer(limit_s)
        if isinstance(found, Resources):
            return found
        if ran_out and limit_s is not None:
            return over_limit(job, _name(job), limit_s, doing)
        return _crashed(job, f"crashed ({_end_of(self._process)})")

    def _answer(self, timeout_s: float | None) -> tuple[Any, bool]:
        """The next thing that the process says, None where it died; and whether it died for running out of time."""
        assert self._process.stdout is not None
        ran_out = threading.Event()

        def expire() -> None:
            ran_out.set()
            self.kill()

        clock = None if timeout_s is None else threading.Timer(timeout_s, expire)
        if clock is not None:
            clock.daemon = True
            clock.start()
        try:
            said = pickle.load(self._process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError):
            said = None
        if clock is not None:
            clock.cancel()
            clock.join()
        if ran_out.is_set():
            # It may have answered in the very moment of being killed: the answer counts, the process is gone.
            self._process.wait()
        return said, ran_out.is_set()

    def kill(self) -> None:
        """Ends the process and all that it started, at once."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Lets an idle process end, and ends a busy one; then its temporary files go."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._process.stdout.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _feed(
    jobs: Sequence[Job],
    waiting: "queue.SimpleQueue[int | None]",
    finished: "queue.SimpleQueue[tuple[int, Resources]]",
    crew: _Crew,
    timeout_s: float | None,
) -> None:
    """Keeps one process busy; starts another when it dies."""
    process: _Process | None = None
    try:
        while not crew.dismissed and (index := waiting.get()) is not None:
            try:
                if process is not None and not process.alive:
                    crew.release(process)
                    process = None
                if process is None:
                    process = crew.hire()
                    if process is None:
                        return
                found = process.ask(jobs[index], timeout_s)
            except OSError as error:
                found = _crashed(jobs[index], f"could not be started ({error.strerror or error})")
            finished.put((index, found))
    finally:
        if process is not None:
            crew.release(process)


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    status = process.wait()
    return f"signal {-status}" if status < 0 else f"status {status}"


def _crashed(job: Job, how: str) -> Resources:
    return Resources(kernel=_name(job), arch=f"sm_{job.capability}", error=f"the compiler {how}")


def _name(job: Job) -> str:
    return job.source.name if job.source else "kernel"
