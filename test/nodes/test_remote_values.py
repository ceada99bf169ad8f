# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What other processes send is used when it can be true, and dropped and counted otherwise."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from cohort_tables import FAST, FULL, write_tables
from hostile_values import BAD_NUMBERS, parameter_values
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.msg import ParameterEvent, ParameterValue, SetParametersResult
from rcl_interfaces.srv import GetParameters, SetParameters
from std_msgs.msg import Float64
from task_bench import Bench, make_image, start_coordinator

from jetson_dnn_rt.nodes.coordinator import remote_cohort
from jetson_dnn_rt.nodes.coordinator.remote_values import (
    lag_limits_ms,
    read_number,
    read_task_parameter,
)
from jetson_dnn_rt.safety.faults import FAULTS

ADAPTIVE = "apnet"
LAG, MISSES = "detector/debug/lag_ms", "detector/debug/deadline_misses"


def dropped(place):
    return sum(f.count for f in FAULTS.snapshot() if place in f.kind and "dropped" in f.kind)


@pytest.mark.parametrize("value", [*BAD_NUMBERS, 60_000.5, -3.7e6, True, None, "40", [40.0]])
def test_a_number_that_cannot_be_true_is_dropped(value):
    """EDGES 4: neither NaN nor infinity nor another type is a number in range."""
    assert read_number("topic x", value, lag_limits_ms()) is None
    assert dropped("topic x") == 1


@pytest.mark.parametrize("value", [-3.6e6, -0.0, 40, 12.5, 60_000.0])
def test_a_number_in_range_is_taken(value):
    read = read_number("topic x", value, lag_limits_ms())
    assert (read, type(read)) == (value, float)
    assert not FAULTS.snapshot()


@pytest.mark.parametrize("name", ["deadline_ms", "variant", "variants"])
def test_parameters_of_other_tasks_are_held_to_their_declaration(name):
    """EDGES 4, 5: every type and class of values gives the declared type, or nothing."""
    kinds = {"deadline_ms": float, "variant": str, "variants": tuple}
    for value in parameter_values():
        read = read_task_parameter("events", name, value)
        if read is None:
            continue
        assert isinstance(read, kinds[name])
        assert name != "deadline_ms" or (math.isfinite(read) and 0.0 <= read <= 60_000.0)
        assert name == "deadline_ms" or read in ("", ())
    assert dropped("events") > 10


def test_an_integer_is_read_where_a_double_is_meant():
    """EDGES 5: `ros2 param set /detector deadline_ms 40` stores an INTEGER."""
    value = ParameterValue(type=2, integer_value=40)
    read = read_task_parameter("events", "deadline_ms", value)
    assert (read, type(read)) == (40.0, float)


class Impostor:
    """A node called detector that sends and answers whatever it is told to.

    Without `answers` nothing spins it: it hears requests as a task does that hangs.
    """

    def __init__(self, ros, *, answers=True):
        from rclpy.node import Node

        self.ros = ros
        self.values = [ParameterValue(type=4), ParameterValue(type=9), ParameterValue(type=3)]
        self.asked: list[str] = []

        def make(context):
            return Node("detector", context=context, start_parameter_services=False)

        self.node = ros.make(make) if answers else ros.call(lambda: make(ros.context))
        self.lag = ros.advertise(Float64, LAG, 10)
        self.misses = ros.advertise(Float64, MISSES, 10)
        self.events = ros.advertise(ParameterEvent, "/parameter_events", 100)
        ros.call(self._offer)

    def _offer(self):
        self.node.create_service(GetParameters, "~/get_parameters", self._on_get)
        self.node.create_service(SetParameters, "~/set_parameters", self._on_set)

    def _on_get(self, request, response):
        self.asked.append("get")
        response.values = self.values
        return response

    def _on_set(self, request, response):
        self.asked.append("set")
        response.results = [SetParametersResult(successful=False, reason="x" * 100_000)]
        return response

    def tell(self, name, value):
        event = ParameterEvent(node="/detector")
        event.changed_parameters = [ParameterMessage(name=name, value=value)]
        self.events.publish(event)

    def wait_for_listener(self):
        for publisher in (self.lag, self.misses):
            self.ros.wait(publisher.get_subscription_count, "the coordinator's subscription")


def frames_of(node):
    coordinator = node.coordinator
    return 0 if coordinator is None else int(coordinator.cohort.members[0].frames_done)


def deadline_of(node):
    coordinator = node.coordinator
    return 0 if coordinator is None else coordinator.cohort.members[0].table.deadline_ns


@pytest.mark.parametrize("policy", ["static", ADAPTIVE])
def test_the_coordinator_outlives_every_value_on_its_topics(ros, tmp_path, policy):
    """EDGES 4: NaN, inf, -5.0, 1e308 as LAG, misses or deadline count; the next is heard."""
    sender = Impostor(ros)
    node = start_coordinator(ros, write_tables(tmp_path), policy=policy)
    sender.wait_for_listener()
    for number in BAD_NUMBERS:
        sender.lag.publish(Float64(data=number))
        sender.misses.publish(Float64(data=number))
    sender.misses.publish(Float64(data=-5.0))
    ros.wait(lambda: dropped(LAG) == len(BAD_NUMBERS), "what was dropped")
    ros.wait(lambda: dropped(MISSES) == len(BAD_NUMBERS) + 1, "what was dropped")
    values = list(parameter_values())
    for value in values:
        for name in ("deadline_ms", "variant", "deadline_ms\0", "model"):
            sender.tell(name, value)
    sender.tell("deadline_ms", ParameterValue(type=3, double_value=250.0))

    ros.wait(lambda: deadline_of(node) == 250_000_000, "a deadline that can be true")
    before = frames_of(node)

    def is_heard():
        # The cohort of the new deadline subscribes anew: one message may come too early.
        sender.lag.publish(Float64(data=1.0))
        return frames_of(node) > before

    ros.wait(is_heard, "a frame")
    assert node.coordinator.failure == ""
    assert ros.spinner.error is None


