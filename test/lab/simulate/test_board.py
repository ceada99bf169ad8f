# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Boards: the formulas of `jetson_dnn_rt.lab.simulate.board`, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from worlds import laboratory

from jetson_dnn_rt.coordinator.policies.predjoule import usefulness
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.board import INTENSITIES, BoardModel, fit_intensity
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.platforms.boards import tx2_space, xavier_space


@pytest.fixture(scope="module")
def tx2():
    return open_scenario("tx2_cohort4")


def find(space, **wanted):
    """The configuration with these options (MHz and cores), the fastest of all others."""
    digits = []
    for domain in space.domains:
        if domain.name in wanted:
            mhz, cores = wanted[domain.name]
            options = [(o.frequency_hz, o.cores) for o in domain.options]
            digits.append(options.index((round(mhz * 1e6), cores)))
        else:
            digits.append(len(domain.options) - 1)
    return space.number(digits)


def model_at(scenario, *indices):
    return BoardModel(scenario.board, tx2_space(), np.array(indices))


def test_nothing_is_slower_than_alone_at_the_fastest_clocks(tx2):
    space = tx2_space()
    model = BoardModel(tx2.board, space, np.arange(len(space)))
    for network in tx2.networks.networks.values():
        shares = model.shares(network)
        assert shares.gpu + shares.cpu + shares.memory == pytest.approx(np.ones(8))
        slowdown = model.slowdown(shares)
        assert slowdown[:, space.fastest] == pytest.approx(np.ones(8))
        assert slowdown.min() >= 1.0 - 1e-12
        assert (slowdown.argmax(axis=1) == space.slowest).all()
        assert model.activity(shares).sum(axis=-1) == pytest.approx(np.ones((8, len(space))))


def slowed_by_gpu(shares, scenario):
    return shares.gpu * (1300.5 / 675.75 - 1.0)


def slowed_by_memory(shares, scenario):
    """The memory part is a table, not 1/f."""
    times = dict(scenario.board.compute.emc_time)
    assert times[800.0] != pytest.approx(1866.0 / 800.0, rel=0.1)
    return shares.memory * (times[800.0] - 1.0)


def slowed_by_little_cores(shares, scenario):
    """CPU work is on the fastest core that is on."""
    compute = scenario.board.compute
    speed, parallel = compute.core_speed, compute.cpu_parallel
    serial = (1.0 - parallel + parallel / 4.0) / (1.0 - parallel + parallel / 6.0)
    return shares.cpu * (speed["big"] / speed["little"] * serial - 1.0)


@pytest.mark.parametrize(
    ("network", "wanted", "slowed"),
    [
        ("vgg16", {"gpu": (675.75, 0)}, slowed_by_gpu),
        ("alexnet", {"emc": (800.0, 0)}, slowed_by_memory),
        ("googlenet", {"big": (0.0, 0)}, slowed_by_little_cores),
    ],
)
def test_slow_down_of_each_part(tx2, network, wanted, slowed):
    space = tx2_space()
    model = model_at(tx2, space.fastest, find(space, **wanted))
    shares = model.shares(tx2.networks.networks[network])
    assert model.slowdown(shares)[:, 1] == pytest.approx(1.0 + slowed(shares, tx2))


def test_power_at_the_ends(tx2):
    """By hand: everything on at its highest, and a dark board with one core."""
    power = tx2.board.power
    space = tx2_space()
    model = model_at(tx2, space.fastest, space.slowest)
    static = sum(domain.static_w for domain in power.values())
    assert model.idle_w[0] == pytest.approx(tx2.board.base_w + static)
    assert model.dynamic_w[0] == pytest.approx(
        [power["gpu"].dynamic_w, power["big"].dynamic_w, power["emc"].dynamic_w]
    )

    def volts(name):
        low, high = power[name].voltage_v
        return low / high

    little, gpu = power["little"], power["gpu"]
    idle = tx2.board.base_w + little.static_w * volts("little") ** 2 / 4.0
    idle += sum(power[name].static_w * volts(name) ** 2 for name in ("gpu", "emc"))
    assert model.idle_w[1] == pytest.approx(idle)
    expected = [
        gpu.dynamic_w * volts("gpu") ** 2 * 140.25 / 1300.5,
        little.dynamic_w * volts("little") ** 2 * 345.6 / 2035.2,
    ]
    assert model.dynamic_w[1, :2] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("board", "low_w", "high_w"), [("tx2", 7.0, 16.0), ("xavier", 15.0, 32.0)]
)
def test_boards_under_load_take_what_is_published(board, low_w, high_w):
    """Max-N with all parts busy: about 15 W and 30 W."""
    source = laboratory(f"{board}_cohort8")
    clocks = source.clock_table
    model = BoardModel(source.scenario.board, clocks.space, clocks.indices)
    busy_w = model.idle_w[clocks.fastest] + model.dynamic_w[clocks.fastest].sum()
    assert low_w < busy_w < 1.25 * high_w
    for table in source.true_tables:
        assert low_w < table.power_w[0, :, clocks.fastest].mean() < high_w


