# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The layouts of PlotJuggler and Foxglove show topics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from timing_keys import read_documented_keys

from jetson_dnn_rt.config.nodes import CameraConfig
from jetson_dnn_rt.config.task import TaskConfig

CONFIG = Path(__file__).parents[1] / "config"
PLOTJUGGLER, FOXGLOVE = CONFIG / "plotjuggler_layout.xml", CONFIG / "foxglove_layout.json"
TIMING_TOPICS = {"/detector/debug/timing", "/segmenter/debug/timing"}


def list_cohort_topics():
    """Topics of numbers that the coordinator publishes."""
    pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
    from jetson_dnn_rt.nodes.coordinator.coordinator_node import COHORT_TOPICS

    return {f"/coordinator/debug/{name}" for name in COHORT_TOPICS}


def read_curves():
    return [curve.attrib["name"] for curve in ElementTree.parse(PLOTJUGGLER).iter("curve")]


def read_panels():
    panels: dict[str, Any] = json.loads(FOXGLOVE.read_text(encoding="utf-8"))["configById"]
    return panels


def find_topic(curve):
    """The topic of a curve as PlotJuggler names it: topic/status/key, or topic/data."""
    topic, slashes, rest = curve.partition("//")
    if not slashes:
        assert curve.endswith("/data")
        return curve[: -len("/data")]
    task, key = rest.split("/")
    assert topic == f"/{task}/debug/timing"
    assert key in read_documented_keys()
    return topic


def test_plotjuggler_plots_values_that_there_are():
    topics = {find_topic(name) for name in read_curves()}
    assert topics == TIMING_TOPICS | {
        "/coordinator/debug/power_w",
        "/coordinator/debug/energy_per_met_frame_j",
    }
    assert topics <= TIMING_TOPICS | list_cohort_topics()


def test_plotjuggler_subscribes_to_what_it_plots():
    root = ElementTree.parse(PLOTJUGGLER).getroot()
    (streamer,) = root.iter("previouslyLoaded_Streamer")
    (plugin,) = root.iter("plugin")
    assert plugin.attrib["ID"] == streamer.attrib["name"] == "ROS2 Topic Subscriber"
    (selected,) = plugin.iter("selected_topics")
    topics = selected.attrib["value"].split(";")
    assert sorted(topics) == sorted({find_topic(name) for name in read_curves()})


def test_plotjuggler_s_panes_are_as_many_as_it_says():
    for splitter in ElementTree.parse(PLOTJUGGLER).iter("DockSplitter"):
        sizes = [float(size) for size in splitter.attrib["sizes"].split(";")]
        assert len(splitter) == len(sizes) == int(splitter.attrib["count"]) > 1
        assert sum(sizes) == pytest.approx(1.0, abs=1e-5)


def test_foxglove_plots_values_that_there_are():
    values = [
        path["value"]
        for name, panel in read_panels().items() if name.startswith("Plot!")
        for path in panel["paths"]
    ]  # fmt: skip
    parts = [
        re.fullmatch(r'(.+)\.status\[0\]\.values\[:\]{key=="(\w+)"}\.value', v) for v in values
    ]
    assert all(parts)
    assert {part[1] for part in parts} == TIMING_TOPICS
    assert {part[2] for part in parts} <= read_documented_keys()


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


def test_foxglove_shows_the_titles_of_panels():
    """Under the one key that its panels read; `title` in a plot is ignored."""
    titled = [panel for name, panel in read_panels().items() if name[:4] in ("Plot", "Imag")]
    assert all(panel["foxglovePanelTitle"] for panel in titled)
    assert not any("title" in panel for panel in titled)


def test_foxglove_draws_boxes_over_the_camera_s_pictures():
    mode = read_panels()["Image!boxes"]["imageMode"]
    assert mode == {
        "imageTopic": "/image_raw/compressed",
        "annotations": {"/annotations": {"visible": True}},
    }


def test_rviz_shows_images_that_there_are_with_a_qos_that_fits():
    config = yaml.safe_load((CONFIG / "perception.rviz").read_text(encoding="utf-8"))
    manager = config["Visualization Manager"]
    assert manager["Global Options"]["Fixed Frame"] == CameraConfig().frame_id
    topics = [display["Topic"] for display in manager["Displays"]]
    assert [topic["Value"] for topic in topics] == ["/debug_image", "/color_mask"]
    # What RViz asks for by default, too.
    assert {topic["Reliability Policy"] for topic in topics} == {"Reliable"}
    assert TaskConfig().debug_image_qos == TaskConfig().output_qos == "DEFAULT"
