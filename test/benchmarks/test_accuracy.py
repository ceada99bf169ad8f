# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The accuracy benchmark on a few held-out scenes."""

import benches

from jetson_dnn_rt.demo import builtin


def test_shipped_weights_see_held_out_scenes():
    _, result = benches.run("accuracy", "--scenes 40")
    assert result["map50"] >= 0.8
    assert result["miou"] >= 0.8
    assert result["passed"] == (result["map50"] >= 0.85 and result["miou"] >= 0.85)
    assert set(result["ap50"]) == set(builtin.DETECTOR_CLASSES)
    assert set(result["iou"]) == set(builtin.SEGMENTER_CLASSES)
    assert sum(result["boxes"].values()) > 100


def test_untrained_weights_fail(monkeypatch):
    """The bar can be missed: the same networks without training do, and have absent classes."""
    monkeypatch.setattr(builtin, "load", lambda name: builtin.build(name).eval())
    code, result = benches.run("accuracy", "--scenes 2")
    assert code == 1
    assert "NOT passed" in benches.show("accuracy", result)


def test_a_class_that_no_scene_holds_is_a_dash():
    result = {
        "scenes": 1, "size": "640x480", "bar": 0.85, "passed": False,
        "map50": 0.5, "ap50": {"car": 0.5, "truck": None}, "boxes": {"car": 2, "truck": 0},
        "miou": None, "iou": {"road": 0.25},
    }  # fmt: skip
    table = benches.show("accuracy", result)
    for text in ("car", "0.500", "truck", "-", "road", "0.250"):
        assert text in table
