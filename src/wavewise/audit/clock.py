"""How long one compile may take, and what a compile that takes longer comes back as."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from wavewise.audit.compile import Job
from wavewise.audit.records import Resources
from wavewise.errors import UsageError

TIMEOUT_S = 120.0
"""Seconds that a compile may take unless the caller says otherwise.

Decode kernels take 1 to 20 s for each architecture, on one core. What takes minutes (a tl.dot over 512 columns, say)
holds up all other configurations, and no server would compile it at start-up.
"""


class _TimeUp(Exception):  # noqa: N818 - a signal's message, not a fault
    """Raised inside a compile that takes too long."""


def checked(timeout_s: float | None) -> float | None:
    """The limit, if it is one.

    Raises:
        UsageError: no positive number of seconds.
    """
    if timeout_s is not None and not (math.isfinite(timeout_s) and 0 < timeout_s <= threading.TIMEOUT_MAX):
        raise UsageError(f"timeout {timeout_s:g}: a positive number of seconds per compile")
    return timeout_s


def over_limit(job: Job, name: str, limit_s: float, doing: str = "compiling") -> Resources:
    """The resources of a compile that was ended because it took too long: none, and why."""
    return Resources(
        kernel=name,
        arch=f"sm_{job.capability}",
        error=f"{doing} took longer than {limit_s:g} s; a higher --timeout waits longer",
        timed_out=True,
    )


def compiled_within(
    timeout_s: float | None, job: Job, name: str, compile_here: Callable[[], Resources]
) -> Resources:
    """A compile in this process, interrupted when it takes too long.

    A pass of the compiler that is running is not left half-way: the interruption comes when it is through, ptxas is
    ended at once. Only the main thread can be interrupted; elsewhere there is no limit.
    """
    with _alarm(timeout_s) as rung:
        try:
            found = compile_here()
        except _TimeUp:
            found = None
    if timeout_s is not None and rung() and (found is None or found.error is not None):
        return over_limit(job, name, timeout_s)
    assert found is not None
    return found


@contextlib.contextmanager
def _alarm(after_s: float | None) -> Iterator[Callable[[], bool]]:
    """Raises _TimeUp in this thread after so many seconds; yields whether it did. Puts back a timer that ran before."""
    rings = 0

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal rings
        rings += 1
        raise _TimeUp

    if after_s is None or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    # Again every second: an exception that is raised inside a destructor is dropped by Python.
    earlier, interval = signal.setitimer(signal.ITIMER_REAL, after_s, 1.0)
    try:
        yield lambda: rings > 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if earlier:
            signal.setitimer(signal.ITIMER_REAL, max(earlier - (time.monotonic() - begun), 1e-3), interval)
