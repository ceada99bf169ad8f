"""The guard around every callback that ROS calls: a fault costs that call, never the process.

Without it an exception in a callback comes out of the executor's `spin_once`. `ManagedNode` guards
what its nodes create, those things too that rclpy creates for them (parameter and lifecycle
services, the clock's subscription), so that nobody has to think of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import SetParametersResult

from jetson_dnn_rt.safety.faults import FAULTS, safe_text

REASON_FIELDS = ("message", "reason")
"""Text fields of a response that say why a request failed."""

LIST_FIELDS = ("parameters", "names", "prefixes")
"""Fields of a request for parameters, one entry for each of them."""

MOST_ENTRIES = 500
"""Of them: a node has some hundred parameters, and is busy for seconds with ten thousand."""


def guard(callback: Callable[..., Any], place: str) -> Callable[..., Any]:
    """Guard a callback of a subscription, a timer or a future.

    Parameters
    ----------
    callback : callable
        The callback; what it returns is returned, None when it raises.
    place : str
        What is counted, from a fixed set of names: ``detector: subscription /image_raw``.
    """

    @functools.wraps(callback)
    def guarded(*args: Any) -> Any:
        try:
            return callback(*args)
        # sys.exit() in a library that a callback uses must not end the thread either.
        except BaseException as error:
            FAULTS.note(place, error)
            return None

    return guarded


def guard_service(callback: Callable[..., Any], kind: Any, place: str) -> Callable[..., Any]:
    """Guard a service's callback: the client gets an answer whatever happens.

    Parameters
    ----------
    callback : callable
        Takes request and response, returns the response.
    kind : type
        Of the service. When the callback raises, the answer is a new response with the reason in
        the fields that say one, and otherwise with the defaults of its fields.
    place : str
        What is counted: ``detector: service ~/enable``.
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
            return _refuse(kind.Response(), request, response, describe(error))

    return guarded


def guard_parameters(callback: Callable[..., Any], place: str) -> Callable[..., Any]:
    """Guard a callback that checks new parameters: when it raises they are refused."""

    @functools.wraps(callback)
    def guarded(parameters: Any) -> Any:
        try:
            return callback(parameters)
        except BaseException as error:
            FAULTS.note(place, error)
            return SetParametersResult(successful=False, reason=describe(error))

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


def describe(error: BaseException) -> str:
    """Type and text of an exception."""
    return f"{type(error).__name__}: {safe_text(error)}"


def name_of(callback: Callable[..., Any]) -> str:
    """Name of a callback for the counts, the same for every object that has it."""
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def _refuse(refusal: Any, request: Any, begun: Any, reason: str) -> Any:
    """Say in a new response that the request failed, as far as it has fields for that."""
    for field, kind in refusal.get_fields_and_field_types().items():
        if kind == "string" and field in REASON_FIELDS:
            setattr(refusal, field, reason)
        elif kind == "rcl_interfaces/SetParametersResult":
            getattr(refusal, field).reason = reason
        elif kind == "sequence<rcl_interfaces/SetParametersResult>":
            # One for each parameter, within bounds; those before the fault are set already.
            done = list(getattr(begun, field))
            count = len(request.parameters) - len(done)
            failed = SetParametersResult(successful=False, reason=reason)
            setattr(refusal, field, (done + [failed] * count)[:MOST_ENTRIES])
    return refusal
