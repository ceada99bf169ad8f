# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Kills threads from outside, wherever they are: for tests and campaigns of what is left then."""

from __future__ import annotations

import ctypes
import threading


class KilledError(BaseException):
    """Raised inside a thread that is killed; no `except Exception` stops it."""


def find_thread(name: str) -> threading.Thread:
    """The running thread of that name."""
    (thread,) = (one for one in threading.enumerate() if one.name == name)
    return thread


def kill_thread(name: str, error: type[BaseException] = KilledError) -> None:
    """Raise an exception in a thread, at its next instruction of Python."""
    thread = find_thread(name)
    assert thread.ident is not None
    count = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(error)
    )
    assert count == 1, f"thread {name} ended meanwhile"
