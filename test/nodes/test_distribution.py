# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What differs between ROS distributions: each way, on the rclpy that is here.

Modules and nodes called fake stand for a distribution that is not here.
"""

from __future__ import annotations

import sys
import types
from importlib import util

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSPresetProfiles, ReliabilityPolicy
from std_msgs.msg import Float64

from jetson_dnn_rt.config.task import QOS_NAMES
from jetson_dnn_rt.nodes.process import distribution
from jetson_dnn_rt.nodes.process.lifecycle import ManagedNode
from jetson_dnn_rt.nodes.process.qos import OVERRIDABLE, EventPoller, make_qos

EVENT_NAMES = (
    "PublisherEventCallbacks",
    "SubscriptionEventCallbacks",
    "UnsupportedEventTypeError",
)


def load_with(monkeypatch, modules):
    """The module as it would be with these modules of rclpy; None = not there."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    spec = util.spec_from_file_location("another_distribution", distribution.__file__)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def with_overrides(ros):
    """A node whose configuration names a parameter that it has not."""
    return ros.make(ManagedNode, "node", cli_args=["--ros-args", "-p", "no_such_parameter:=1"])


def test_event_callbacks_come_from_where_the_distribution_has_them(monkeypatch):
    fake = types.ModuleType("rclpy.qos_event")
    for name in EVENT_NAMES:
        setattr(fake, name, type(name, (), {}))
    modules = {"rclpy.event_handler": None, "rclpy.qos_event": fake}
    humble = load_with(monkeypatch, modules)
    for name in EVENT_NAMES:
        assert getattr(humble, name) is getattr(fake, name)


def test_executor_is_the_events_executor_where_there_is_one(ros, monkeypatch):
    fake = types.ModuleType("rclpy.experimental")
    fake.EventsExecutor = lambda context: ("events", context)
    newer = load_with(monkeypatch, {"rclpy.experimental": fake})
    assert newer.make_executor(ros.context) == ("events", ros.context)
    humble = load_with(monkeypatch, {"rclpy.experimental": None})
    executor = humble.make_executor(ros.context)
    assert isinstance(executor, SingleThreadedExecutor)
    executor.shutdown()


def test_given_parameters_without_the_private_name(with_overrides):
    node = with_overrides
    assert "no_such_parameter" in distribution.given_parameters(node)
    kept = node._parameter_overrides
    try:
        del node._parameter_overrides
        assert set(distribution.given_parameters(node)) == set(kept)
    finally:
        node._parameter_overrides = kept


def test_state_is_read_through_the_service(ros):
    node = ros.make(ManagedNode, "node")
    read = distribution.find_state(node)
    assert read() == node.state_name == "unconfigured"
    node.trigger_configure()
    assert read() == node.state_name == "inactive"
    node.trigger_shutdown()
    ros.call(node.destroy_node)
    assert read() == node.state_name == "finalized"


class FakeHandler:
    """An event handler of an rclpy without the private name."""

    def take_data(self):
        raise AssertionError("taken without an executor's wait")


class FakeEntity:
    event_handlers = (FakeHandler(),)


def test_events_stay_with_the_executor_where_they_cannot_be_polled(ros):
    node = ros.make(ManagedNode, "node")
    assert all(
        distribution.can_poll(handler)
        for publisher in node.publishers
        for handler in publisher.event_handlers
    )
    poller, entity = EventPoller(node), FakeEntity()
    # Neither removed from the node, which does not know it, nor polled.
    assert poller.watch(entity) is entity
    poller.poll()
    poller.forget(entity)


@pytest.mark.parametrize("name", QOS_NAMES)
def test_profiles_are_those_of_ros(name):
    try:
        preset = QoSPresetProfiles.get_from_short_key(name.lower())
    except KeyError:
        pytest.skip(f"this rclpy has no profile {name}")
    qos = make_qos(name, 3)
    assert (qos.reliability, qos.durability) == (preset.reliability, preset.durability)
    assert qos.depth == 3


def test_overrides_of_one_topic_leave_the_others_alone(ros):
    overrides = [
        Parameter("qos_overrides./first.publisher.reliability", value="best_effort"),
        Parameter("qos_overrides./first.publisher.depth", value=7),
        Parameter("qos_overrides./first.subscription.reliability", value="best_effort"),
    ]
    node = ros.make(ManagedNode, "node", parameter_overrides=overrides)
    qos = make_qos("DEFAULT", 2)

    def create():
        options = {"qos_overriding_options": OVERRIDABLE()}
        publishers = [
            node.create_publisher(Float64, name, qos, **options) for name in ("first", "second")
        ]
        for name in ("first", "second"):
            node.create_subscription(Float64, name, lambda message: None, qos, **options)
        return publishers

    first, second = ros.call(create)
    assert first.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT
    assert first.qos_profile.depth == 7
    for profile in (second.qos_profile, qos):
        assert profile.reliability == ReliabilityPolicy.RELIABLE
        assert profile.durability == DurabilityPolicy.VOLATILE
        assert profile.depth == 2
    offered = {
        name: info.qos_profile.reliability
        for name in ("first", "second")
        for info in node.get_subscriptions_info_by_topic(f"/{name}")
    }
    assert offered == {
        "first": ReliabilityPolicy.BEST_EFFORT,
        "second": ReliabilityPolicy.RELIABLE,
    }
