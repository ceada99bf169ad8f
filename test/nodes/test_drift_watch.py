# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Profiles out of tables, and what a task's times are compared with."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from jetson_dnn_rt.coordinator.tables.files import TableFile, save_tables
from jetson_dnn_rt.coordinator.tables.tables import ClockTable, TaskTable
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.nodes.reports.diagnostics import OK, WARN
from jetson_dnn_rt.nodes.tasks.task_status import drift_status
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.runtime.drift_watch import (
    MOST_MONITORS,
    DriftWatch,
    TimeProfiles,
    load_time_profiles,
)
from jetson_dnn_rt.traces.drift import LEARNED_TIMES, TimeProfile

STAGES = ("preprocess", "inference", "decode")
GPU = ClockSpace([ClockDomain("gpu", (ClockOption(100_000_000), ClockOption(200_000_000)))])


def make_table(task, frames, clocks=1):
    # Two variants: frame s takes 1 + s + 1 us, and ten times as long.
    one = np.stack([np.full(frames, 1000), 1000 * np.arange(1, frames + 1), np.full(frames, 1000)])
    shape = (2, 3, clocks)
    slowdown = np.ones(shape)
    slowdown[:, 1, 0] = 1.0 if clocks == 1 else 3.0  # the network alone follows the clocks
    return TaskTable(
        task, STAGES, ("full@null", "tucker-0.50@null"), 10**9, 10**9,
        np.stack([one, 10 * one]), slowdown, np.ones(shape), np.zeros((2, 3)),
    )  # fmt: skip


def write(path, *tables):
    count = tables[0].slowdown.shape[2]
    space = GPU if count > 1 else ClockSpace([])
    clocks = ClockTable(space, np.arange(count), np.zeros(count), count - 1, 0)
    save_tables(path, TableFile(clocks, tables))
    return str(path)


def test_the_p99_is_of_whole_frames(tmp_path):
    path = write(tmp_path / "tables.json", make_table("detector", 200))
    found = load_time_profiles(path, "detector")
    # The 198th of 200 frames, with 2 us around the network.
    assert found.by_variant == {
        "full@null": {"": TimeProfile(200_000, 200)},
        "tucker-0.50@null": {"": TimeProfile(2_000_000, 200)},
    }
    assert found.find("full@null", "gpu 100 MHz") == TimeProfile(200_000, 200)
    assert found.find("full@null+tucker-0.50@null", "") is None
    # The folder of `profile --output` does as well.
    assert load_time_profiles(str(tmp_path), "detector") == found


def test_each_clock_configuration_has_its_own(tmp_path):
    path = write(tmp_path / "tables.json", make_table("detector", 100, clocks=2))
    found = load_time_profiles(path, "detector")
    assert found.find("full@null", "gpu 200 MHz") == TimeProfile(101_000, 100)
    assert found.find("full@null", "gpu 100 MHz") == TimeProfile(3 * 99_000 + 2000, 100)
    assert found.find("full@null", "") is None


def test_of_several_tasks_the_own_one_is_taken(tmp_path):
    path = write(tmp_path / "t.json", make_table("detector", 100), make_table("other", 300))
    found = load_time_profiles(path, "other").find("full@null", "")
    assert found is not None
    assert found.count == 300
    with pytest.raises(ConfigurationError, match="no table of 'segmenter', but of"):
        load_time_profiles(path, "segmenter")


def test_a_profile_without_a_p99_is_refused(tmp_path):
    path = write(tmp_path / "t.json", make_table("detector", 99))
    with pytest.raises(ConfigurationError, match="99 frames of detector have no p99: profile wi"):
        load_time_profiles(path, "detector")
    with pytest.raises(ConfigurationError, match="make them with jetson-dnn-rt profile"):
        load_time_profiles(str(tmp_path / "nowhere.json"), "detector")
    assert load_time_profiles("", "detector") == TimeProfiles()


def test_each_variant_learns_from_its_own_first_frames():
    watch = DriftWatch()
    status = drift_status(watch.snapshot())
    assert (status.level, status.message) == (OK, "no frame yet")
    for k in range(LEARNED_TIMES):
        watch.observe("fast", 0, 1000 + k % 100)
        if k < 10:
            watch.observe("slow", 0, 9000)
    fast, slow = watch.snapshot().states
    assert (fast.p99_ms, fast.profiled, fast.judged) == (0.001098, LEARNED_TIMES, 0)
    assert (slow.profiled, slow.title) == (10, "slow")
    assert math.isnan(slow.p99_ms)
    assert drift_status(watch.snapshot()).message.startswith("learning: ")
    for k in range(200):
        watch.observe("fast", 0, 1000 + k % 100)
    assert drift_status(watch.snapshot()).message == "times match the profile"
    for _ in range(20):
        watch.observe("fast", 0, 2000)
    snapshot = watch.snapshot()
    assert snapshot.level >= 1.0
    status = drift_status(snapshot)
    assert status.level == WARN
    assert status.message.startswith("times no longer match the profile: fast: ")
    assert "took longer than its p99 of 0.00 ms" in status.message
    values = {value.key: value.value for value in status.values}
    assert values["profile"] == "first 1000 frames"
    assert values["fast.alarms"] == "1"


def test_times_are_compared_at_the_clocks_that_held(tmp_path):
    profiles = load_time_profiles(
        write(tmp_path / "tables.json", make_table("detector", 1000, clocks=2)), "detector"
    )
    watch = DriftWatch(profiles, lambda ns: "gpu 100 MHz" if ns < 10**9 else "gpu 200 MHz")
    for ns in range(50):
        watch.observe("full@null", ns, 2_000_000)  # in order at slow clocks, not at fast ones
    assert watch.snapshot().level == 0.0
    for ns in range(50):
        watch.observe("full@null", 2 * 10**9 + ns, 2_000_000)
    slow, fast = watch.snapshot().states
    assert (slow.clocks, slow.alarm) == ("gpu 100 MHz", False)
    assert (fast.title, fast.alarm) == ("full@null at gpu 200 MHz", True)
    watch.observe("full@torch-fp32", 0, 1)
    status = drift_status(watch.snapshot())
    values = {value.key: value.value for value in status.values}
    assert values["not_profiled"] == "full@torch-fp32 at gpu 100 MHz"
    assert values["profile"] == profiles.source


def test_memory_has_a_limit_and_what_was_not_profiled_is_said():
    watch = DriftWatch(TimeProfiles("tables.json", {}))
    watch.observe("full@null", 0, 1)
    assert drift_status(watch.snapshot()).message == "not profiled: full@null"
    watch = DriftWatch()
    for number in range(MOST_MONITORS + 10):
        watch.observe(f"variant {number}", 0, 1)
    assert len(watch.snapshot().states) == MOST_MONITORS
