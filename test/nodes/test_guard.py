# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The guard around every callback: an exception costs that call, is counted and shown."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rcl_interfaces.msg import Parameter, ParameterValue, SetParametersResult
from rcl_interfaces.srv import GetParameters, SetParameters, SetParametersAtomically
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_graph import TIMEOUT_S, Inbox
from std_msgs.msg import Float64
from std_srvs.srv import Empty, SetBool
from task_bench import diagnostics_of, wait_for_value

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.nodes.process.distribution import SubscriptionEventCallbacks
from jetson_dnn_rt.nodes.process.lifecycle import ERROR, FAILURE, ManagedNode
from jetson_dnn_rt.nodes.process.qos import make_events
from jetson_dnn_rt.nodes.reports.diagnostics import OK, DiagnosticsPublisher, make_status
from jetson_dnn_rt.safety.faults import FAULTS

FAULTS_OF_A_KIND = 3


class ScriptError(Exception):
    """What a callback under test raises."""


class Script:
    """A callback that raises its first calls, then does what it is for."""

    def __init__(self, action=lambda *_: None):
        self._action, self.calls = action, 0
        self._condition = threading.Condition()

    def __call__(self, *args):
        with self._condition:
            self.calls += 1
            number = self.calls
            self._condition.notify_all()
        if number <= FAULTS_OF_A_KIND:
            raise ScriptError(f"call {number}")
        return self._action(*args)

    def wait(self, calls):
        with self._condition:
            assert self._condition.wait_for(lambda: self.calls >= calls, TIMEOUT_S)


class GuardedNode(ManagedNode):
    """A node with nothing but its guards and its diagnostics."""

    def __init__(self, **options):
        super().__init__("guarded", **options)
        self.script = Script()
        self.diagnostics = DiagnosticsPublisher(self, {}, process=True)


def take_message(*args):
    """Take what a callback is given."""


def fail_in_a_subscription(ros, node):
    def subscribe():
        node.create_subscription(Float64, "numbers", lambda message: node.script(message), 10)

    ros.call(subscribe)
    publisher = ros.advertise(Float64, "numbers", 10)
    ros.wait(publisher.get_subscription_count, "the subscription")
    for number in range(FAULTS_OF_A_KIND + 1):
        publisher.publish(Float64(data=float(number)))
        node.script.wait(number + 1)
    return "guarded: subscription numbers"


def fail_in_a_timer(ros, node):
    timer = ros.call(lambda: node.create_timer(0.01, node.script))
    node.script.wait(FAULTS_OF_A_KIND + 1)
    ros.call(lambda: node.destroy_timer(timer))
    return "guarded: timer Script"


def fail_in_a_service(ros, node):
    def answer(request, response):
        response.success, response.message = True, "half done"
        node.script()
        return response

    ros.call(lambda: node.create_service(SetBool, "~/switch", answer))
    answers = [
        ros.request(SetBool, "guarded/switch", SetBool.Request())
        for _ in range(FAULTS_OF_A_KIND + 1)
    ]
    assert [one.success for one in answers] == [False] * FAULTS_OF_A_KIND + [True]
    assert [one.message for one in answers[:-1]] == [
        f"ScriptError: call {number + 1}" for number in range(FAULTS_OF_A_KIND)
    ]
    return "guarded: service ~/switch"


def fail_in_a_check_of_parameters(ros, node):
    def declare():
        node.declare_parameter("ratio", 0.5)
        script = Script(lambda parameters: SetParametersResult(successful=True))
        script.__qualname__ = "check"  # type: ignore[attr-defined]
        node.add_on_set_parameters_callback(script)

    ros.call(declare)
    values = [Parameter(name="ratio", value=ParameterValue(type=3, double_value=0.25))]
    request = SetParameters.Request(parameters=values)
    results = [
        ros.request(SetParameters, "guarded/set_parameters", request).results[0]
        for _ in range(FAULTS_OF_A_KIND + 1)
    ]
    assert [one.successful for one in results] == [False] * FAULTS_OF_A_KIND + [True]
    assert results[1].reason == "ScriptError: call 2"
    assert node.get_parameter("ratio").value == 0.25
    return "guarded: parameters, check"


