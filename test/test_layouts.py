"""The layouts of PlotJuggler and Foxglove show topics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

CONFIG = Path(__file__).parents[1] / "config"
PLOTJUGGLER, FOXGLOVE = CONFIG / "plotjuggler_layout.xml", CONFIG / "foxglove_layout.json"
TASKS = ("detector", "segmenter")


def list_known_topics():
    """Topics of numbers that the nodes of perception.launch.py publish."""
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import COHORT_TOPICS
    from jetson_dnn_rt.nodes.reports.timing_reports import DEBUG_TOPICS

    own = {f"/{task}/debug/{name}" for task in TASKS for name in DEBUG_TOPICS}
    return own | {f"/coordinator/debug/{name}" for name in COHORT_TOPICS}


def read_curves():
    return [curve.attrib["name"] for curve in ElementTree.parse(PLOTJUGGLER).iter("curve")]


def read_panels():
    panels: dict[str, Any] = json.loads(FOXGLOVE.read_text(encoding="utf-8"))["configById"]
    return panels


def test_plotjuggler_plots_topics_that_there_are():
    curves = read_curves()
    assert all(name.endswith("/data") for name in curves)
    topics = {name[: -len("/data")] for name in curves}
    assert topics <= list_known_topics()
    assert {f"/{task}/debug/deadline_misses" for task in TASKS} <= topics


def test_plotjuggler_subscribes_to_what_it_plots():
    root = ElementTree.parse(PLOTJUGGLER).getroot()
    (streamer,) = root.iter("previouslyLoaded_Streamer")
    (plugin,) = root.iter("plugin")
    assert plugin.attrib["ID"] == streamer.attrib["name"] == "ROS2 Topic Subscriber"
    (selected,) = plugin.iter("selected_topics")
    assert sorted(selected.attrib["value"].split(";")) == sorted(
        {name[: -len("/data")] for name in read_curves()}
    )


def test_plotjuggler_s_panes_are_as_many_as_it_says():
    for splitter in ElementTree.parse(PLOTJUGGLER).iter("DockSplitter"):
        sizes = [float(size) for size in splitter.attrib["sizes"].split(";")]
        assert len(splitter) == len(sizes) == int(splitter.attrib["count"]) > 1
        assert sum(sizes) == pytest.approx(1.0, abs=1e-5)


def test_foxglove_plots_topics_that_there_are():
    values = [
        path["value"]
        for name, panel in read_panels().items() if name.startswith("Plot!")
        for path in panel["paths"]
    ]  # fmt: skip
    assert all(value.endswith(".data") for value in values)
    assert {value[: -len(".data")] for value in values} <= list_known_topics()


def test_foxglove_s_panels_are_each_in_the_window_once():
    def walk(node):
        if isinstance(node, str):
            return [node]
        assert node["direction"] in ("row", "column")
        assert 0 < node["splitPercentage"] < 100
        return walk(node["first"]) + walk(node["second"])

    shown = walk(json.loads(FOXGLOVE.read_text(encoding="utf-8"))["layout"])
    assert sorted(shown) == sorted(read_panels())
    assert all(re.fullmatch(r"[A-Za-z]+!\w+", name) for name in shown)
