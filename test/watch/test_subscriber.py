# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Real DDS: tasks are found, end and come back; what is sent arrives as it was sent."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: nothing to subscribe with")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from std_msgs.msg import String

from jetson_dnn_rt.watch.graph import Graph
from jetson_dnn_rt.watch.subscriber import MOST_VALUES, GraphSubscriber

TOPIC = "/front/detector/debug/timing"
VALUES = {"outcome": "late", "response_ms": "40.500", "deadline_ms": "33.000", "variant": "full@a"}


class Watch:
    """A graph, its subscriber on the probe's node, and a way to wait for a view."""

    def __init__(self, ros, namespace="/"):
        self.ros, self.graph = ros, Graph()
        self.subscriber = ros.call(lambda: GraphSubscriber(ros.probe, self.graph, namespace))

    def wait(self, wanted):
        return self.ros.wait(lambda: wanted(self.graph.snapshot()), "the view")

    def wait_task(self, wanted):
        return self.wait(lambda v: [t for t in v.tasks if wanted(t)])[0]


def timing(values=VALUES, statuses=1):
    status = DiagnosticStatus(
        name="/front/detector", values=[KeyValue(key=k, value=v) for k, v in values.items()]
    )
    message = DiagnosticArray(status=[status] * statuses)
    message.header.stamp.sec, message.header.stamp.nanosec = 7, 5
    return message


def publish_until(ros, publisher, message, condition):
    """Publish again and again: best effort and discovery lose the first ones."""

    def attempt():
        publisher.publish(message)
        return condition()

    return ros.wait(attempt, "the effect of a message")


def test_tasks_appear_end_and_come_back(ros):
    watch = Watch(ros)
    ros.advertise(String, "/other/debug/timing")  # of another type
    first = ros.advertise(DiagnosticArray, TOPIC, 10)
    watch.wait_task(lambda task: task.name == "/front/detector" and task.present)
    publish_until(ros, first, timing(), lambda: sum(task_counts(watch).values()))
    ros.call(lambda: ros.probe.destroy_publisher(first))
    gone = watch.wait_task(lambda task: not task.present)
    assert gone.totals["late"] >= 1
    again = ros.advertise(DiagnosticArray, TOPIC, 10)
    watch.wait_task(lambda task: task.present)
    before = task_counts(watch)["late"]
    publish_until(ros, again, timing(), lambda: task_counts(watch)["late"] > before)
    assert [task.name for task in watch.graph.snapshot().tasks] == ["/front/detector"]


def task_counts(watch):
    (task,) = watch.graph.snapshot().tasks
    return task.totals


def test_a_frame_arrives_as_it_was_sent(ros):
    watch = Watch(ros)
    publisher = ros.advertise(DiagnosticArray, TOPIC, 10)
    watch.wait_task(lambda task: True)
    publish_until(ros, publisher, timing(), lambda: sum(task_counts(watch).values()))
    (task,) = watch.graph.snapshot().tasks
    assert (task.response_ms, task.deadline_ms, task.variant) == (40.5, 33.0, "full@a")
    assert task.frames["stamp_ns"][0] == 7_000_000_005
    assert set(task.frames["outcome"]) == {1}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (timing(statuses=2), "statuses"),
        (timing(statuses=0), "statuses"),
        (timing({str(n): "" for n in range(MOST_VALUES + 1)}), "values"),
        (timing({**VALUES, "response_ms": "nan"}), "response_ms"),
    ],
    ids=["two statuses", "none", "values", "nan"],
)
def test_hostile_messages_are_counted(message, reason, ros):
    watch = Watch(ros)
    publisher = ros.advertise(DiagnosticArray, TOPIC, 10)
    watch.wait_task(lambda task: True)
    publish_until(ros, publisher, message, lambda: watch.graph.snapshot().dropped)
    view = watch.graph.snapshot()
    assert set(view.dropped) == {reason}
    assert sum(view.tasks[0].totals.values()) == 0


def test_the_coordinator_and_warnings_of_one_namespace(ros):
    watch = Watch(ros, "front")
    publisher = ros.advertise(DiagnosticArray, "/diagnostics", 10)
    ros.advertise(DiagnosticArray, "/rear/detector/debug/timing", 10)
    ros.advertise(DiagnosticArray, TOPIC, 10)
    names = ("/front/coordinator: policy_status", "/rear/a: task_status", "/front/a: task_status")
    values = [KeyValue(key="policy", value="neuos"), KeyValue(key="a.variant", value="full@a")]
    message = DiagnosticArray(
        status=[DiagnosticStatus(name=name, level=b"\x01", values=values) for name in names]
    )
    publish_until(ros, publisher, message, lambda: watch.graph.snapshot().warnings)
    watch.wait_task(lambda task: True)
    view = watch.graph.snapshot()
    assert [task.name for task in view.tasks] == ["/front/detector"]
    assert [one.name for one in view.warnings] == ["/front/a: task_status", names[0]]
    (coordinator,) = view.coordinators
    assert (coordinator.policy, dict(coordinator.choices)) == ("neuos", {"a": "full@a"})


def test_closed_it_leaves_no_subscription(ros):
    watch = Watch(ros)
    ros.advertise(DiagnosticArray, TOPIC, 10)
    watch.wait_task(lambda task: True)
    ros.call(watch.subscriber.close)
    assert not list(ros.probe.subscriptions)
