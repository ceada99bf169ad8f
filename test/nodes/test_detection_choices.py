# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Classes and thresholds of a detector's node, set as `ros2 param set` sets them."""

from __future__ import annotations

import array

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from task_bench import Bench, make_image

from jetson_dnn_rt.demo.scenes import SceneGenerator

VALUES = {
    "model": "builtin:detector",
    "variants": ["full@onnxruntime-fp32"],
    "engine_cache": "none",
    "deadline_ms": 30_000.0,
}


def start(ros, **values):
    bench = Bench(ros, **VALUES, **values)
    results = bench.start()
    picture = np.zeros((480, 640, 3), np.uint8)
    SceneGenerator(5, (480, 640)).render(0, picture)
    image = make_image(ros, (480, 640), data=array.array("B", picture.tobytes()))
    counts = iter(range(1, 100))

    def answer():
        count = next(counts)
        bench.send(image, count)
        found = results.wait_count(count)[-1].detections
        labels = bench.node.loaded.model.labels
        return [labels[int(one.results[0].hypothesis.class_id)] for one in found]

    return bench, answer


def test_they_change_while_the_node_runs(ros):
    bench, answer = start(ros)
    everything = answer()
    assert {"car", "sign"} < set(everything)
    assert ros.set(bench.node, classes=["car", "4"]).successful  # 4 is the sign
    assert answer() == [name for name in everything if name in ("car", "sign")]
    assert ros.set(bench.node, class_thresholds=["car=1.0"], nms_class_agnostic=True).successful
    assert set(answer()) == {"sign"}
    assert ros.set(
        bench.node, classes=[""], class_thresholds=[""], nms_class_agnostic=False
    ).successful
    assert answer() == everything


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"classes": ["bus"]}, "one of car, truck, pedestrian, cyclist, sign"),
        ({"class_thresholds": ["bus=0.5"]}, "class_thresholds: the model has no class 'bus'"),
        ({"class_thresholds": ["car:0.5"]}, "CLASS=SCORE"),
    ],
)
def test_a_bad_value_is_refused_with_the_reason_and_changes_nothing(ros, values, reason):
    bench, answer = start(ros, classes=["car"])
    before, settings = answer(), bench.node.loaded.settings
    refused = ros.set(bench.node, **values)
    assert not refused.successful
    assert reason in refused.reason
    for name in values:
        assert bench.node.get_parameter(name).value == {"classes": ["car"]}.get(name, [""])
    assert bench.node.loaded.settings is settings
    assert answer() == before == ["car"] * len(before)


def test_a_node_whose_model_lacks_a_class_says_so_when_it_is_configured(ros):
    bench = Bench(ros, **VALUES, classes=["bus"])
    assert not bench.node.autostart()
    assert "the model has no class 'bus'" in bench.node.fault
    assert ros.set(bench.node, classes=["car"]).successful
    bench.start()
