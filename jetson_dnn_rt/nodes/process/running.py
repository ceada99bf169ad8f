# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Start and end of a ROS process: context, ROS thread, signals, logging.

rclpy's own signal handlers invalidate the context at once, so that no lifecycle transition can run
any more. Here the handlers only set an event; the node is shut down with a valid context and the
process ends with exit code 0. The main thread only waits for the signal: a transition that is busy
inside a library (loading a model) cannot delay the end.

The exit codes below list every reason for a process to end. Everything else is a fault: it costs
the callback or frame in which it occurred, is counted in `safety.faults.FAULTS` and shown in
``/diagnostics``. Callbacks are guarded by `jetson_dnn_rt.nodes.process.guard`, threads by
`jetson_dnn_rt.safety.faults`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.context import open_context
from jetson_dnn_rt.nodes.process.spinner import SpinEndedError, Spinner
from jetson_dnn_rt.printable import make_printable
from jetson_dnn_rt.runtime.realtime import set_library_defaults
from jetson_dnn_rt.runtime.start_times import StartTimes, find_birth_ns
from jetson_dnn_rt.safety.end_watcher import start_end_watcher
from jetson_dnn_rt.safety.faults import describe_error, note_destructors, safe_text, start_thread
from jetson_dnn_rt.safety.starter import find_starter

if TYPE_CHECKING:
    from rclpy.context import Context

    from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode

    MakeNode = Callable[[Context, list[str]], ManagedNode]

logger = logging.getLogger(__name__)

PACKAGE = "jetson_dnn_rt"

CLOCKS_LIMIT_S = 0.2
"""After a signal: clocks that are not restored by then are left to their guardian."""

SHUTDOWN_LIMIT_S = 0.8
"""After a signal: what is not shut down by then is left to the operating system."""

END_LIMIT_S = 1.2
"""After a signal: the main thread waits no longer for the end, whatever hangs."""

FLUSH_LIMIT_S = 0.1
"""Output that has not been read by then is lost."""

KILL_LIMIT_S = 8.0
"""After a signal: a process that cannot end itself is killed by its watcher then. Late enough for
Fast DDS to get over a lock that a killed process held (up to 6 s were seen), and before `ros2
launch` kills it, after 10 s. The guardian has restored the clocks long before."""

HANG_LIMIT_S = 9.5
"""After a signal: the same where the watcher is missing. So much later because the time goes on
while a machine stands still."""

LONGEST_TEXT = 4000
"""Characters of an error in a configuration."""


# Reasons for a process to end, by its exit code.

SIGNAL = 0
"""SIGINT or SIGTERM: an ordinary stop."""

BAD_CONFIGURATION = 2
"""A parameter cannot be used when the nodes are made: the process ends at once, so that its user
sees it."""

START_FAILED = 1
"""The nodes could not be made or spun at all: nothing is left that could report the fault."""

SPIN_FAILED = 1
"""rclpy fails without end, or its context was shut down: no message, timer or service is served
any more, so the supervisor of the process has to start a new one."""

END_HANGS = 1
"""A signal came, the shutdown hangs, and the watcher is missing: faulthandler ends the process,
with the stacks of all threads on stderr."""

KILLED = -9
"""A signal came and the shutdown hangs, because a library keeps the interpreter's lock or stderr
is not read: the watcher of the process writes the stacks of all threads on stderr if that is
possible, then sends SIGKILL (`jetson_dnn_rt.safety.end_watcher`)."""


class RosHandler(logging.Handler):
    """Passes Python's log records to the rclpy logger of the same name (and so to /rosout)."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record at its level."""
        from rclpy.logging import LoggingSeverity, get_logger

        try:
            text = make_printable(self.format(record), lines=True)
            logger = get_logger(record.name)
            # rclpy remembers a level per line and refuses one call site for all levels.
            if record.levelno >= logging.CRITICAL:
                logger.fatal(text)
            elif record.levelno >= logging.ERROR:
                logger.error(text)
            elif record.levelno >= logging.WARNING:
                logger.warning(text)
            elif record.levelno >= logging.INFO:
                logger.info(text)
            else:
                logger.log(text, LoggingSeverity.DEBUG)
        except Exception:
            self.handleError(record)


