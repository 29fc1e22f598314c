"""A compiling process: `python -m wavewise.audit.worker` reads pickled jobs and writes pickled resources.

Its own process for three reasons: compiles run on all cores, a compiler that crashes takes no audit with it,
and a user's script need not guard its `__main__` as multiprocessing would have it.
"""

import os
import pickle
import sys
from typing import BinaryIO

from wavewise.audit.compile import Job, compile_one
from wavewise.audit.records import Resources
from wavewise.audit.source import load

WORKER = "WAVEWISE_AUDIT_WORKER"
"""Set in a worker's environment: an audit that starts while a worker imports a module would recurse."""


def serve(jobs: BinaryIO, results: BinaryIO) -> None:
    """Compiles until the jobs end."""
    while True:
        try:
            job: Job = pickle.load(jobs)
        except EOFError:
            return
        assert job.source is not None
        try:
            found = compile_one(load(job.source), job)
        except Exception as error:
            said = " ".join(str(error).split())
            found = Resources(kernel=job.source.name, arch=f"sm_{job.capability}", error=said)
        pickle.dump(found, results)
        results.flush()


def main() -> None:
    """Serves stdin and stdout, keeping stray prints of kernels' modules out of the results."""
    os.environ[WORKER] = "1"
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path[:0] = [entry for entry in os.environ.get("WAVEWISE_AUDIT_PATH", "").split(os.pathsep) if entry]
    serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    main()