def test_caps_are_the_clocks_of_a_throttled_board(tx2):
    space = tx2_space()
    indices = np.array([space.slowest, space.fastest])
    capped = BoardModel(tx2.board, space, indices, {"gpu": 675.75e6})
    plain = model_at(tx2, space.slowest, find(space, gpu=(675.75, 0)))
    shares = plain.shares(tx2.networks.networks["vgg16"])
    assert capped.slowdown(shares) == pytest.approx(plain.slowdown(shares))
    assert capped.idle_w == pytest.approx(plain.idle_w)


def test_symmetric_core_masks_are_alike():
    scenario = open_scenario("xavier_cohort4")
    space = xavier_space()
    model = BoardModel(scenario.board, space, np.arange(len(space)))
    shares = model.shares(scenario.networks.networks["vgg16"])
    columns = np.stack([*model.slowdown(shares), model.idle_w], axis=1).round(9)
    assert len(np.unique(columns, axis=0)) <= 3248


@pytest.mark.parametrize("name", ["tx2_cohort4", "tx2_thermal", "tx2_co_runner"])
def test_the_profile_is_near_the_truth_and_hides_the_disturbances(name):
    source = laboratory(name)
    for table, truth in zip(source.tables, source.true_tables, strict=True):
        assert table.median_ns == pytest.approx(truth.median_ns, rel=0.02)
        assert table.slowdown == pytest.approx(truth.slowdown, rel=0.04)
        assert table.power_w == pytest.approx(truth.power_w, rel=0.06)
        fastest = source.clock_table.fastest
        assert table.slowdown[:, :, fastest] == pytest.approx(1.0, rel=1e-12)
        assert not np.array_equal(table.slowdown, truth.slowdown)
        assert table.accuracy(0) == 1.0
    assert source.interference == pytest.approx(source.scenario.interference, rel=0.05)


def test_accuracy_of_a_whole_variant_is_its_loss(tx2):
    for network in tx2.networks.networks:
        losses = tx2.networks.losses(network).sum(axis=1)
        assert losses == pytest.approx([variant.loss for variant in tx2.networks.variants])


def test_alone_share():
    (table,) = laboratory("tx2_resnet50").true_tables
    assert table.median_ns[0].sum() == pytest.approx(0.45 * 150e6, rel=1e-6)
    assert table.median_ns[2].sum() == pytest.approx(0.55 * 0.45 * 150e6, rel=1e-6)


def test_all_clocks_are_ordered_by_speed(tx2):
    source = Laboratory(replace(tx2, clocks="all"))
    assert len(source.clock_table) == 11_760
    slowness = sum(np.log(table.slowdown).mean(axis=(0, 1)) for table in source.true_tables)
    assert (np.diff(slowness) <= 1e-9).all()


def test_intensity_by_hand():
    # Four times as slow at 1 W idle and 1 W of work, fast at 2 W and 8 W: with the factor g the
    # powers are 1 + g and 2 + 8 g, the energies 4 + 4 g and 2 + 8 g. U = 4 (2 + 8 g) / (4 + 4 g)
    # is 3.2 at 1 / 4, 5.2 / 1.4 at 0.4, and 4 from 0.5 on.
    slowdown = np.array([[4.0, 1.0]] * 4)
    idle_w, dynamic_w = np.array([1.0, 2.0]), np.array([[1.0, 8.0]] * 4)
    factors = fit_intensity(np.array([1.0, 3.2, 5.2 / 1.4, 9.0]), slowdown, idle_w, dynamic_w)
    assert factors == pytest.approx([INTENSITIES[0], 0.25, 0.4, INTENSITIES[1]], abs=1e-9)


def test_calibrated_stages_have_the_measured_usefulness(tx2):
    plain, fit = (
        Laboratory(replace(tx2, calibrated=calibrated, clocks="all"))
        for calibrated in (False, True)
    )
    for before, after in zip(plain.true_tables, fit.true_tables, strict=True):
        measured = tx2.board.usefulness[after.task]
        assert usefulness(after) == list(measured)  # what policies know
        modelled = usefulness(replace(after, usefulness=()))
        for was, now, wanted in zip(usefulness(before), modelled, measured, strict=True):
            # As measured, or as near as a factor within bounds comes.
            assert (
                now == pytest.approx(wanted, rel=1e-6) or was < now < wanted or wanted < now < was
            )
        assert (before.slowdown == after.slowdown).all()
        assert (before.times_ns == after.times_ns).all()


def test_calibration_needs_measured_values(tx2):
    with pytest.raises(ConfigurationError, match="has no measured usefulness"):
        Laboratory(replace(open_scenario("xavier_vgg16"), calibrated=True)).world(0, 1)
    board = replace(tx2.board, usefulness={"vgg16": (1.0, 2.0)})
    with pytest.raises(ConfigurationError, match="of vgg16 must have 8 values: 2"):
        Laboratory(replace(tx2, board=board, calibrated=True)).world(0, 1)
