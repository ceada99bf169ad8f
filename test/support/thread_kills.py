# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Kills threads from outside, wherever they are: for tests and campaigns of what is left then."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import Any

from jetson_dnn_rt.safety.faults import FAULTS

TIMEOUT_S = 60.0


class KilledError(BaseException):
    """Raised inside a thread that is killed; no `except Exception` stops it."""


def find_thread(name: str) -> threading.Thread:
    """The running thread of that name."""
    (thread,) = (one for one in threading.enumerate() if one.name == name)
    return thread


def kill_thread(name: str, error: type[BaseException] = KilledError, *, wait: bool = True) -> None:
    """Raise an exception in a thread, at its next instruction of Python.

    That may be one of a destructor, which swallows it: with `wait` it is raised again until the
    thread, one of `start_thread`, has noted the fault.
    """
    thread, before, number = find_thread(name), sys.unraisablehook, _count(error)
    swallowed = threading.Event()

    def see(args: Any) -> None:
        if args.exc_type is error:
            swallowed.set()
        else:
            before(args)

    sys.unraisablehook = see
    try:
        _raise_in(thread, error)
        end_s = time.monotonic() + TIMEOUT_S
        while wait and _count(error) == number:
            if swallowed.is_set():
                swallowed.clear()
                time.sleep(0.01)  # it is still in `see`
                _raise_in(thread, error)
            assert time.monotonic() < end_s, f"thread {name} goes on"
            time.sleep(0.001)
    finally:
        sys.unraisablehook = before


def _count(error: type[BaseException]) -> int:
    kinds = (fault for fault in FAULTS.snapshot() if error.__name__ in fault.kind)
    return sum(fault.count for fault in kinds)


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    assert thread.ident is not None
    count = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(error)
    )
    assert count == 1, f"thread {thread.name} ended meanwhile"