def fail_in_an_answer(ros, node):
    def serve(request, response):
        return response

    ros.call(lambda: ros.probe.create_service(Empty, "nothing", serve))
    client = ros.call(lambda: node.create_client(Empty, "nothing"))
    assert client.wait_for_service(TIMEOUT_S)
    for number in range(FAULTS_OF_A_KIND + 1):

        def ask():
            client.call_async(Empty.Request()).add_done_callback(node.script)

        ros.call(ask)
        node.script.wait(number + 1)
    return "guarded: answer of nothing"


def fail_in_a_qos_event(ros, node):
    def subscribe():
        node.create_subscription(
            Float64,
            "reliable",
            take_message,
            QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE),
            event_callbacks=make_events(SubscriptionEventCallbacks, node.script),
        )

    ros.call(subscribe)
    for number in range(FAULTS_OF_A_KIND + 1):
        ros.advertise(
            Float64, "reliable", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        )
        node.script.wait(number + 1)
    return "QoS event"


@pytest.mark.parametrize(
    "fail",
    [
        fail_in_a_subscription,
        fail_in_a_timer,
        fail_in_a_service,
        fail_in_a_check_of_parameters,
        fail_in_an_answer,
        fail_in_a_qos_event,
    ],
)
def test_a_callback_that_raises_is_logged_once_counted_and_shown(ros, fail, caplog):
    """EDGES 0: one exception in a callback ended the process."""
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    node = ros.make(GuardedNode)
    with caplog.at_level(logging.ERROR):
        place = fail(ros, node)
    assert ros.spinner.error is None
    kind = f"{place}: ScriptError"
    assert [(one.kind, one.count) for one in FAULTS.snapshot()] == [(kind, FAULTS_OF_A_KIND)]
    assert [place in record.getMessage() for record in caplog.records] == [True]
    found = wait_for_value(
        diagnostics, "/guarded: process_status", f"fault.{kind}", f"{FAULTS_OF_A_KIND}, last: call"
    )
    assert found["faults"] == str(FAULTS_OF_A_KIND)
    assert found["dead_threads"] == "none"
    shown = diagnostics_of(diagnostics, "/guarded: process_status", DiagnosticStatus.WARN)
    assert kind in shown[""]


@pytest.mark.parametrize(
    ("callback", "text"),
    [(lambda *_: sys.exit(3), "SystemExit: 3"), (lambda *_: None, "returned NoneType")],
    ids=["exits", "forgets its response"],
)
def test_a_service_is_answered_whatever_its_callback_does(ros, callback, text):
    """EDGES 0: sys.exit() in a library that it uses, or None for a response, ended the process."""
    node = ros.make(GuardedNode)
    ros.call(lambda: node.create_service(SetBool, "~/leave", callback))
    answer = ros.request(SetBool, "guarded/leave", SetBool.Request())
    assert (answer.success, text in answer.message) == (False, True)


UNKNOWN_TYPE = 99


def make_requests(count):
    """A usable parameter, then some of a type that does not exist: rclpy raises on them."""
    usable = Parameter(name="ratio", value=ParameterValue(type=3, double_value=0.25))
    unusable = Parameter(name="ratio", value=ParameterValue(type=UNKNOWN_TYPE))
    return [usable] + [unusable] * count


