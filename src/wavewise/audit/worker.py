"""A compiling process: `python -m wavewise.audit.worker` reads pickled jobs and writes pickled resources.

Its own process for four reasons: compiles run on all cores, a compiler that crashes takes no audit with it, one that
takes too long can be ended, and a user's script need not guard its `__main__` as multiprocessing would have it.
"""

import os
import pickle
import shutil
import signal
import sys
import threading
import time
from typing import BinaryIO

from wavewise.audit.compile import Job, compile_one
from wavewise.audit.records import Resources
from wavewise.audit.source import load

WORKER = "WAVEWISE_AUDIT_WORKER"
"""Set in a worker's environment: an audit that starts while a worker imports a module would recurse."""

SCRATCH = "WAVEWISE_AUDIT_SCRATCH"
"""The folder for a worker's temporary files, in its environment."""

COMPILING = "compiling"
"""Said when the kernel is imported and its compile begins: the time limit counts from here."""

_WATCH_S = 1.0
"""Seconds between two looks at whether the audit that asks is still there."""


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Compiles until the jobs end."""
    while True:
        try:
            job: Job = pickle.load(jobs)
        except EOFError:
            return
        assert job.source is not None
        try:
            kernel = load(job.source)
            pickle.dump(COMPILING, results)
            results.flush()
            found = compile_one(kernel, job)
        except Exception as error:
            said = " ".join(str(error).split())
            found = Resources(kernel=job.source.name, arch=f"sm_{job.capability}", error=said)
        pickle.dump(found, results)
        results.flush()


def _end_with(parent: int) -> None:
    """Ends this process group when the audit is gone, which may have been killed in the middle of a compile.

    Triton's passes leave Python's lock, so this thread runs beside them.
    """
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    if scratch := os.environ.get(SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serves stdin and stdout, keeping stray prints of kernels' modules out of the results."""
    os.environ[WORKER] = "1"
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:0] = [entry for entry in os.environ.get("WAVEWISE_AUDIT_PATH", "").split(os.pathsep) if entry]
    serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
