# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The spinning thread outlives what callbacks destroy and what rclpy raises, but not for ever."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

import rclpy
from rclpy.exceptions import InvalidHandle
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from jetson_dnn_rt.nodes.process import spinner as spinner_module
from jetson_dnn_rt.nodes.process.spinner import FAILURES_IN_A_ROW, SpinEndedError, Spinner
from jetson_dnn_rt.safety.faults import FAULTS

TIMEOUT_S = 120.0


@pytest.fixture
def spinner():
    context = rclpy.Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    made = Spinner(context)
    yield made
    made.stop(TIMEOUT_S)
    made.executor.shutdown()
    context.try_shutdown()


class FailingFirst:
    """An executor that raises so often before it spins; `spun` is set when it has spun then."""

    def __init__(self, executor, error, times):
        self.spun = threading.Event()
        self._executor, self._error, self._left = executor, error, times

    def spin_once(self, timeout_sec=None):
        if self._left:
            self._left -= 1
            raise self._error
        self._executor.spin_once(timeout_sec=timeout_sec)
        self.spun.set()

    def __getattr__(self, name):
        return getattr(self._executor, name)


def fail_first(spinner, error, times):
    executor = FailingFirst(spinner.executor, error, times)
    spinner.executor = executor  # type: ignore[assignment]
    return executor.spun


@pytest.mark.parametrize("error", [InvalidHandle("destruction was requested"), RuntimeError("no")])
@pytest.mark.parametrize("times", [1, 3 * FAILURES_IN_A_ROW])
def test_an_error_that_ends_costs_nothing(spinner, error, times):
    """EDGES 0: what comes out of `spin_once` ended the process."""
    spun = fail_first(spinner, error, times)
    spinner.start()
    assert spun.wait(TIMEOUT_S)
    assert spinner.call(lambda: 42, TIMEOUT_S) == 42
    assert spinner.error is None
    noted = [] if isinstance(error, InvalidHandle) else [("spinning: RuntimeError", times)]
    assert [(fault.kind, fault.count) for fault in FAULTS.snapshot()] == noted


@pytest.mark.parametrize("error", [InvalidHandle("destruction was requested"), RuntimeError("no")])
def test_what_fails_without_end_ends_it(spinner, error, monkeypatch):
    monkeypatch.setattr(spinner_module, "FAILING_S", 0.0)
    fail_first(spinner, error, FAILURES_IN_A_ROW + 1)
    spinner.start()
    assert spinner.ended.wait(TIMEOUT_S)
    assert spinner.error is error
    assert spinner.stop(TIMEOUT_S)
    assert "ros-spin" in FAULTS.dead_threads


def test_a_context_that_was_shut_down_ends_it(spinner):
    error = RuntimeError("no context")
    spinner.context.try_shutdown()
    fail_first(spinner, error, 1)
    spinner.start()
    assert spinner.ended.wait(TIMEOUT_S)
    assert spinner.error is error


def test_a_node_without_guards_costs_nothing(spinner):
    """EDGES 0: a callback that raises in somebody else's node ended the process."""
    node = Node("other", context=spinner.context, use_global_arguments=False)
    spinner.executor.add_node(node)
    calls: list[int] = []
    enough = threading.Event()

    def fail():
        calls.append(len(calls))
        if len(calls) == 5:
            enough.set()
        raise ValueError("no guard")

    node.create_timer(0.01, fail)
    spinner.start()
    assert enough.wait(TIMEOUT_S)
    assert spinner.call(lambda: 42, TIMEOUT_S) == 42
    assert spinner.error is None
    (fault,) = FAULTS.snapshot()
    assert fault.kind == "spinning: ValueError"
    assert fault.count >= 4
    spinner.call(node.destroy_node, TIMEOUT_S)


def test_a_call_from_the_spinning_thread_runs_at_once(spinner):
    """Waiting for itself, it would never end."""
    spinner.start()
    assert spinner.call(lambda: spinner.call(lambda: 42), TIMEOUT_S) == 42


def test_a_call_does_not_wait_for_a_thread_that_has_ended(spinner):
    """A transition may wait for the ROS thread when that ends."""
    error = RuntimeError("no context")
    begun, go = threading.Event(), threading.Event()

    class Failing:
        """An executor that raises when it is told to; it is woken when a call is in the queue."""

        shutdown = spinner.executor.shutdown
        woken = threading.Event()

        def spin_once(self, timeout_sec=None):
            begun.set()
            assert go.wait(TIMEOUT_S)
            raise error

        def create_task(self, callback):
            self.woken.set()

    executor = spinner.executor = Failing()
    spinner.context.try_shutdown()
    spinner.start()
    assert begun.wait(TIMEOUT_S)
    found = []
    caller = threading.Thread(target=lambda: found.append(spinner.call(lambda: 42)))
    caller.start()
    assert executor.woken.wait(TIMEOUT_S)
    go.set()
    caller.join(TIMEOUT_S)
    assert found == [42]
    assert spinner.error is error
    with pytest.raises(SpinEndedError):
        spinner.call(lambda: 42)
