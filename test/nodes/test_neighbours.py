# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The campaign `neighbours`, for one round: real processes, real DDS, a real SIGKILL."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("vision_msgs.msg")

from campaign_runs import run_campaign

pytestmark = pytest.mark.usefixtures("empty_domain")


def test_who_starts_beside_a_killed_process_hears_or_says_why():
    report = run_campaign(
        *("neighbours", "--rounds", "1", "--processes", "1", "--seed", "4"), may_miss=True
    )
    counts, faults = report["counts"], report["faults"]
    # That nobody is left without images is not in the hands of this package.
    verdicts = {bar["bar"]: bar["met"] for bar in report["bars"]}
    assert verdicts["who gets none says why"], faults
    assert verdicts["doctor finds those whose shared memory is lost, and no others"], faults
    assert (counts["killed"], counts["heard"] + counts["no image"]) == (1, 1)
    assert counts["results of the one that stays"] > 0
