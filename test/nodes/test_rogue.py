# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `rogue`, for some seconds: real processes, real DDS."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: two back ends are needed")
pytest.importorskip("openvino", reason="openvino is not installed: two back ends are needed")

from campaign_runs import run_campaign


@pytest.mark.usefixtures("empty_domain")
def test_nothing_that_a_stranger_sends_ends_a_process():
    """EDGES 0, 4: wrong values and types on every topic, service and parameter cost nobody."""
    # How many frames are met says something on a quiet machine only: the campaign by hand looks.
    report = run_campaign(
        *("rogue", "--minutes", "0.06", "--calm-minutes", "0.02", "--rate-hz", "200"),
        *("--seed", "7", "--deadline-ms", "2000"),
    )
    counts = report["counts"]
    assert counts["ends"] == {"camera": 0, "detector": 0, "coordinator": 0, "alone": 0}
    assert counts["disturbed"]["detector"]["frames"] > 0
    assert counts["disturbed"]["quiet/detector"]["frames"] > 0
    kinds = {name.split()[0] for name in counts["sent"]}
    assert kinds == {"topic", "service"}
    for name in ("lag_ms (Float64)", "image_raw (String)", "detector/set_parameters"):
        assert any(name in sent for sent in counts["sent"]), name
