# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tables of what the library and warm-up runs know."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from jetson_dnn_rt.coordinator.tables.library_tables import (
    UNKNOWN_BUSY_W,
    VariantProfile,
    list_variants,
    load_profiles,
    make_clock_table,
    make_task_table,
)
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.platforms.boards import tx2_space
from jetson_dnn_rt.platforms.platform import UnknownPlatform
from jetson_dnn_rt.tasks import Stage
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.agreement import Agreement
from jetson_dnn_rt.variants.measuring.measurement import Measurement, TimeDistribution
from jetson_dnn_rt.variants.measuring.store import hash_network, measurement_key, store_measurement
from jetson_dnn_rt.variants.quantized import quantized_key
from jetson_dnn_rt.variants.spec import VariantSpec

STAGES = ("preprocess", "inference-1", "inference-2", "inference-3", "decode")
FULL, REDUCED = "full@torch-fp32", "tucker-0.50@openvino-fp32"


def make_runs(*spans):
    return [Stage(f"run-{i}", lambda work: None, span) for i, span in enumerate(spans)]


def make_profile(times, accuracy, spans=(1,) * 5):
    return VariantProfile(spans, np.array(times), accuracy)


def make_table(profiles):
    return make_task_table("t", STAGES, profiles, deadline_ns=50, period_ns=60)


# -- the table ---------------------------------------------------------------------------------


def test_most_accurate_first_and_of_equal_ones_the_faster():
    table = make_table(
        {
            "fast": make_profile([[1, 1, 1, 1, 1]], 0.7),
            "slow": make_profile([[1, 9, 9, 9, 1]], 1.0),
            "also": make_profile([[1, 8, 9, 9, 1]], 1.0),
        }
    )
    assert table.variants == ("also", "slow", "fast")
    assert (table.task, table.stages) == ("t", STAGES)
    assert (table.deadline_ns, table.period_ns) == (50, 60)
    assert table.slowdown.shape == table.power_w.shape == (3, 5, 1)
    assert (table.slowdown == 1.0).all()
    assert (table.power_w == UNKNOWN_BUSY_W).all()


def test_frames_stay_together_and_the_last_ones_are_taken():
    table = make_table(
        {
            FULL: make_profile([[1, 10, 20, 30, 2], [3, 40, 50, 60, 4], [5, 70, 80, 90, 6]], 1.0),
            REDUCED: make_profile([[3, 4, 5, 6, 4], [5, 7, 8, 9, 6]], 0.9),
        }
    )
    assert table.times_ns[0, :, 0].tolist() == [3, 40, 50, 60, 4]
    assert table.times_ns[0, :, 1].tolist() == [5, 70, 80, 90, 6]
    assert table.times_ns[1, :, 1].tolist() == [5, 7, 8, 9, 6]


def test_a_run_over_several_stages_is_shared_out_and_adds_up():
    table = make_table(
        {
            FULL: make_profile([[2, 10, 20, 30, 4]], 1.0),
            REDUCED: make_profile([[2, 31, 4], [2, 7, 4]], 0.9, spans=(1, 3, 1)),
        }
    )
    covered = table.times_ns[1]
    assert covered[:, 0].tolist() == [2, 1, 2, 4, 4]  # the last frame of two
    table = make_table({REDUCED: make_profile([[2, 31, 4], [2, 7, 4]], 0.9, spans=(1, 3, 1))})
    assert table.times_ns[0, 1:4].sum(axis=0).tolist() == [31, 7]  # nobody knows: all alike
    assert table.times_ns[0, 1:4, 0].tolist() == [10, 10, 11]


def test_a_stage_that_takes_nothing_counts_as_a_nanosecond():
    assert make_table({FULL: make_profile([[0, 5, 5, 5, 0]], 1.0)}).times_ns.min() == 1


def test_the_loss_is_in_the_network_in_proportion_to_its_time():
    table = make_table(
        {
            FULL: make_profile([[9, 10, 20, 30, 9]] * 3, 1.0),
            REDUCED: make_profile([[9, 1, 1, 1, 9]] * 3, 0.88),
        }
    )
    np.testing.assert_allclose(table.loss[1], [0.0, 0.02, 0.04, 0.06, 0.0])
    assert table.loss[0].tolist() == [0.0] * 5
    assert table.accuracy(0) == 1.0
    assert table.accuracy(1) == pytest.approx(0.88)


def test_slowdown_and_power_of_runs_become_those_of_their_stages():
    slowdown = np.array([[3.0, 1.0], [2.0, 1.0], [4.0, 1.0]])
    times, power_w = np.array([[1, 3, 1]]), np.array([5.0, 9.0])
    profile = VariantProfile((1, 3, 1), times, 1.0, slowdown, power_w)
    table = make_table({FULL: profile})
    assert table.slowdown[0, :, 0].tolist() == [3.0, 2.0, 2.0, 2.0, 4.0]
    assert table.power_w[0].tolist() == [[5.0, 9.0]] * 5


def test_what_nobody_compared_is_left_out_and_said(caplog):
    profiles = {
        FULL: make_profile([[1, 1, 1, 1, 1]], 1.0),
        REDUCED: make_profile([[1, 1, 1, 1, 1]], None),
    }
    with caplog.at_level(logging.WARNING):
        assert make_table(profiles).variants == (FULL,)
    assert f"variant {REDUCED} is left out" in caplog.text
    with pytest.raises(ConfigurationError, match="no variant of known accuracy: run"):
        make_table({REDUCED: profiles[REDUCED]})


