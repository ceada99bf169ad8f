# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The verdict of `coordinate`, and a short run."""

import os
from dataclasses import replace

import benches
import pytest

from benchmarks import coordinate
from benchmarks.coordinate import OURS, compare_values, judge


def contestant(values, *, met=1.0, accuracy=None, is_static=False):
    value = sum(values) / len(values)
    return {
        "is_static": is_static,
        "met_ratio": met,
        "accuracy": value if accuracy is None else accuracy,
        "value": value,
        "values": values,
    }


def test_gains_are_by_window_with_student_s_interval():
    found = compare_values([0.9, 0.8, 0.7], [0.8, 0.8, 0.6])
    # Gains of 0.1, 0 and 0.1: a deviation of 0.0577, and 4.303 of its third's root.
    assert found["gain"] == pytest.approx(0.2 / 3)
    assert found["interval"] == pytest.approx([0.0667 - 0.1434, 0.0667 + 0.1434], abs=1e-3)
    assert compare_values([0.9], [0.5]) == {"gain": pytest.approx(0.4), "interval": None}


def test_no_coordinator_where_a_static_choice_is_as_good():
    found = judge(
        {
            "static full": contestant([0.99, 0.99, 0.99], is_static=True),
            "static fast": contestant([0.9, 0.9, 0.9], is_static=True),
            OURS: contestant([0.991, 0.99, 0.991]),
        }
    )
    assert found["best_static"] == "static full"
    assert found["right_static"] == ["static full"]
    assert found["needed"] is False


def test_a_coordinator_where_every_static_choice_is_late_or_inaccurate():
    contestants = {
        "static full": contestant([0.7, 0.7, 0.7], met=0.7, accuracy=1.0, is_static=True),
        "static fast": contestant([0.8, 0.8, 0.8], accuracy=0.8, is_static=True),
        "d3": contestant([0.9, 0.91, 0.9], met=0.95, accuracy=0.95),
        OURS: contestant([0.79, 0.79, 0.79]),
    }
    found = judge(contestants)
    assert (found["best_static"], found["best_policy"]) == ("static fast", "d3")
    assert (found["right_static"], found["needed"]) == ([], True)
    # Ours lost, and the result says so.
    assert found["ours_over_static"]["gain"] == pytest.approx(-0.01)
    contestants["d3"] = contestant([0.9, 0.7, 0.9])  # could be chance, or a gain
    assert judge(contestants)["needed"] is None
    single = {name: contestant(one["values"][:1], is_static=one["is_static"])
              for name, one in contestants.items()}  # fmt: skip
    assert judge(single)["needed"] is None


@pytest.mark.nightly
def test_every_frame_of_every_contestant_is_accounted_for(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("openvino", reason="openvino is not installed")
    for name in ("roomy", "steps"):
        short = replace(coordinate.LOADS[name], phases=((0.3, False), (0.3, True)))
        monkeypatch.setitem(coordinate.LOADS, name, short)
    monkeypatch.setattr(coordinate, "_TIMED_RUNS", 10)
    monkeypatch.setattr(coordinate, "_SCENES", 4)
    variants = ["full@onnxruntime-fp32", "full@openvino-fp32"]
    cores = len(os.sched_getaffinity(0))
    _, result = benches.run(
        "coordinate", "--engine-cache", str(tmp_path), "--variants", ",".join(variants),
        f"--stages 2 --rounds 1 --hogs {cores} --period-factor 4 --tight-factor 5",
        "--loads roomy steps",
    )  # fmt: skip
    assert list(result["loads"]) == ["roomy", "steps"]
    for load in result["loads"].values():
        static = [f"static {variant}" for variant in variants]
        assert set(load["contestants"]) == {*static, *coordinate.POLICIES}
        (frames,) = {figures["frames"] for figures in load["contestants"].values()}
        assert frames == 2 * int(600.0 / load["period_ms"])
        for name, figures in load["contestants"].items():
            assert sum(figures["outcomes"].values()) == frames
            assert figures["met_ratio"] == figures["outcomes"].get("met", 0) / frames
            # Both variants are the full network, so whatever was met is what the reference says.
            assert figures["accuracy"] > 0.99
            # A sum of values against a ratio of counts: they may round differently.
            assert figures["value"] <= figures["met_ratio"] + 1e-9
            assert sum(figures["stages_by_variant"].values()) > 0
            if name in static:
                assert figures["switches_per_s"] == 0.0
        assert load["best_static"] in static
        assert load["best_policy"] in coordinate.POLICIES
        assert load["needed"] is None  # one window
    gains = [load["ours_over_static"]["gain"] for load in result["loads"].values()]
    assert result["passed"] == all(gain >= -coordinate.LEAST_GAIN for gain in gains)
    table = benches.show("coordinate", result)
    assert all(name in table for name in coordinate.POLICIES)