def test_requests_that_rclpy_chokes_on_are_refused(ros):
    """EDGES 0: a parameter of an unknown type, from anybody on the network, ended the process."""
    node = ros.make(GuardedNode)
    ros.call(lambda: node.declare_parameter("ratio", 0.5))
    request = SetParameters.Request(parameters=make_requests(2))
    results = ros.request(SetParameters, "guarded/set_parameters", request).results
    assert [one.successful for one in results] == [True, False, False]
    assert all(str(UNKNOWN_TYPE) in one.reason for one in results[1:])
    atomically = SetParametersAtomically.Request(parameters=make_requests(1))
    result = ros.request(
        SetParametersAtomically, "guarded/set_parameters_atomically", atomically
    ).result
    assert not result.successful
    assert str(UNKNOWN_TYPE) in result.reason
    values = ros.request(
        GetParameters, "guarded/get_parameters", GetParameters.Request(names=["ratio"])
    ).values
    assert values[0].double_value == 0.25


def test_requests_with_too_many_entries_are_refused_at_once(ros):
    """EDGES 2: one request with 10,000 entries kept the ROS thread busy for seconds."""
    node = ros.make(GuardedNode)
    changes: list[Any] = []
    ros.call(lambda: node.declare_parameter("ratio", 0.5))

    def note(parameters):
        changes.append(parameters)
        return SetParametersResult(successful=True)

    ros.call(lambda: node.add_on_set_parameters_callback(note))
    value = ParameterValue(type=3, double_value=0.25)
    many = [Parameter(name="ratio", value=value)] * 10_000
    answer = ros.request(
        SetParameters, "guarded/set_parameters", SetParameters.Request(parameters=many)
    )
    assert 0 < len(answer.results) <= 500
    assert not any(one.successful for one in answer.results)
    assert "at most 500 entries, this one 10000" in answer.results[0].reason
    result = ros.request(
        SetParametersAtomically,
        "guarded/set_parameters_atomically",
        SetParametersAtomically.Request(parameters=many),
    ).result
    assert not result.successful
    assert "at most 500 entries" in result.reason
    names = GetParameters.Request(names=["ratio"] * 100_000)
    assert ros.request(GetParameters, "guarded/get_parameters", names).values == []
    assert changes == []
    few = SetParameters.Request(parameters=many[:500])
    results = ros.request(SetParameters, "guarded/set_parameters", few).results
    assert [one.successful for one in results] == [True] * 500


class FailingNode(ManagedNode):
    """A node that cannot be configured, and whose clean-up fails too."""

    error: BaseException

    def configure(self):
        raise self.error

    def cleanup(self):
        raise OSError("cleanup")


class UnprintableError(Exception):
    """One whose text cannot be had."""

    def __str__(self):
        raise SystemExit("no text")


@pytest.mark.parametrize(
    "error", [ValueError("x" * 3_000_000), ModelError("x" * 3_000_000), UnprintableError()]
)
def test_the_reason_of_a_failed_transition_is_short(ros, error):
    """EDGES 2: diagnostics repeated megabytes every second."""
    node = ros.make(FailingNode, "wordy")
    node.error = error
    assert node.trigger_configure() == ERROR
    assert node.state_name == "finalized"
    assert 0 < len(node.fault) < 4000


def test_texts_in_diagnostics_are_bounded():
    """EDGES 2: whoever makes a status, it is no megabyte."""
    status = make_status(OK, "m" * 5_000_000, {"model": "n" * 5_000_000})
    assert len(status.message) == len(status.values[0].value) == 2000


class Undecided(ManagedNode):
    """A node whose transition returns nothing: rclpy raises in its own service."""

    def on_configure(self, state):
        return None


def test_services_of_the_life_cycle_are_guarded(ros):
    """EDGES 0: rclpy makes them without `create_service`; what they raised ended the process."""
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState, GetState

    node = ros.make(Undecided, "undecided")
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    assert not ros.request(ChangeState, "undecided/change_state", request).success
    state = ros.request(GetState, "undecided/get_state", GetState.Request()).current_state
    assert state.label == "configuring"
    assert ros.spinner.error is None
    assert [one.kind for one in FAULTS.snapshot()] == [
        "undecided: service /undecided/change_state: AttributeError"
    ]
    # As it would be, had the transition failed in order: else it cannot be shut down.
    ros.call(lambda: node._state_machine.trigger_transition_by_label(FAILURE.to_label(), True))