def use_ros_logging() -> None:
    """Send the package's log records to ROS, once per process."""
    logger = logging.getLogger(PACKAGE)
    if not any(isinstance(handler, RosHandler) for handler in logger.handlers):
        logger.addHandler(RosHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False


def time_nodes(begin_ns: int, node: ManagedNode) -> StartTimes:
    """Times of a start that began then and has just made a node, and those it leads."""
    times = StartTimes(begin_ns)
    times.end("imports", at_ns=node.begun_ns)
    times.end("nodes")
    return times


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[socket.socket]:
    """Make SIGINT and SIGTERM set an event, however often they come; main thread only.

    The interpreter itself writes the signal's number into a socket. A handler in Python would have
    to wait for the main thread, which is not woken when the system delivers the signal to another
    thread: seen once in about ten starts of a process that has just forked. The numbers of these
    two signals stay in the socket, which the context returns, so that others can see them, too.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    read_end, write_end = socket.socketpair()
    write_end.setblocking(False)

    def forward() -> None:
        while seen := read_end.recv(64, socket.MSG_PEEK):
            if set(seen) & set(numbers):
                stop.set()
                return
            read_end.recv(len(seen))

    # Restarted after a fault: without it the process could not be ended in order.
    thread = start_thread(forward, "signals", wanted=lambda: True)
    before_end = signal.set_wakeup_fd(write_end.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield read_end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_end)
        write_end.close()
        thread.join()
        read_end.close()


def run_node(make_node: MakeNode, args: Sequence[str]) -> int:
    """Run one lifecycle node until a signal comes; the body of every executable.

    Never returns: the process exits with one of the codes above. `make_node` makes the node,
    which has a parameter ``autostart``, from the context and `args`, the command line without the
    program's name.
    """
    set_library_defaults()
    note_destructors()
    stop = threading.Event()
    with stop_on_signals(stop) as signals:
        start_end_watcher(signals, KILL_LIMIT_S, find_starter())
        process = _Process(make_node, list(args), stop)
        start_thread(process.start, "start")
        stop.wait()
        faulthandler.dump_traceback_later(HANG_LIMIT_S, exit=True)
        start_thread(process.end, "end").join(END_LIMIT_S)
        faulthandler.cancel_dump_traceback_later()
        # From here on neither a second Ctrl-C nor threads that hang in a library, nor their
        # destructors, may delay the end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        start_thread(_flush, "flush").join(FLUSH_LIMIT_S)
        os._exit(process.code)


def _flush() -> None:
    """Flush the output; blocks while it is not read."""
    sys.stdout.flush()
    sys.stderr.flush()


class _Process:
    """A node, its context and its spinning thread, from the first import to the end.

    The start runs on its own thread, so that imports do not delay the end either.
    """

    def __init__(self, make_node: MakeNode, args: list[str], stop: threading.Event) -> None:
        self._make_node, self._args, self._stop = make_node, args, stop
        self._spinner: Spinner | None = None
        self._node: ManagedNode | None = None
        self._context: Context | None = None
        self.code = SIGNAL

    def start(self) -> None:
        """Make the node, spin it, and start it with ``autostart``; sets `stop` on a failure."""
        try:
            self._start()
        except ConfigurationError as error:
            self._fail(BAD_CONFIGURATION, safe_text(error, LONGEST_TEXT))
        except BaseException as error:  # also sys.exit(), which would end this thread only
            logger.exception("the node could not be started")
            self._fail(START_FAILED, describe_error(error))

    def end(self) -> None:
        """Restore the clocks, then shut the node down as far as the time allows."""
        spinner, node, context = self._spinner, self._node, self._context
        if node is not None:
            # First, and on its own thread: the ROS thread may be busy, or have ended.
            start_thread(node.restore_clocks, "restore clocks").join(CLOCKS_LIMIT_S)
        if spinner is None or node is None or context is None or spinner.ended.is_set():
            return

        end_s = time.monotonic() + SHUTDOWN_LIMIT_S
        with contextlib.suppress(TimeoutError, SpinEndedError):
            node.shut_down(SHUTDOWN_LIMIT_S)
            # The DDS participant goes with the last node: others see that at once.
            spinner.call(node.destroy_node, end_s - time.monotonic())
            if spinner.stop(0.1):
                context.try_shutdown()

    def _start(self) -> None:
        from rclpy.exceptions import ParameterException

        from jetson_dnn_rt.config.parameter_file import read_parameter_file
        from jetson_dnn_rt.nodes.process.arguments import find_params_files

        # rcl says of a file that is not there only that it cannot be parsed.
        for path in find_params_files(self._args):
            read_parameter_file(path)
        context = open_context(self._args)
        use_ros_logging()
        try:
            node = self._make_node(context, self._args)
        except ParameterException as error:
            raise ConfigurationError(str(error)) from error
        node.check_files(self._args)
        node.refuse_misspelt()
        spinner = Spinner(context, self._on_spin_end)
        spinner.add(node)
        self._context, self._node, self._spinner = context, node, spinner
        spinner.start()
        node.start_times = time_nodes(find_birth_ns(), node)
        if node.get_parameter("autostart").value:
            node.autostart()
        else:
            node.tell_waiting()

    def _on_spin_end(self, error: BaseException | None) -> None:
        # Shutting the context down makes a spinning thread raise, which is not a fault.
        if error is not None and not self._stop.is_set():
            self._fail(SPIN_FAILED, f"the ROS thread ended: {describe_error(error)}")

    def _fail(self, code: int, text: str) -> None:
        self.code = code
        print(make_printable(text, lines=True), file=sys.stderr)
        self._stop.set()
