# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`zero-copy` on few frames: what it measures, not how fast this machine is."""

import itertools
import sys

import benches
import cv2
import numpy as np
import pytest
import torch

from benchmarks import zero_copy
from benchmarks.harness.processes import BenchmarkError
from benchmarks.zero_copy import (
    AS_WRITTEN,
    FUSED,
    IN_PLACE,
    RESIZED_FIRST,
    SMALL_FIRST,
    Way,
    make_mask_ways,
    make_message,
    make_ways,
)
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.platforms import power
from jetson_dnn_rt.platforms.platform import UnknownPlatform


def test_the_ways_at_one_size():
    threads = cv2.getNumThreads(), torch.get_num_threads()
    options = "--parts inputs --rounds 2 --seconds 0.01 --sizes 1280x720 --encodings bgr8"
    _, result = benches.run("zero_copy", options)
    assert (cv2.getNumThreads(), torch.get_num_threads()) == threads
    rows = result["rows"]
    on_host = [row for row in rows if not row["way"].startswith("cuda")]
    assert len(on_host) == 3
    for row in on_host:
        assert row["runs"] >= 2 * 5
        assert row["ratio_range"][0] <= row["ratio"] <= row["ratio_range"][1]
        assert 0.0 < row["best_us"] <= row["p50_us"] <= row["p99_us"]
        assert 0.0 < row["share_percent"] < 100.0
    one_pass = {(row["way"], row["passes"]) for row in on_host}
    assert one_pass == {(FUSED, 1), (RESIZED_FIRST, 2), (AS_WRITTEN, 4)}
    large = {row["way"]: row for row in on_host}
    picture, small = 1280 * 720, 320 * 180
    # Resized and parted bytes, and floats; a picture more; the whole picture in floats, twice.
    assert large[FUSED]["copied_bytes"] == (3 + 3 + 12) * small
    assert large[RESIZED_FIRST]["copied_bytes"] > 3 * picture + large[FUSED]["copied_bytes"]
    assert large[AS_WRITTEN]["copied_bytes"] > (3 + 2 * 12) * picture
    for way in (RESIZED_FIRST, AS_WRITTEN):
        assert result["ratios"][way]["median"] == large[way]["ratio"]
    assert result["passed"] == (
        large[AS_WRITTEN]["ratio"] >= 2.0 and large[RESIZED_FIRST]["ratio"] >= 1.0
    )
    table = benches.show("zero_copy", result)
    assert "1280x720  bgr8" in table
    assert "builtin:detector, 320x240" in table
    assert "no outputs: not measured" in table


def test_the_verdict_is_on_the_median_of_all_cells():
    rows = [{"way": AS_WRITTEN, "ratio": ratio} for ratio in (18.9, 1.5, 1.8)]
    found = zero_copy.summarize_ratios(rows, AS_WRITTEN)
    assert found == {"median": 1.8, "least": 1.5, "largest": 18.9, "cells": 3}


def test_a_disturbed_round_moves_no_median():
    calm = {FUSED: np.full(5, 1000), AS_WRITTEN: np.full(5, 3000), "frame": np.full(5, 10_000)}
    disturbed = calm | {AS_WRITTEN: np.full(5, 30_000)}
    row = zero_copy.summarize_rounds([calm, disturbed, calm], AS_WRITTEN, FUSED)
    assert (row["ratio"], row["ratio_range"], row["p50_us"]) == (3.0, [3.0, 30.0], 3.0)
    assert (row["share_percent"], row["frame_ms"], row["runs"]) == (25.0, 0.012, 15)


class Metered(UnknownPlatform):
    """A machine whose counter shows ten joules more at each reading."""

    count = 0.0

    def energy_j(self):
        self.count += 10.0
        return self.count


def test_energy_is_shown_where_it_can_be_read(monkeypatch):
    monkeypatch.setattr(power, "POWER_NS", 1_000_000)
    options = "--parts inputs --rounds 1 --seconds 0.01 --sizes 64x48 --encodings mono8"
    monkeypatch.setattr(zero_copy, "detect", Metered)
    _, result = benches.run("zero_copy", options)
    assert all(row["energy_mj"] > 0.0 for row in result["rows"])
    assert "mJ" in benches.show("zero_copy", result)
    monkeypatch.setattr(zero_copy, "detect", lambda: UnknownPlatform("no meter"))
    _, result = benches.run("zero_copy", options)
    assert {row["energy_mj"] for row in result["rows"]} == {None}
    assert "no energy: no meter" in benches.show("zero_copy", result)


