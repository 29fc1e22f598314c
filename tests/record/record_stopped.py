"""A recorder that sends itself a signal in the middle of its n-th durable write into the run folder.

    python record_stopped.py SIGNAL N OUT COUNT_FILE [words of the wavewise command]

Whatever the recorder keeps reaches the folder by a rename, so that the renames divide a recording into all
the states in which a killed one can leave its folder: the signal comes with everything before the n-th
rename on disk, and nothing behind it. With N = 0 none is sent, and COUNT_FILE tells how many there are.
PYTHON_OF_HELPERS, where it is set, is the interpreter that guard and sampler are started with.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    how, at, out, count_file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    renames = 0

    def hook(event: str, args: tuple) -> None:
        nonlocal renames
        if event == "os.rename" and os.fspath(args[1]).startswith(out + os.sep):
            renames += 1
            if renames == at:
                os.kill(os.getpid(), how)

    from wavewise.cli import main as run
    from wavewise.record import collect, probe, traces

    traces._SETTLE_S, probe.POLL_S, collect.POLL_S = 0.1, 0.02, 0.02
    sys.executable = os.environ.get("PYTHON_OF_HELPERS", sys.executable)
    sys.argv = ["wavewise", *sys.argv[5:]]
    sys.addaudithook(hook)
    try:
        run()
    finally:
        count_file.write_text(str(renames))


if __name__ == "__main__":
    main()
