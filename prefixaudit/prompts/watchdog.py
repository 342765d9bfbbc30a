"""Stops work that doesn't come back: chat templates are programs from outside.

In the main thread a timer of the process's CPU time raises OutOfTime (so a busy machine doesn't
change the result); in other threads, or where there is no such timer, a second thread does it by
the clock. Both work on loops that never return to the caller; neither can interrupt a single long
operation inside C, which is why `templates` bounds the operations that could be one.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class OutOfTime(BaseException):
    """The time is up. Not an Exception, so that nothing in between takes it for its own."""


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise OutOfTime inside the block after `limit_s` seconds."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "ITIMER_VIRTUAL"):
        yield from _by_timer(limit_s)
    else:
        yield from _by_thread(limit_s)


def _by_timer(limit_s: float) -> Iterator[None]:
    running = True

    def stop(number: int, frame: FrameType | None) -> None:
        if running:
            raise OutOfTime

    previous = signal.signal(signal.SIGVTALRM, stop)
    # The interval repeats the signal, should the first one meet code that swallows everything.
    old_timer = signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, limit_s)
    try:
        yield
    finally:
        running = False
        signal.setitimer(signal.ITIMER_VIRTUAL, *old_timer)
        signal.signal(signal.SIGVTALRM, previous if previous is not None else signal.SIG_DFL)


def _by_thread(limit_s: float) -> Iterator[None]:
    # From when the watcher decides to stop the worker until it has done so, `lock` is held: the
    # worker can't leave the block in between and be hit outside it.
    lock = threading.Lock()
    done = threading.Event()
    worker = ctypes.c_ulong(threading.get_ident())

    def watch() -> None:
        if done.wait(limit_s):
            return
        with lock:
            if not done.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(worker, ctypes.py_object(OutOfTime))

    watcher = threading.Thread(target=watch, name="prefixaudit-time-limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            done.set()
        # A stop that was asked for but hasn't been raised yet is taken back.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(worker, None)
