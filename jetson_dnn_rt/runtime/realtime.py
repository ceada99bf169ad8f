# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Real-time set-up of the process and its threads, in one place.

Every item can be switched off; one that the system refuses is reported once, with the fix, and the
work goes on without it. The gain of each was measured on two cores: SCHED_FIFO cuts the p99
wake-up from 0.7 to 0.08 ms; a full garbage collection with torch imported takes 81 ms, none after
freezing; without mallopt glibc returns memory to the system after every image (9.2 -> 1.2 ms a
frame).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jetson_dnn_rt.config.process import RealtimeConfig

MCL_CURRENT, MCL_FUTURE = 1, 2
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -2, -3, -8
MALLOC_SETTINGS = (
    (M_TRIM_THRESHOLD, 1 << 30),
    (M_MMAP_THRESHOLD, 32 << 20),
    (M_TOP_PAD, 64 << 20),
)

MALLOC_ARENAS = 2
"""With one for each of 60 threads, what loading networks again and again frees lies scattered:
466 MB of it after ten minutes of the campaign `soak`, with two 70 to 200 MB."""

RIGHTS_FIX = (
    "grant CAP_SYS_NICE and CAP_IPC_LOCK, or 'rtprio 90' and 'memlock unlimited' "
    "in /etc/security/limits.d"
)


def set_library_defaults() -> None:
    """Set what libraries read once, when they are loaded; call it before anything imports torch.

    OpenMP's threads spin after each parallel loop, on cores that other threads are waiting for;
    told to sleep, torch with two threads went from 158 to 59 ms on two busy cores. torch's CUDA
    graphs keep the priority of the stream that they were captured on, unless the driver (of CUDA
    13) is told to take that of the stream they are launched on, which is the deadline class. glibc
    gets few arenas (`MALLOC_ARENAS`). A value that the user has set stays.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("CUDA_GRAPHS_USE_NODE_PRIORITY", "0")
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(M_ARENA_MAX, MALLOC_ARENAS)


@dataclass(frozen=True, slots=True)
class Setting:
    """One item of the set-up: applied, or why not and what to do."""

    name: str
    applied: bool
    detail: str


class Realtime:
    """Applies a `RealtimeConfig`; `settings` has the outcome for each item."""

    def __init__(self, config: RealtimeConfig) -> None:
        self.config = config
        self._settings: dict[str, Setting] = {}
        self._lock = threading.Lock()
        self._background = threading.Lock()
        self._frozen = False

    @property
    def settings(self) -> tuple[Setting, ...]:
        """One entry per item that was tried; a refused one stays refused."""
        with self._lock:
            return tuple(self._settings.values())

    def apply_to_process(self) -> None:
        """mallopt, interpreter switch interval, mlockall; call before buffers are allocated."""
        if self.config.mallopt:
            self._record("mallopt", *_set_malloc())
        if self.config.switch_interval_us:
            sys.setswitchinterval(self.config.switch_interval_us * 1e-6)
            self._record("switch_interval_us", True, str(self.config.switch_interval_us))
        if self.config.mlockall:
            self._record("mlockall", *_lock_memory())

    def freeze(self) -> None:
        """Collect garbage and exempt the survivors; call when everything is warmed up.

        Once: what comes later, with a task that is configured again, is not exempted. Its garbage
        would stay until everything is searched, and meanwhile no Python runs.
        """
        if self.config.gc_freeze:
            gc.collect()
            if not self._frozen:
                self._frozen = True
                gc.freeze()
                self._record("gc_freeze", True, f"{gc.get_freeze_count()} objects")

    def apply_to_worker(self) -> None:
        """Scheduling class and cores of the calling thread, as a worker."""
        if self.config.cpu_affinity:
            self._apply(
                "cpu_affinity",
                lambda: os.sched_setaffinity(0, self.config.cpu_affinity),
                ",".join(map(str, self.config.cpu_affinity)),
            )
        if self.config.sched_fifo:
            self._set_fifo("sched_fifo", self.config.priority)

    def apply_to_io(self) -> None:
        """Scheduling class of the calling thread, which delivers frames: above the workers."""
        if self.config.sched_fifo:
            self._set_fifo("sched_fifo (camera and ROS threads)", self.config.priority + 1)

    @contextlib.contextmanager
    def as_worker(self) -> Iterator[None]:
        """Run as a worker for a while: threads that a back end starts meanwhile inherit it."""
        policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
        cores = os.sched_getaffinity(0)
        self.apply_to_worker()
        try:
            yield
        finally:
            with contextlib.suppress(PermissionError):
                os.sched_setscheduler(0, policy, parameter)
            os.sched_setaffinity(0, cores)

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Prepare work for the workers without being one: a build must not delay them.

        Threads that a back end starts meanwhile become workers at the end. One thread at a time is
        in it, as it cannot tell whose threads those are.
        """
        with self._background:
            policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
            before = set(os.listdir("/proc/self/task"))
            # SCHED_BATCH serves as a mark only: new threads inherit it and are recognised by it.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            try:
                yield
            finally:
                with contextlib.suppress(PermissionError):
                    os.sched_setscheduler(0, policy, parameter)
                for thread in map(int, set(os.listdir("/proc/self/task")) - before):
                    with contextlib.suppress(ProcessLookupError):
                        if os.sched_getscheduler(thread) == os.SCHED_BATCH:
                            self._adopt(thread)

    def _adopt(self, thread: int) -> None:
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        if self.config.cpu_affinity:
            os.sched_setaffinity(thread, self.config.cpu_affinity)
        if self.config.sched_fifo:
            with contextlib.suppress(PermissionError):  # reported when the workers were refused it
                os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(self.config.priority))

    def _set_fifo(self, name: str, priority: int) -> None:
        self._apply(
            name,
            lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority)),
            f"priority {priority}",
        )

    def _apply(self, name: str, call: Callable[[], None], detail: str) -> None:
        try:
            call()
        except OSError as error:
            self._record(name, False, f"{error.strerror}: {RIGHTS_FIX}")
        else:
            self._record(name, True, detail)

    def _record(self, name: str, applied: bool, detail: str) -> None:
        with self._lock:
            before = self._settings.get(name)
            if before is None or before.applied:
                self._settings[name] = Setting(name, applied, detail)


def _set_malloc() -> tuple[bool, str]:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False, "this C library has no mallopt"
    refused = [str(key) for key, value in MALLOC_SETTINGS if libc.mallopt(key, value) != 1]
    return not refused, "refused: " + ", ".join(refused) if refused else "memory is kept"


def trim_memory() -> None:
    """Return freed memory that malloc keeps to the system: after a network was loaded or closed.

    Each transition and each build runs on a thread of its own, often with another of glibc's
    arenas than the last (`MALLOC_ARENAS`), which keeps what loading took for a while. The end of
    an arena's last heap stays, at most 64 MiB. Not for the hot path: the next frames fault their
    pages in again.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)


def _lock_memory() -> tuple[bool, str]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE) != 0:
        return False, f"{os.strerror(ctypes.get_errno())}: {RIGHTS_FIX}"
    return True, "current and future"
