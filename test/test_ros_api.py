# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Our uses of rclpy, launch and vision_msgs fit distributions that are not on this machine.

The tables in test/ros_api/ are recorded from their public sources (tools/record_ros_api.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ros_api import (
    MESSAGES,
    NODE,
    RECEIVERS,
    ROOT,
    Call,
    Sources,
    Use,
    find_misfit,
    find_own_members,
    find_uses,
    read_messages,
)

TABLES = {
    file.stem: json.loads(file.read_text("utf-8"))
    for file in sorted((Path(__file__).parent / "ros_api").glob("*.json"))
}
DISTRIBUTIONS = ("humble", "jazzy", "kilted", "lyrical", "rolling")
SHIM = "jetson_dnn_rt/nodes/process/distribution.py"
RECORD = (
    "python tools/record_ros_api.py SOURCES/humble SOURCES/jazzy SOURCES/kilted SOURCES/lyrical "
    "SOURCES/rolling (its --help says what is in SOURCES)"
)


@pytest.fixture(scope="module")
def uses():
    found = find_uses()
    # That the search finds what our code is known to use.
    seen = {(use.name, use.member) for use in found}
    assert {
        (NODE, "create_subscription"),
        (NODE, "_parameter_overrides"),
        ("rclpy.clock:Clock", ""),
        ("rclpy.publisher:Publisher", "publish"),
        ("rclpy.qos:ReliabilityPolicy", "BEST_EFFORT"),
        ("rclpy:init", ""),
        ("launch_ros.actions:Node", ""),
    } <= seen
    return found


def members_anywhere(name):
    entries = [table["names"].get(name) for table in TABLES.values()]
    return {member for entry in entries if isinstance(entry, dict) for member in entry}


def judge(use, names):
    """Why a use does not fit a table; empty if it does."""
    if use.name not in names:
        return f"not recorded; run: {RECORD}"
    entry = names[use.name]
    if entry is None:
        return "" if use.optional else "not there"
    if not use.member:
        signature = entry.get("__init__", "") if isinstance(entry, dict) else entry
    else:
        # An object is known by its name only: its other attributes are our own.
        if use.name in RECEIVERS.values() and use.member not in members_anywhere(use.name):
            return ""
        if not isinstance(entry, dict):
            return ""  # made in C++, which is not read
        if use.member not in entry:
            return "no such member"
        signature = entry[use.member]
    return find_misfit(use.call, signature) if use.call and signature else ""


def test_every_distribution_is_recorded():
    assert sorted(TABLES) == sorted(DISTRIBUTIONS)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_use_fits(uses, distribution):
    names = TABLES[distribution]["names"]
    assert [f"{use}: {why}" for use in uses if (why := judge(use, names))] == []


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_what_moved_between_modules_is_in_one_of_them(uses, distribution):
    names = TABLES[distribution]["names"]
    optional = {use.name for use in uses if use.optional}
    there = {name.split(":")[1] for name in optional if names[name] is not None}
    # The only one with another way for its absence than another module.
    assert {name.split(":")[1] for name in optional} - there <= {"EventsExecutor"}
    assert ("EventsExecutor" in there) == (distribution != "humble")


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_our_nodes_hide_no_private_member(distribution):
    private = {name for name in TABLES[distribution]["names"][NODE] if name[0] == "_"}
    hidden = private & set(find_own_members()) - {"__init__"}
    assert sorted(f"{find_own_members()[name]}.{name}" for name in hidden) == []


def test_private_members_are_used_in_one_module(uses):
    assert [
        str(use)
        for use in uses
        if use.member.startswith("_")
        and use.member in members_anywhere(use.name) - {"__init__"}
        and not use.place.startswith(SHIM)
    ] == []


@pytest.mark.parametrize(
    "distribution", [name for name in DISTRIBUTIONS if MESSAGES in TABLES[name]["versions"]]
)
def test_messages_are_ours(distribution):
    """Field by field and in order: what a publisher here sends can be read there."""
    assert TABLES[distribution]["messages"] == read_messages(ROOT / "interfaces" / MESSAGES)


@pytest.mark.parametrize(
    ("call", "signature", "why"),
    [
        (Call(2, ("clock",), False), "period, callback, group=, clock=", ""),
        (Call(0, (), False), "()", ""),
        (Call(1, (), False), "()", "1 positional arguments, it takes 0"),
        (Call(4, (), False), "a, *, b=", "4 positional arguments, it takes 1"),
        (Call(4, (), False), "a, *rest, b=", ""),
        (Call(1, ("c",), False), "a, *, b=", "no parameter c"),
        (Call(1, ("c",), False), "a, **options", ""),
        (Call(1, (), False), "a, b, c=, *, d", "it needs b, d"),
        (Call(1, (), True), "a, b, c=, *, d", ""),
        (Call(0, ("b", "a", "d"), False), "a, b, c=, *, d", ""),
    ],
)
def test_calls_are_judged_by_the_signature(call, signature, why):
    assert find_misfit(call, signature) == why


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (Use("f", "rclpy.no_module:Name"), "not recorded"),
        (Use("f", "rclpy.experimental:EventsExecutor"), "not there"),
        (Use("f", "rclpy.experimental:EventsExecutor", optional=True), ""),
        (Use("f", "rclpy.qos:ReliabilityPolicy", "BEST_AVAILABLE"), "no such member"),
        (Use("f", NODE, "create_timer", Call(1, (), False)), "it needs callback"),
        (Use("f", NODE, "create_timer", Call(2, ("autostart",), False)), "no parameter autostart"),
        (Use("f", "launch_ros.actions:Node", "", Call(0, ("executable", "colour"), False)), "col"),
        (Use("f", NODE, "something_of_our_own"), ""),
    ],
)
def test_what_humble_lacks_is_found(use, why):
    found = judge(use, TABLES["humble"]["names"])
    assert (why in found) if why else not found


def test_sources_are_read_without_importing_them(tmp_path):
    package = tmp_path / "rclpy" / "rclpy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .shapes import Round as Ball\nraise SystemExit\n")
    (package / "shapes.py").write_text(
        "class Shape:\n"
        "    def __init__(self, *, name, size=1): self.name = name\n"
        "    @property\n"
        "    def area(self): ...\n"
        "class Round(Shape):\n"
        "    KIND = 1\n"
        "    def __init__(self, radius, **rest): super().__init__(**rest)\n"
        "    def roll(self, way, *, fast=False): ...\n"
        "    @staticmethod\n"
        "    def make(kind): ...\n"
        "Circle = Round\n"
        "def draw(shape, *more, colour): ...\n"
    )
    sources = Sources(tmp_path)
    ball = sources.look_up("rclpy:Ball")
    assert ball == {
        "KIND": "",
        "__init__": "radius, *, size=",
        "area": "",
        "make": "kind",
        "name": "",
        "roll": "way, *, fast=",
    }
    assert sources.look_up("rclpy.shapes:Circle") == ball
    assert sources.look_up("rclpy.shapes:draw") == "shape, *more, colour"
    assert sources.look_up("rclpy.shapes:Square") is None
    assert sources.look_up("rclpy.solids:Cube") is None
