"""The spinning thread outlives what a callback destroys, and ends with what is a fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

import rclpy
from rclpy.exceptions import InvalidHandle
from rclpy.signals import SignalHandlerOptions

from jetson_dnn_rt.nodes.runtime import DESTROYED_IN_A_ROW, Spinner

TIMEOUT_S = 120.0


@pytest.fixture
def spinner() -> Iterator[Spinner]:
    context = rclpy.Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    made = Spinner(context)
    yield made
    made.stop(TIMEOUT_S)
    made.executor.shutdown()
    context.try_shutdown()


class FailingFirst:
    """An executor that raises so often before it spins; `spun` is set when it has spun then."""

    def __init__(self, executor: Any, error: Exception, times: int) -> None:
        self.spun = threading.Event()
        self._executor, self._error, self._left = executor, error, times

    def spin_once(self, timeout_sec: float | None = None) -> None:
        if self._left:
            self._left -= 1
            raise self._error
        self._executor.spin_once(timeout_sec=timeout_sec)
        self.spun.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def fail_first(spinner: Spinner, error: Exception, times: int) -> threading.Event:
    executor = FailingFirst(spinner.executor, error, times)
    spinner.executor = executor  # type: ignore[assignment]
    return executor.spun


@pytest.mark.parametrize("times", [1, DESTROYED_IN_A_ROW])
def test_an_event_of_something_destroyed_is_dropped(spinner: Spinner, times: int) -> None:
    spun = fail_first(spinner, InvalidHandle("destruction was requested"), times)
    spinner.start()
    assert spun.wait(TIMEOUT_S)
    assert spinner.call(lambda: 42, TIMEOUT_S) == 42
    assert spinner.error is None


def test_what_stays_destroyed_ends_it(spinner: Spinner) -> None:
    error = InvalidHandle("destruction was requested")
    fail_first(spinner, error, DESTROYED_IN_A_ROW + 1)
    spinner.start()
    assert spinner.ended.wait(TIMEOUT_S)
    assert spinner.error is error


def test_any_other_error_ends_it(spinner: Spinner) -> None:
    error = RuntimeError("no")
    fail_first(spinner, error, 1)
    spinner.start()
    assert spinner.ended.wait(TIMEOUT_S)
    assert spinner.error is error
