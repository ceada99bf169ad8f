# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A service whose answer takes long, without stopping the ROS thread."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from jetson_dnn_rt.nodes.process.guard import guard
from jetson_dnn_rt.safety.faults import start_thread


def answer_late(
    service: Any, name: str, accept: Callable[[], bool], on_end: Callable[[], None]
) -> None:
    """Make a service of rclpy answer from a thread of its own, called `name`.

    `accept` says on the ROS thread whether a request is accepted; if not, the answer has default
    values and is sent at once. `on_end` is called before the answer of an accepted one is sent.

    Every executor calls the service's `callback` and passes what it returns, with the address of
    the client, to `send_response`. Here the first only keeps the request; the second starts the
    thread. Any thread may send an answer (rmw.h). A coroutine that waits would not do: Jazzy's
    EventsExecutor raises `TypeError` on it, Kilted's spins without a pause meanwhile, and the
    SingleThreadedExecutor of both keeps the callbacks of its group waiting, which are all of the
    node (``get_state``). Tried with rclpy 7.1.6 and 9.1.2.
    """
    callback, send = service.callback, service.send_response
    accepted: list[Any] = []

    def take(request: Any, response: Any) -> Any:
        if accept():
            accepted.append(request)
        return response

    def begin(response: Any, header: Any) -> None:
        if not accepted:
            send(response, header)
            return
        request = accepted.pop()

        def answer() -> None:
            late = response
            try:
                # Not the class of the thread which started this one: it may deliver frames.
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
                late = callback(request, response)
            finally:
                on_end()
                # The node may be gone by now.
                guard(send, f"{name}: answer")(late, header)

        try:
            start_thread(answer, name)
        except BaseException:  # no more threads in this system
            on_end()
            send(response, header)
            raise

    service.callback, service.send_response = take, begin
