# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The models of time and power on boards whose truth is known everywhere."""

from __future__ import annotations

import functools
import sys

import numpy as np
import pytest
from synthetic_boards import SyntheticBoard
from sysfs_trees import TREES, write_tree

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.profile.clock_model import (
    MAX_POINTS,
    ClockColumns,
    PowerModel,
    TimeModel,
    choose_points,
    fit,
)
from jetson_dnn_rt.platforms.boards import agx_orin_space, tx2_space, xavier_space
from jetson_dnn_rt.platforms.clocks import ClockDomain, ClockOption, ClockSpace
from jetson_dnn_rt.platforms.detect import detect

pytest.importorskip("scipy")

MAKERS = {"tx2": tx2_space, "xavier": xavier_space, "orin": agx_orin_space}
BOARDS = pytest.mark.parametrize("board", MAKERS)


@functools.cache
def space_of(board):
    return MAKERS[board]()


@functools.cache
def points_of(board):
    return choose_points(space_of(board))


def fit_time(board, positions):
    return TimeModel.fit(board.space, positions, board.measure(positions)[0])


def errors(found, true):
    share = np.abs(found / true - 1.0)
    return float(np.median(share)), float(np.quantile(share, 0.95)), float(share.max())


@pytest.mark.parametrize(
    ("board", "options"),
    [
        *((board, {}) for board in MAKERS),
        # Big cores may be faster or slower than little ones at the same clock.
        ("tx2", {"big_core_speed": 0.7}),
        ("tx2", {"big_core_speed": 2.0}),
    ],
)
def test_a_board_that_is_as_the_model_says_is_found_from_50_points(board, options):
    truth = SyntheticBoard(space_of(board), seed=3, **options)
    times_ns, positions = truth.times_ns(), points_of(board)
    assert len(positions) <= MAX_POINTS
    model = fit_time(truth, positions)
    np.testing.assert_allclose(model.times_ns(), times_ns, rtol=1e-4)
    np.testing.assert_allclose(model.slowdown(), times_ns / times_ns[-1], rtol=1e-4)
    assert model.error.max < 1e-3


@BOARDS
@pytest.mark.parametrize("seed", range(3))
def test_noise_is_averaged_out_and_the_stated_error_is_no_smaller_than_the_true_one(board, seed):
    truth = SyntheticBoard(space_of(board), noise=0.03, seed=seed)
    model = fit_time(truth, points_of(board))
    p50, p95, largest = errors(model.times_ns(), truth.times_ns())
    assert p95 < 0.03  # less than the noise of one point
    assert p50 <= model.error.p50
    assert p95 <= model.error.p95
    assert largest <= 1.2 * model.error.max
    assert 0.0 < model.error.p50 < model.error.p95 < model.error.max


@BOARDS
@pytest.mark.parametrize("overlap", [0.5, 1.0])
def test_a_model_that_does_not_fit_says_so(board, overlap):
    """GPU and memory work at the same time: no sum of terms is that."""
    truth = SyntheticBoard(space_of(board), overlap=overlap, noise=0.01, seed=1)
    model = fit_time(truth, points_of(board))
    p50, p95, largest = errors(model.times_ns(), truth.times_ns())
    assert largest > 0.03
    assert p50 <= model.error.p50
    assert p95 <= 1.35 * model.error.p95
    assert largest <= 1.35 * model.error.max


def test_the_memory_term_is_a_table_and_no_law():
    """One step of the memory's clock costs 40 %, the others nothing: 1 / f would be far off."""
    truth = SyntheticBoard(space_of("tx2"), emc_slowness=(1.4, 1.4, 1.0, 1.0), seed=2)
    model = fit_time(truth, points_of("tx2"))
    np.testing.assert_allclose(model.times_ns(), truth.times_ns(), rtol=1e-4)
    # The memory part of stage 0 with everything else at its fastest.
    fast, slow = model.times_ns()[[-1, -3], 0]
    expected = 1.0 + 0.4 * truth.mixes[0, 3]
    assert slow / fast == pytest.approx(expected, rel=1e-4)


