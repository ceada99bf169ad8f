"""Starting and ending a ROS process: contexts, executors, signals.

rclpy's own signal handlers invalidate the context at once, so that no lifecycle transition can run
any more. Here the handlers only set an event; the node is shut down with a valid context and the
process ends with exit code 0. The main thread does nothing but wait for the signal: a transition
that is busy inside a library (loading a model) then cannot delay the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.errors import ConfigurationError

if TYPE_CHECKING:
    from rclpy.context import Context
    from rclpy.executors import Executor
    from rclpy.lifecycle import LifecycleNode

SHUTDOWN_LIMIT_S = 0.7
"""After a signal: what is not shut down by then is left to the operating system."""

SPIN_TIMEOUT_S = 0.2
"""A blocking `spin_once` of Kilted's EventsExecutor never returns and burns a core."""


def make_executor(context: Context) -> Executor:
    """Make the fastest single-threaded executor of this ROS distribution.

    A MultiThreadedExecutor loses images and has tails of 40 to 200 ms; images need one thread.
    """
    try:
        from rclpy.experimental import EventsExecutor
    except ImportError:  # Humble and Jazzy
        from rclpy.executors import SingleThreadedExecutor

        return SingleThreadedExecutor(context=context)
    return EventsExecutor(context=context)


class Spinner:
    """Spins an executor on a thread of its own until stopped.

    Parameters
    ----------
    context : Context
        Initialised.
    """

    def __init__(self, context: Context) -> None:
        self.executor = make_executor(context)
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._running = True
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="ros-spin", daemon=True)

    def start(self) -> None:
        """Begin to spin."""
        self._thread.start()

    def call(self, function: Callable[[], Any], timeout_s: float | None = None) -> Any:
        """Run a function on the spinning thread, between two callbacks, and return its value.

        Raises
        ------
        TimeoutError
            When it is not done in time; it goes on all the same.
        RuntimeError
            When the spinning thread has ended.
        """
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
                raise RuntimeError("the ROS thread has ended")
            self._calls.append(run)
        self.executor.wake()
        if not done.wait(timeout_s):
            raise TimeoutError(f"the ROS thread was busy for {timeout_s} s")
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop spinning; False when a callback still runs after `timeout_s`."""
        with self._lock:
            self._running = False
        self.executor.wake()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while self._running or self._calls:
                with self._lock:
                    calls, self._calls = self._calls, []
                for run in calls:
                    run()
                if self._running:
                    self.executor.spin_once(timeout_sec=SPIN_TIMEOUT_S)
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set an event, however often they come; main thread only."""

    def handle(number: int, frame: object) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_node(make_node: Callable[[Context, list[str]], LifecycleNode], args: Sequence[str]) -> int:
    """Run one lifecycle node until a signal comes; the body of every executable.

    Parameters
    ----------
    make_node : callable
        Makes the node from the context and the command line's arguments; the node has the
        parameter ``autostart``.
    args : sequence of str
        Command line without the program's name.

    Returns
    -------
    int
        0 after a signal, 1 when the ROS thread died, 2 for a configuration that cannot be used.
    """
    stop = threading.Event()
    with stop_on_signals(stop):
        code = _run_node(make_node, list(args), stop)
        # What is left is the interpreter's own end: a second Ctrl-C must not spoil it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_node(
    make_node: Callable[[Context, list[str]], LifecycleNode],
    args: list[str],
    stop: threading.Event,
) -> int:
    import rclpy
    from rclpy.exceptions import ParameterException
    from rclpy.signals import SignalHandlerOptions

    from jetson_dnn_rt.nodes.logging import use_ros_logging

    context = rclpy.Context()
    rclpy.init(args=args, context=context, signal_handler_options=SignalHandlerOptions.NO)
    use_ros_logging()
    spinner = Spinner(context)
    try:
        node = make_node(context, args)
    except (ConfigurationError, ParameterException) as error:
        rclpy.logging.get_logger("jetson_dnn_rt").fatal(str(error))
        return 2
    spinner.executor.add_node(node)
    for child in getattr(node, "children", ()):
        spinner.executor.add_node(child)
    spinner.start()
    watcher = threading.Thread(target=_wake_on_end, args=(spinner, stop), daemon=True)
    watcher.start()
    if node.get_parameter("autostart").value and not stop.is_set():
        with contextlib.suppress(RuntimeError):
            _call_unless(stop, spinner, node.autostart)
    stop.wait()
    if spinner.error is not None:
        node.get_logger().fatal(f"the ROS thread ended: {spinner.error!r}")
        return 1
    with contextlib.suppress(TimeoutError, RuntimeError):
        spinner.call(lambda: _end(node), SHUTDOWN_LIMIT_S)
        spinner.stop(0.1)
        context.try_shutdown()
    return 0


def _end(node: LifecycleNode) -> None:
    node.trigger_shutdown()
    # The last node takes the DDS participant with it: others see at once that it is gone.
    node.destroy_node()


def _call_unless(stop: threading.Event, spinner: Spinner, function: Callable[[], Any]) -> None:
    """Run a function on the ROS thread; do not wait for it any longer once `stop` is set."""
    runner = threading.Thread(target=lambda: spinner.call(function), daemon=True)
    runner.start()
    while runner.is_alive() and not stop.wait(0.05):
        pass


def _wake_on_end(spinner: Spinner, stop: threading.Event) -> None:
    spinner.ended.wait()
    stop.set()
