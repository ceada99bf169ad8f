# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Guards around every callback that ROS calls: a fault costs that call, never the process.

Without a guard an exception in a callback comes out of the executor's `spin_once`. `ManagedNode`
guards whatever its nodes create, and what rclpy creates for them (parameter and lifecycle
services, the clock's subscription).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import SetParametersResult

from jetson_dnn_rt.safety.faults import FAULTS, describe_error

REASON_FIELDS = ("message", "reason")
"""Text fields of a response that tell why a request failed."""

LIST_FIELDS = ("parameters", "names", "prefixes")
"""Fields of a parameter request with one entry per parameter."""

MOST_ENTRIES = 500
"""Entries of such a field: a node has some hundred parameters; ten thousand keep it busy for
seconds."""


def guard(
    callback: Callable[..., Any],
    place: str,
    on_error: Callable[[BaseException], Any] = lambda error: None,
) -> Callable[..., Any]:
    """Guard a callback: when it raises, the fault is counted and `on_error` makes its result.

    `place` is counted and comes from a fixed set of names: ``detector: subscription /image_raw``.
    """

    @functools.wraps(callback)
    def guarded(*args: Any) -> Any:
        try:
            return callback(*args)
        # sys.exit() in a library that a callback uses must not end the thread either.
        except BaseException as error:
            FAULTS.note(place, error)
            return on_error(error)

    return guarded


def guard_service(callback: Callable[..., Any], kind: Any, place: str) -> Callable[..., Any]:
    """Guard the callback of a service of type `kind`: the client always gets an answer.

    When the callback raises, the answer is a new response with the reason in the fields for it,
    and the defaults of the others.
    """

    @functools.wraps(callback)
    def guarded(request: Any, response: Any) -> Any:
        entries = max(len(getattr(request, field, ())) for field in LIST_FIELDS)
        if entries > MOST_ENTRIES:
            reason = f"a request has at most {MOST_ENTRIES} entries, this one {entries}"
            FAULTS.note_dropped(place, reason)
            return _refuse(kind.Response(), request, response, reason)
        try:
            answer = callback(request, response)
            if not isinstance(answer, kind.Response):
                raise TypeError(f"the callback returned {type(answer).__name__}, not a response")
            return answer
        except BaseException as error:
            FAULTS.note(place, error)
            return _refuse(kind.Response(), request, response, describe_error(error))

    return guarded


def guard_client(client: Any, place: str) -> Any:
    """Guard the done callbacks of every future that a client returns; returns the client."""
    call = client.call_async

    def call_async(request: Any) -> Any:
        future = call(request)
        add = future.add_done_callback
        future.add_done_callback = lambda callback: add(guard(callback, place))
        return future

    client.call_async = call_async
    return client


def _refuse(refusal: Any, request: Any, begun: Any, reason: str) -> Any:
    """Put the reason of a failed request into a new response, as far as it has fields for it."""
    for field, kind in refusal.get_fields_and_field_types().items():
        if kind == "string" and field in REASON_FIELDS:
            setattr(refusal, field, reason)
        elif kind == "rcl_interfaces/SetParametersResult":
            getattr(refusal, field).reason = reason
        elif kind == "sequence<rcl_interfaces/SetParametersResult>":
            # One per parameter, within bounds; those before the fault are set already.
            done = list(getattr(begun, field))
            failed = SetParametersResult(successful=False, reason=reason)
            count = len(request.parameters) - len(done)
            setattr(refusal, field, (done + [failed] * count)[:MOST_ENTRIES])
    return refusal