@BOARDS
def test_no_prediction_is_faster_for_slower_clocks(board):
    truth = SyntheticBoard(space_of(board), overlap=1.0, noise=0.1, seed=7)
    space = space_of(board)
    slowdown = fit_time(truth, points_of(board)).slowdown()
    assert (slowdown >= 1.0 - 1e-12).all()
    digits = space.option_indices
    for domain, name in enumerate(space.names):
        if name not in ("gpu", "emc"):
            continue
        stride = np.prod([len(d.options) for d in space.domains[domain + 1 :]], dtype=int)
        lower = np.flatnonzero(digits[:, domain] < len(space.domains[domain].options) - 1)
        assert (slowdown[lower] >= slowdown[lower + stride] - 1e-12).all()


def test_a_gpu_that_is_off_runs_no_stage_that_needs_it():
    gpu = ClockDomain("gpu", (ClockOption(0), *map(ClockOption, (400_000_000, 10**9))))
    cpu = ClockDomain("cpu", tuple(ClockOption(f * 10**8) for f in range(4, 21)))
    space = ClockSpace([cpu, gpu])
    positions = choose_points(space, 20, include=(space.slowest, 5))
    assert 5 in positions
    frequencies = space.frequencies_hz() / 1e9
    assert (frequencies[positions, 1] > 0).all()
    needs = 1e6 / frequencies[positions, 0] + 1e6 / frequencies[positions, 1]
    without = 1e6 / frequencies[positions, 0]
    model = TimeModel.fit(space, positions, np.column_stack([needs, without]))
    off = frequencies[:, 1] == 0
    times = model.times_ns()
    assert np.isinf(times[off, 0]).all()
    assert np.isfinite(times[~off]).all()
    np.testing.assert_allclose(times[off, 1], 1e6 / frequencies[off, 0], rtol=1e-6)
    with pytest.raises(ValueError, match="GPU is off"):
        TimeModel.fit(space, np.arange(len(space)), np.ones((len(space), 1)))


@BOARDS
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_power_is_predicted_within_what_is_stated(board, noise):
    truth = SyntheticBoard(space_of(board), noise=noise, seed=5)
    positions = points_of(board)
    times, power = truth.measure(positions)
    time_model = TimeModel.fit(truth.space, positions, times)
    activity = time_model.activity(np.arange(truth.stages))
    assert activity.rate[-1] == activity.rate.max() == 1.0
    for share in activity:
        assert share.min() >= 0.0
        assert share.max() <= 1.0
    model = PowerModel.fit(time_model.columns, positions, power, activity)
    p50, p95, _ = errors(model.power_w(), truth.power_w())
    # The floor of the voltage is not in the model: some error remains, and is stated.
    assert p95 < 0.08
    assert p50 <= 1.35 * model.error.p50
    assert p95 <= 1.5 * model.error.p95


def test_power_that_nothing_explains_has_a_large_error():
    space = space_of("xavier")
    positions = points_of("xavier")
    rng = np.random.default_rng(0)
    model = PowerModel.fit(ClockColumns.of(space), positions, rng.uniform(5.0, 15.0, MAX_POINTS))
    assert model.error.p50 > 0.15


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
@pytest.mark.parametrize("switch_cores", [True, False])
def test_every_board_is_determined_by_the_points_chosen(tree, switch_cores, tmp_path):
    """With cores that stay on, some power terms are the same and need not be told apart."""
    write_tree(tmp_path, tree)
    with detect(tmp_path, state_dir=tmp_path / "state", switch_cores=switch_cores) as platform:
        space = platform.space
    steps = len(space.domains[space.names.index("emc")].options)
    truth = SyntheticBoard(space, noise=0.02, emc_slowness=tuple(np.linspace(3.0, 1.0, steps)))
    positions = choose_points(space)
    times, power = truth.measure(positions)
    time_model = TimeModel.fit(space, positions, times)
    assert errors(time_model.times_ns(), truth.times_ns())[1] <= time_model.error.p95 < 0.08
    activity = time_model.activity(np.arange(truth.stages))
    model = PowerModel.fit(time_model.columns, positions, power, activity)
    assert errors(model.power_w(), truth.power_w())[1] <= 1.5 * model.error.p95 < 0.18
    PowerModel.fit(time_model.columns, positions, power)  # nothing runs