def test_what_was_never_timed_is_refused_with_the_fix():
    profile = VariantProfile.of(VariantSpec.parse(FULL), make_runs(1, 3, 1), [], None)
    with pytest.raises(ConfigurationError, match="warmup_runs above 0"):
        make_table({FULL: profile})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"spans": (1, 2, 1), "times_ns": np.ones((1, 3), int)}, "does .* of 5 stages"),
        ({"slowdown": np.ones((2, 1))}, "with slowdown"),
        ({"power_w": np.ones(3)}, "power_w of"),
    ],
)
def test_profiles_that_do_not_fit_are_refused(change, text):
    profile = replace(make_profile([[1, 1, 1, 1, 1]], 1.0), **change)
    with pytest.raises(ValueError, match=text):
        make_table({FULL: profile})


def test_fixed_clocks_are_one_configuration():
    platform = UnknownPlatform()
    table = make_clock_table(platform.space, platform.read())
    assert (len(table), table.max_n, table.max_q, table.fastest) == (1, 0, 0, 0)
    space = tx2_space()
    table = make_clock_table(space, space[4321], 2.5)
    assert table.indices.tolist() == [4321]
    assert table.idle_w.tolist() == [2.5]


# -- the library ------------------------------------------------------------------------------


def test_without_a_library_the_warm_up_is_what_is_known():
    profiles = load_profiles(
        {FULL: make_runs(1, 3, 1), REDUCED: make_runs(1, 1, 1, 1, 1)},
        {FULL: [(1, 6, 1), (2, 9, 2)], REDUCED: [(1, 1, 1, 1, 1)]},
    )
    assert profiles[FULL].accuracy == 1.0  # by definition
    assert profiles[FULL].spans == (1, 3, 1)
    assert profiles[FULL].times_ns.tolist() == [[1, 6, 1], [2, 9, 2]]
    assert profiles[REDUCED].accuracy is None


def make_measurement(variant):
    stages = (TimeDistribution.of("run-0", (5, 1, 2)), TimeDistribution.of("run-1", (6, 9)))
    agreement = Agreement(0.8, "mAP@0.5", 4, 9, FULL)
    return Measurement(
        variant, stages[0], stages, 0, 0, None, None, None, agreement, "synthetic", (480, 640), 1,
        {}, "2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def test_what_the_library_has_measured_goes_before_the_warm_up(tmp_path):
    pytest.importorskip("torch")
    library, model = Library(tmp_path), load_model("builtin:detector")
    found = make_measurement(FULL)
    key = measurement_key(
        model, VariantSpec.parse(FULL), hash_network(model, "full", None), threads=1, stages=2
    )
    store_measurement(library, key, found, model)
    assert list_variants(library, model) == [FULL]
    assert list_variants(library, load_model("builtin:segmenter")) == []

    known = {"library": library, "model": model, "threads": 1, "stages": 2}
    profile = load_profiles({FULL: make_runs(1, 2)}, {FULL: [(1, 1)]}, **known)[FULL]
    assert profile.accuracy == 0.8
    assert profile.times_ns.tolist() == [[1, 6], [2, 9]]  # the last frames that all stages have
    # Cut otherwise than it was measured: the warm-up is of what runs.
    other = load_profiles({FULL: make_runs(1, 1, 1)}, {FULL: [(1, 2, 1)]}, **known)[FULL]
    assert other.times_ns.tolist() == [[1, 2, 1]]
    store_measurement(library, key, found.refuse("slower"), model)
    assert load_profiles({FULL: make_runs(1, 2)}, {FULL: [(1, 1)]}, **known) == {}


def test_what_was_measured_with_pictures_read_otherwise_is_not_known(tmp_path):
    """Agreement is of decoded results: who corrects a preprocessing must measure again."""
    pytest.importorskip("torch")
    library, wrong = (
        Library(tmp_path),
        load_model("builtin:detector", preprocessing={"scale": 1.0}),
    )
    spec, graph = VariantSpec.parse(FULL), hash_network(wrong, "full", None)
    key = measurement_key(wrong, spec, graph, threads=1, stages=2)
    store_measurement(library, key, make_measurement(FULL), wrong)
    assert library.load(key) is not None
    right = load_model("builtin:detector")
    assert library.load(measurement_key(right, spec, graph, threads=1, stages=2)) is None
    # So are ranges of values that a network was quantized with.
    spec = VariantSpec.parse("full@onnxruntime-int8")
    keys = [quantized_key(model, spec, library, cuttable=False) for model in (wrong, right, right)]
    assert keys[0] != keys[1] == keys[2]


def test_what_was_measured_with_lists_of_its_own_is_found_with_them(tmp_path):
    pytest.importorskip("tvm", reason="tvm is not installed: its FP16 takes the lists")
    pytest.importorskip("torch")
    variant, lists = "full@tvm-fp16", tmp_path / "amp.yaml"
    lists.write_text("allow: [Conv]\nfollow: []\ndeny: []\n", encoding="utf-8")
    library, model = Library(tmp_path / "library"), load_model("builtin:detector")
    spec, graph = VariantSpec.parse(variant), hash_network(model, "full", None)
    key = measurement_key(model, spec, graph, threads=1, stages=2, amp_lists=str(lists))
    store_measurement(library, key, make_measurement(variant), model)
    known = {"library": library, "model": model, "threads": 1, "stages": 2, "least": 0.8}
    for given, expected in (("", None), (str(lists), 0.8)):
        runs, warm_up = {variant: make_runs(1, 2)}, {variant: [(1, 1)]}
        profiles = load_profiles(runs, warm_up, amp_lists=given, **known)
        assert profiles[variant].accuracy == expected