def test_an_integer_deadline_is_the_deadline(ros, tmp_path):
    """EDGES 5: a deadline stored as INTEGER 40 is planned with, at once and when it is read."""
    bench = Bench(ros, deadline_ms=40)
    bench.start()
    node = start_coordinator(ros, write_tables(tmp_path), policy=ADAPTIVE)

    def send_until(wanted_ns):
        def arrived():
            bench.images.publish(make_image(ros))
            return deadline_of(node) == wanted_ns

        ros.wait(arrived, f"a deadline of {wanted_ns} ns")

    assert bench.node.parameters.deadline_ms == 40.0
    send_until(40_000_000)
    assert ros.set(bench.node, deadline_ms=30).successful
    ros.wait(lambda: deadline_of(node) == 30_000_000, "the parameter event")
    assert not FAULTS.snapshot()


def test_answers_that_cannot_be_true_are_dropped(ros, tmp_path, monkeypatch):
    """EDGES 4: whoever answers in a task's place with anything at all costs that answer only."""
    monkeypatch.setattr(remote_cohort, "RETRY_NS", 1_000_000)  # every variant is refused here
    sender = Impostor(ros)
    node = start_coordinator(ros, write_tables(tmp_path), policy=ADAPTIVE)
    sender.wait_for_listener()
    task = node._cohort._remote["detector"]
    ros.wait(lambda: task._getter.service_is_ready() and task._setter.service_is_ready())
    answers: list[list[Any]] = [[], [ParameterValue(type=3, double_value=math.nan)] * 100]
    answers += [[value] * 3 for value in parameter_values()]
    for answer in answers:
        sender.values = answer
        count = sender.asked.count("get")

        def ask(count=count):
            sender.lag.publish(Float64(data=1.0))
            return sender.asked.count("get") > count

        ros.wait(ask, "a question")
    ros.wait(lambda: dropped("service /detector/get_parameters") >= len(answers) - 5)
    assert max(map(len, task.refusals.values())) <= 500
    assert node.coordinator.cohort.members[0].table.deadline_ns == 500_000_000


def test_a_restart_that_fails_leaves_the_coordinator_alive(ros, tmp_path, monkeypatch):
    """EDGES 4: `_restart` survives a ValueError, says it, and the next deadline is coordinated."""
    sender = Impostor(ros)
    node = start_coordinator(ros, write_tables(tmp_path))
    sender.wait_for_listener()
    make_tables = node._cohort.make_tables
    calls: list[int] = []

    def fail(given):
        calls.append(1)
        raise ValueError("deadline_ns must be at least 1: -5")

    monkeypatch.setattr(node._cohort, "make_tables", fail)
    sender.tell("deadline_ms", ParameterValue(type=3, double_value=250.0))
    ros.wait(lambda: "deadline_ns must be" in node.policy_fault, "the fault")
    assert node.coordinator is None
    monkeypatch.setattr(node._cohort, "make_tables", make_tables)
    sender.tell("deadline_ms", ParameterValue(type=3, double_value=200.0))
    ros.wait(lambda: node.coordinator is not None, "the next coordinator")
    assert node.coordinator.cohort.members[0].table.deadline_ns == 200_000_000
    assert node.policy_fault == ""
    assert len(calls) == 1  # not ten times a second


def test_a_question_to_a_task_that_dies_is_given_up_and_asked_again(ros, tmp_path, monkeypatch):
    """EDGES 19: no request waits for ever: it is forgotten, and a task that comes is asked."""
    monkeypatch.setattr(remote_cohort, "RETRY_NS", 1_000_000)
    monkeypatch.setattr(remote_cohort, "ANSWER_LIMIT_NS", 100_000_000)
    hung = Impostor(ros, answers=False)
    node = start_coordinator(ros, write_tables(tmp_path), policy=ADAPTIVE)
    hung.wait_for_listener()
    task = node._cohort._remote["detector"]
    ros.wait(lambda: task._getter.service_is_ready() and task._setter.service_is_ready())
    begin_ns = time.monotonic_ns()

    def wait_until(condition, what):
        def frame_ended():
            hung.lag.publish(Float64(data=1.0))
            return condition()

        ros.wait(frame_ended, what)

    # Long enough for the first questions to be given up.
    wait_until(lambda: time.monotonic_ns() - begin_ns > 5 * remote_cohort.ANSWER_LIMIT_NS, "")
    ros.call(hung.node.destroy_node)
    successor = Impostor(ros)
    successor.values = [
        ParameterValue(type=4, string_value=FAST),
        ParameterValue(type=9, string_array_value=[FULL, FAST]),
        ParameterValue(type=3, double_value=250.0),
    ]
    wait_until(lambda: node._cohort._deadlines_ns == {"detector": 250_000_000}, "its answer")
    # Another deadline means another coordinator, which is made on the spinning thread.
    ros.wait(lambda: ros.call(lambda: node._cohort._remote.get("detector")) is not task)
    task = ros.call(lambda: node._cohort._remote["detector"])
    ros.wait(lambda: not task._getter.pending and not task._setter.pending)
    for requests in (task._getter, task._setter):
        assert not requests._client._pending_requests