def test_the_energy_of_a_frame_is_that_of_its_way_and_of_the_rest(monkeypatch):
    watts = itertools.count(1)

    def measure(platform, clock, repeat):
        repeat()
        return next(watts)

    class Clock:
        now = 0

        def now_ns(self):
            self.now += 1_000_000
            return self.now

    monkeypatch.setattr(zero_copy, "measure_mean_power", measure)
    monkeypatch.setattr(zero_copy, "SteadyClock", Clock)
    monkeypatch.setattr(zero_copy, "detect", Metered)
    options = "--parts inputs --rounds 1 --seconds 0.01 --sizes 64x48 --encodings mono8"
    _, result = benches.run("zero_copy", options)
    count = len(result["rows"])
    # 1 ms at 1, 2, 3, ... W for the ways, and at one more for the frame, whose way is the first.
    assert [row["energy_mj"] for row in result["rows"]] == list(range(1, count + 1))
    assert [row["frame_mj"] for row in result["rows"]] == [count + n for n in range(1, count + 1)]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "preprocessing",
    [
        Preprocessing(96, 128),
        Preprocessing(128, 96, "letterbox_center", color="bgr", scale=1.0),
        Preprocessing(60, 80, "stretch", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)),
    ],
)
def test_all_ways_write_the_same_input(encoding, preprocessing):
    message = make_message(encoding, 240, 320)
    fused, *others = make_ways(preprocessing, 240, 320, encoding).values()
    expected = np.array(fused.run(message))
    assert not np.isnan(expected).any()
    step = preprocessing.scale / min(preprocessing.std)
    for way in others:
        difference = np.abs(np.asarray(way.run(message)) - expected)
        assert difference.mean() <= 1.5 * step


def test_ways_that_make_another_input_are_no_comparison(monkeypatch):
    def make_other_ways(*picture):
        ways = make_ways(*picture)
        return ways | {AS_WRITTEN: Way(lambda message: ways[FUSED].run(message) * 0.5, 0)}

    monkeypatch.setattr(zero_copy, "make_ways", make_other_ways)
    with pytest.raises(BenchmarkError, match="do not make the same input"):
        zero_copy.run(
            benches.parse(
                "zero_copy", "--parts inputs --seconds 0.01 --sizes 64x48 --encodings bgr8"
            )
        )


# -- outputs


def test_outputs_at_one_size():
    pytest.importorskip("vision_msgs")
    _, result = benches.run(
        "zero_copy", "--parts outputs --rounds 2 --seconds 0.01 --sizes 1280x720"
    )
    assert (result["rows"], result["ratios"]) == ([], {})
    masks = {row["way"]: row for row in result["outputs"]["rows"]["class_mask"]}
    boxes = {row["way"]: row for row in result["outputs"]["rows"]["detections"]}
    on_host = [way for way in masks if not way.startswith("cuda")]
    assert on_host == [IN_PLACE, SMALL_FIRST, AS_WRITTEN]
    for rows in (masks, boxes):
        assert rows[IN_PLACE]["ratio_range"] == [1.0, 1.0]
        assert rows[IN_PLACE]["differing_percent"] == 0.0
        assert all(row["runs"] >= 2 * 5 and row["best_us"] > 0.0 for row in rows.values())
    copied = {way: row["copied_bytes"] for way, row in masks.items()}
    picture, small, classes = 1280 * 720, 320 * 180, 8
    # Best logit, whether it is better and class; rows, mask and message; a copy as bytes more;
    # logits and classes of all pixels.
    assert copied[IN_PLACE] == 6 * small + 180 * 1280 + 2 * picture
    assert copied[SMALL_FIRST] == 13 * small + 3 * picture
    assert copied[AS_WRITTEN] == (4 * classes + 11) * picture
    assert 0.0 < masks[AS_WRITTEN]["differing_percent"] < 10.0  # edges
    assert boxes[AS_WRITTEN]["differing_percent"] == 0.0
    ratios = result["outputs"]["ratios"]
    assert ratios[SMALL_FIRST]["median"] == masks[SMALL_FIRST]["ratio"]
    assert result["passed"] == (
        ratios[AS_WRITTEN]["median"] >= 2.0 and ratios[SMALL_FIRST]["median"] >= 1.0
    )
    table = benches.show("zero_copy", result)
    assert "small_first over all 1 sizes: median" in table
    assert "bars: medians of masks over all sizes, as_written >= 2 times" in table


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--model builtin:segmenter --kind segmentation", "--model, --kind"),
        ("--encodings nv12", "--encodings"),
    ],
)
def test_options_of_inputs_are_refused_where_only_outputs_are_measured(options, named):
    with pytest.raises(ConfigurationError, match=f"^{named}: of inputs, which --parts leaves out"):
        zero_copy.run(benches.parse("zero_copy", f"--parts outputs {options}"))


def test_without_messages_there_are_no_outputs(monkeypatch):
    monkeypatch.setitem(sys.modules, "sensor_msgs", None)
    _, result = benches.run("zero_copy", "--parts outputs --rounds 1 --sizes 64x48")
    assert result["passed"] is None
    table = benches.show("zero_copy", result)
    assert "no outputs: they end in messages, and sensor_msgs is not installed" in table


def test_a_mask_that_differs_is_no_comparison(monkeypatch):
    pytest.importorskip("vision_msgs")

    def make_other_ways(model, outputs, frame):
        ways = make_mask_ways(model, outputs, frame)
        negative = Way(lambda outputs: ways[SMALL_FIRST].run((-outputs[0],)), 0)
        return ways | {SMALL_FIRST: negative}

    monkeypatch.setitem(zero_copy.OUTPUT_WAYS, "class_mask", make_other_ways)
    with pytest.raises(BenchmarkError, match="small_first differs from in_place in"):
        zero_copy.run(benches.parse("zero_copy", "--parts outputs --seconds 0.01 --sizes 320x240"))
