# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The example of Nav2 fits the segmenter: topics, class names, parameters."""

from __future__ import annotations

from pathlib import Path

import yaml

from jetson_dnn_rt.config.perception import load_config
from jetson_dnn_rt.demo.scenes import SEGMENTER_CLASSES

FILE = Path(__file__).resolve().parents[2] / "examples" / "nav2.param.yaml"


def read_layer():
    text = FILE.read_text(encoding="utf-8")
    costmap = yaml.safe_load(text)["local_costmap"]["local_costmap"]["ros__parameters"]
    return costmap["semantic_layer"]["camera"]


def test_the_segmenter_publishes_its_confidence():
    (task,) = load_config(FILE).tasks
    assert (task.name, task.kind, task.confidence_image) == ("segmenter", "segmentation", True)


def test_the_layer_names_classes_and_topics_that_there_are():
    layer = read_layer()
    for kind in layer["class_types"]:
        assert {*layer[kind]["classes"]} <= {*SEGMENTER_CLASSES}
    topics = [layer[f"{name}_topic"] for name in ("segmentation", "confidence", "labels")]
    assert topics == ["/class_mask", "/confidence", "/segmenter/label_info"]