def test_a_message_that_cannot_be_read_ends_nothing(ros):
    """What anybody may send; rclpy drops it."""
    node, inbox = ros.make(GuardedNode), Inbox()
    ros.call(lambda: node.create_subscription(DiagnosticArray, "broken", inbox.take, 10))
    publisher = ros.advertise(DiagnosticArray, "broken", 10)
    ros.wait(publisher.get_subscription_count, "the subscription")
    for garbage in (b"", b"\0\1\0\0", b"\0\1\0\0" + b"\xff" * 64):
        publisher.publish(garbage)
    publisher.publish(DiagnosticArray())
    inbox.wait_count(1)
    assert ros.spinner.error is None


@pytest.mark.parametrize(
    "error", [ValueError("configure"), SystemExit("configure"), ModelError("configure")]
)
def test_a_node_that_cannot_be_released_is_finalized(ros, error):
    """EDGES 0: an undo that raised, or sys.exit(), left the node between two states."""
    node = ros.make(FailingNode, "undo")
    node.error = error
    assert not node.autostart()
    assert node.state_name == "finalized"
    assert "configure" in node.fault
    assert "fix: restart the process" in node.fault
    kinds = {one.kind for one in FAULTS.snapshot()}
    assert "undo: cleanup after an error: OSError" in kinds


def test_a_status_that_fails_does_not_silence_the_others(ros):
    """EDGES 0: one status function that raised ended the diagnostics, and the process."""
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")

    def fail():
        raise KeyError("a task that is not there")

    def make():
        node = ManagedNode("reporter", context=ros.context)
        statuses = {"broken_status": fail, "good_status": lambda: make_status(OK, "good", {})}
        node.publisher = DiagnosticsPublisher(node, statuses, process=True)  # type: ignore
        return node

    ros.make(lambda context: make())
    broken = diagnostics_of(diagnostics, "/reporter: broken_status", DiagnosticStatus.ERROR)
    assert "KeyError" in broken[""]
    assert diagnostics_of(diagnostics, "/reporter: good_status", OK)[""] == "good"
    assert diagnostics_of(diagnostics, "/reporter: process_status", DiagnosticStatus.WARN)


def test_a_thread_that_died_is_an_error_until_it_lives(ros):
    """EDGES 8: a thread that died was not said anywhere."""
    diagnostics = ros.listen(DiagnosticArray, "/diagnostics")
    ros.make(GuardedNode)
    assert diagnostics_of(diagnostics, "/guarded: process_status", OK)["faults"] == "0"
    FAULTS.note_dead("a thread", "ValueError: why")
    found = diagnostics_of(diagnostics, "/guarded: process_status", DiagnosticStatus.ERROR)
    assert found[""] == "threads have died: a thread"
    assert (found["dead_threads"], found["dead.a thread"]) == ("a thread", "ValueError: why")
    FAULTS.note_alive("a thread")
    diagnostics.clear()
    diagnostics_of(diagnostics, "/guarded: process_status", OK)


def test_a_destroyed_subscription_hears_nothing_more(ros):
    """Messages of the same moment are queued already when the first destroys its subscriptions."""
    heard = []

    def destroy(message):
        heard.append(message.data)
        while subscriptions:
            node.destroy_subscription(subscriptions.pop())

    node = ros.make(GuardedNode)
    subscriptions = [
        ros.call(lambda: node.create_subscription(Float64, "numbers", destroy, 10))
        for _ in range(2)
    ]
    publisher = ros.advertise(Float64, "numbers", 10)
    ros.wait(lambda: publisher.get_subscription_count() == 2, "the subscriptions")
    ros.call(lambda: [publisher.publish(Float64(data=float(n))) for n in range(5)])
    ros.wait(lambda: not subscriptions, "the first message")
    ros.wait(lambda: not publisher.get_subscription_count(), "the end of the subscriptions")
    ros.call(lambda: None)
    assert heard == [0.0]