@BOARDS
def test_the_points_are_few_different_and_the_same_every_time(board):
    space = space_of(board)
    again = choose_points(space)
    np.testing.assert_array_equal(again, points_of(board))
    assert len(again) == len(set(again.tolist())) == MAX_POINTS
    assert again[0] == space.fastest
    assert space.slowest in again
    if "emc" in space.names:
        digits = space.option_indices[again, space.names.index("emc")]
        assert np.bincount(digits).min() >= 3


def test_presets_are_measured_when_asked_for():
    space = space_of("tx2")
    assert {777, 4242} <= set(choose_points(space, 30, include=(777, 4242)).tolist())
    with pytest.raises(ValueError, match="at least 4"):
        choose_points(space, 3, include=(777, 4242))


def test_a_small_space_is_measured_whole():
    space = ClockSpace([ClockDomain("cpu", tuple(ClockOption(f * 10**8) for f in range(1, 9)))])
    assert sorted(choose_points(space).tolist()) == list(range(8))
    assert choose_points(ClockSpace([])).tolist() == [0]


def test_a_clock_that_was_not_measured_is_named():
    space, positions = space_of("tx2"), points_of("tx2")
    measured = space.option_indices[positions, 3] != 2
    truth = SyntheticBoard(space).times_ns(positions[measured])
    with pytest.raises(ConfigurationError, match=r"memory below 1331\.2 MHz"):
        TimeModel.fit(space, positions[measured], truth)


@pytest.mark.parametrize(
    ("positions", "times", "text"),
    [
        ([1, 2, 2], [[1.0], [1.0], [1.0]], "positions must be 3 different ones"),
        ([1, 2], [[1.0], [1.0], [1.0]], "as many as times_ns"),
        ([1, 2, 3], [[1.0], [0.0], [1.0]], "times_ns must be finite and > 0"),
        ([1, 2, 3], [[1.0], [np.nan], [1.0]], "times_ns must be finite and > 0"),
    ],
)
def test_what_cannot_be_measurements_is_refused(positions, times, text):
    with pytest.raises(ValueError, match=text):
        TimeModel.fit(space_of("xavier"), np.array(positions), np.array(times))


def test_an_exact_law_is_found_without_error():
    rng = np.random.default_rng(1)
    columns = 1.0 + rng.random((12, 3))
    truth = np.array([[3e6, 0.0], [0.0, 2e5], [1e6, 4e5]])
    found, error = fit(columns, "abc", columns @ truth, "x")
    np.testing.assert_allclose(found, truth, atol=1e-3)
    assert error.points == 12
    assert error.max < 1e-9


def test_a_point_is_predicted_by_the_others_alone():
    columns = np.column_stack([np.ones(6), np.arange(6.0)])
    values = columns @ np.array([[10.0], [1.0]])
    values[3] = 26.0  # twice what the line says there
    _, error = fit(columns, ["a", "b"], values, "x")
    others = np.delete(np.arange(6), 3)
    line, *_ = np.linalg.lstsq(
        columns[others] / values[others], np.ones((5, 1)), rcond=None
    )  # relative errors
    assert error.max == pytest.approx(1.0 - float(columns[3] @ line[:, 0]) / 26.0)
    assert error.p50 < error.p95 == error.max == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([[1, 0], [1, 1]], "2 measured points do not determine x: it has 2 unknowns"),
        ([[1, 1], [1, 1], [1, 1]], "do not distinguish a and b"),
        ([[1, 0], [1, 0], [1, 0]], "do not distinguish b"),
        ([[1, 0], [1, 0], [1, 1]], "one measured point alone determines b of x"),
    ],
)
def test_what_is_left_open_is_refused_by_name(rows, text):
    with pytest.raises(ConfigurationError, match=text) as caught:
        fit(np.array(rows, np.float64), ["a", "b"], np.ones((len(rows), 1)), "x")
    assert "--clocks sample" in str(caught.value)


def test_without_scipy_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigurationError, match=r"scipy, which is missing; fix: apt install"):
        fit(np.ones((3, 1)), ["a"], np.ones((3, 1)), "x")
