# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaigns `soak` and `cycles`, for some seconds: real processes, real DDS."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: traces need it")

from campaign_runs import run_campaign

pytestmark = pytest.mark.usefixtures("empty_domain")


def test_every_frame_is_accounted_for_whatever_happens_meanwhile():
    """Without the task with a real network, whose variant takes a while to build."""
    report = run_campaign(
        *("soak", "--no-guest", "--frames", "300", "--rate", "50", "--seed", "3"),
        *("--steady-frames", "50"),
        *("--overload-minutes", "0.03"),
    )
    verdicts = {bar["bar"]: bar["met"] for bar in report["bars"]}
    assert sum(met is True for met in verdicts.values()) >= 5, verdicts
    assert report["counts"]["events"]
    assert len(set(map(len, report["series"].values()))) == 1
    assert {"anonymous_mb", "threads", "descriptors", "buffers_mb"} < set(report["series"])


def test_cycles_under_load_lose_no_frame():
    report = run_campaign("cycles", "--cycles", "2", "--additions", "0", "--rate", "50")
    assert report["counts"]["cycles"] == {"life cycle": 2, "policy": 2}
    assert [bar["met"] for bar in report["bars"]] == [True, None, None, True]
