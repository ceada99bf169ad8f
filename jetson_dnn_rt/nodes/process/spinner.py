# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The ROS thread of a process: it spins an executor, and runs what others ask of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.safety.faults import FAULTS, Pulse, start_thread
from jetson_dnn_rt.safety.stuck_log import start_stuck_log

if TYPE_CHECKING:
    from rclpy.context import Context
    from rclpy.node import Node

SPIN_TIMEOUT_S = 0.2
"""A blocking `spin_once` of Kilted's EventsExecutor never returns and burns a core."""

FAILURES_IN_A_ROW, FAILING_S = 100, 5.0
"""`spin_once` may fail this often and this long without a success in between. Every node of the
package has a timer of half a second: if none runs for this long, nothing does."""


class SpinEndedError(RuntimeError):
    """The ROS thread has ended."""


class Spinner:
    """Spins an executor on its own thread until stopped.

    `on_end` is called on that thread at its end, with the error that ended it or None.
    """

    def __init__(
        self, context: Context, on_end: Callable[[BaseException | None], None] = lambda error: None
    ) -> None:
        self._on_end, self.context = on_end, context
        from jetson_dnn_rt.nodes.process.distribution import make_executor

        self.executor = make_executor(context)
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._running = True
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._pulse = Pulse()
        self._thread: threading.Thread | None = None

    def add(self, node: Node) -> None:
        """Spin a node and its children."""
        for one in (node, *getattr(node, "children", ())):
            if hasattr(one, "spinner"):  # a `ManagedNode`
                one.spinner = self
            self.executor.add_node(one)

    def start(self) -> None:
        """Start to spin."""
        start_stuck_log()
        self._thread = start_thread(self._run, "ros-spin", pulse=self._pulse)

    @property
    def is_current_thread(self) -> bool:
        """Whether the calling thread is the spinning one."""
        return threading.current_thread() is self._thread

    def call(self, function: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Run a function on the spinning thread, between two callbacks, and return its value.

        On the spinning thread it runs at once. Raises `TimeoutError` when it is not done in time
        (it is not stopped), `SpinEndedError` when the spinning thread has ended.
        """
        if self.is_current_thread:
            return function()
        done = threading.Event()
        outcome: list[Any] = [None, None]

        def run() -> None:
            try:
                outcome[0] = function()
            except BaseException as error:
                outcome[1] = error
            finally:
                done.set()

        with self._lock:
            if not self._running or self.ended.is_set():
                raise SpinEndedError("the ROS thread has ended")
            self._calls.append(run)
        self._wake()
        if not done.wait(timeout_s):
            raise TimeoutError(f"the ROS thread was busy for {timeout_s} s")
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop spinning; False when a callback still runs after `timeout_s`."""
        with self._lock:
            self._running = False
        self._wake()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _wake(self) -> None:
        """End a `spin_once` that waits: `Executor.wake` leaves it waiting for its time-out."""
        self.executor.create_task(_do_nothing)

    def _run(self) -> None:
        from rclpy.exceptions import InvalidHandle

        failures, first_s = 0, 0.0
        try:
            while self._running or self._calls:
                self._pulse.begin()  # of one callback, or of a wait of `SPIN_TIMEOUT_S`
                with self._lock:
                    calls, self._calls = self._calls, []
                for run in calls:
                    run()
                if not self._running:
                    continue
                try:
                    self.executor.spin_once(timeout_sec=SPIN_TIMEOUT_S)
                    failures = 0
                except BaseException as error:
                    # Callbacks are guarded: this is rclpy itself, or the callback of a node from
                    # elsewhere.
                    if not self.context.ok():
                        raise
                    # A message was queued when its subscription was destroyed: not a fault.
                    # rclpy's other executors ignore that, Kilted's EventsExecutor raises.
                    if not isinstance(error, InvalidHandle):
                        FAULTS.note("spinning", error)
                    now_s = time.monotonic()
                    first_s = first_s if failures else now_s
                    failures += 1
                    if failures > FAILURES_IN_A_ROW and now_s - first_s >= FAILING_S:
                        raise
        except BaseException as error:
            self.error = error
            raise
        finally:
            with self._lock:
                self.ended.set()
                calls, self._calls = self._calls, []
            for run in calls:  # somebody waits for them
                run()
            self._on_end(self.error)


def _do_nothing() -> None:
    pass
