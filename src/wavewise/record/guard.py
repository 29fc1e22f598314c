"""Ends a profiler window that its recorder can no longer end.

A recorder that is killed outright cannot tidy up: the server would profile on. So before it opens a window it
starts this process, which does nothing but wait for the recorder's pipe to close. Told "close" first, it
leaves; else it asks the server to stop its profiler. The address comes in as arguments, the API key only
through the environment.

As long as it lives it holds a lock in the run folder: a recorder that goes on there waits for it, lest it
stop the next window.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from wavewise.record.client import Client, Target, parse_target
from wavewise.record.folder import GUARD_FILE

_KEY = "WAVEWISE_GUARD_KEY"
_CLOSED = b"closed\n"


class Guard:
    """Watches over one profiler window; leave with `closed()` when it was ended properly, else with `act()`."""

    def __init__(self, target: Target, engine: str, ca_file: Path | None, folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name != _KEY}
        if target.key:
            environment[_KEY] = target.key
        with (folder / GUARD_FILE).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            # A session of its own: a signal for the recorder's group must not end the one who tidies up.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wavewise.record.guard", target.url, engine, str(ca_file or "")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                pass_fds=(lock.fileno(),),  # the lock is then its own, and ends with it
            )

    def closed(self) -> None:
        """The window is closed: the guard may leave."""
        self._leave(_CLOSED)

    def act(self) -> None:
        """The profiler could not be stopped from here: the guard tries once more."""
        self._leave(b"")

    def _leave(self, word: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has left already
            self._process.stdin.write(word)
            self._process.stdin.close()
        # Not here: it may still be starting, and the streams' arrival times must not wait for it.
        threading.Thread(target=self._process.wait, daemon=True).start()


async def _stop_profiler(url: str, engine: str, ca_file: str) -> None:
    from wavewise.record.engines import connect

    client = Client(parse_target(url, os.environ.get(_KEY), Path(ca_file) if ca_file else None))
    try:
        await (await connect(client, engine)).stop_profiler()
    finally:
        await client.close()


def main() -> None:
    """Wait for the recorder's word or its end."""
    url, engine, ca_file = sys.argv[1:4]
    if sys.stdin.buffer.read() != _CLOSED:
        asyncio.run(_stop_profiler(url, engine, ca_file))


if __name__ == "__main__":
    main()
