# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters of a node: changes are checked alone and together, all or none of them."""

# Without the annotations of __future__: under pytest 6, which Ubuntu 22.04 has, no dataclass could
# look its module up.

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from rcl_interfaces.srv import SetParametersAtomically
from rclpy.parameter import Parameter

from jetson_dnn_rt.config.declaration import parameter
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.process.parameters import ParameterSet


@dataclass(frozen=True)
class Example:
    """Parameters that change while the node runs, one that does not, and a rule for two."""

    ratio: float = parameter(0.5, "A ratio", limits=(0.0, 1.0), dynamic=True)
    count: int = parameter(3, "A count", limits=(1, 9), dynamic=True)
    mode: str = parameter("a", "A mode", choices=("a", "b"), dynamic=True)
    flag: bool = parameter(False, "A flag", name="group.flag")

    def __post_init__(self):
        if self.mode == "b" and self.ratio > 0.9:
            raise ConfigurationError("mode b needs a ratio of at most 0.9")


def test_changes_are_checked_alone_and_together(ros):
    fixed = False
    refused = ""
    seen: list[Example] = []

    def on_change(before, after):
        if refused:
            raise ConfigurationError(refused)
        seen.append(after)

    parameters = ros.call(
        lambda: ParameterSet(ros.probe, Example, is_fixed=lambda: fixed, on_change=on_change)
    )
    assert parameters.value == Example()
    assert ros.set(ros.probe, mode="b").successful
    assert parameters.value.mode == "b"
    result = ros.set(ros.probe, ratio=0.95)
    assert (result.successful, result.reason) == (False, "mode b needs a ratio of at most 0.9")
    assert ros.set(ros.probe, **{"group.flag": True}).successful
    fixed = True
    result = ros.set(ros.probe, **{"group.flag": False})
    assert "read when the node is configured" in result.reason
    assert ros.set(ros.probe, **{"group.flag": True}).successful  # no change
    refused = "not now"
    assert ros.set(ros.probe, count=5).reason == "not now"
    assert parameters.value == Example(mode="b", flag=True)
    assert seen[-1] == parameters.value


@dataclass(frozen=True)
class Second:
    """Parameters of the same node from another declaration."""

    workers: int = parameter(1, "Workers", limits=(1, 64))
    level: int = parameter(1, "A level", limits=(1, 64), dynamic=True)


def set_together(ros, values):
    """Set parameters in one request over DDS, all or none of them."""
    request = SetParametersAtomically.Request(
        parameters=[
            Parameter(name, value=value).to_parameter_msg() for name, value in values.items()
        ]
    )
    return ros.request(SetParametersAtomically, "probe/set_parameters_atomically", request).result


@pytest.mark.parametrize("turned", [False, True])
def test_a_request_that_ros_refuses_changes_nothing(ros, turned):
    """EDGES 17: parameters of two declarations, set in one request, change all or not at all."""
    applied: list[Any] = []
    kinds = (Second, Example) if turned else (Example, Second)
    sets = ros.call(
        lambda: {
            kind: ParameterSet(
                ros.probe, kind, on_change=lambda *values: applied.append(values[-1])
            )
            for kind in kinds
        }
    )
    for values, reason in (
        ({"workers": 4, "mode": "zzz"}, "mode must be one of a, b"),
        ({"mode": "b", "workers": 65}, "workers"),
        ({"workers": 4, "level": 2, "mode": "b", "ratio": 0.95}, "ratio of at most 0.9"),
    ):
        result = set_together(ros, values)
        assert not result.successful
        assert reason in result.reason
        assert sets[Example].value == Example()
        assert sets[Second].value == Second()
        assert not applied
        assert [ros.probe.get_parameter(name).value for name in ("workers", "mode")] == [1, "a"]
    assert set_together(ros, {"workers": 4, "mode": "b"}).successful
    assert (sets[Second].value.workers, sets[Example].value.mode) == (4, "b")
    assert set(applied) == {Second(workers=4), Example(mode="b")}


@pytest.mark.parametrize("error", [ConfigurationError("not now"), RuntimeError("broken")])
def test_what_took_effect_is_undone_when_the_rest_cannot(ros, error):
    """EDGES 17: a change that fails half-way is taken back, and nothing of the request counts."""
    effect = {"mode": "a", "level": 1}

    def set_mode(*values):
        effect["mode"] = values[-1].mode

    def set_level(*values):
        if values[-1].level == 7:
            raise error
        effect["level"] = values[-1].level

    first = ros.call(lambda: ParameterSet(ros.probe, Example, on_change=set_mode))
    second = ros.call(lambda: ParameterSet(ros.probe, Second, on_change=set_level))
    result = set_together(ros, {"mode": "b", "level": 7})
    assert not result.successful
    assert str(error) in result.reason
    assert effect == {"mode": "a", "level": 1}
    assert (first.value, second.value) == (Example(), Second())
    assert set_together(ros, {"mode": "b", "level": 6}).successful
    assert effect == {"mode": "b", "level": 6}
