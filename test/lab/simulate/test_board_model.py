"""Boards: what the formulas of `jetson_dnn_rt.lab.simulate.board` say, looked up by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jetson_dnn_rt.lab.simulate.board_model import BoardModel
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import Scenario, load_scenario
from jetson_dnn_rt.platforms.boards import tx2_space, xavier_space
from jetson_dnn_rt.platforms.clocks import ClockSpace

SCENARIOS = Path(__file__).resolve().parents[3] / "config/scenarios"


@pytest.fixture(scope="module")
def tx2() -> Scenario:
    return load_scenario(SCENARIOS / "tx2_cohort4.yaml")


def find(space: ClockSpace, **wanted: tuple[float, int]) -> int:
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


def model_at(scenario: Scenario, *indices: int) -> BoardModel:
    return BoardModel(scenario.board, tx2_space(), np.array(indices))


def test_nothing_is_slower_than_alone_at_the_fastest_clocks(tx2: Scenario) -> None:
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


def test_the_gpu_part_goes_with_its_clock(tx2: Scenario) -> None:
    space = tx2_space()
    model = model_at(tx2, space.fastest, find(space, gpu=(675.75, 0)))
    shares = model.shares(tx2.networks.networks["vgg16"])
    expected = 1.0 + shares.gpu * (1300.5 / 675.75 - 1.0)
    assert model.slowdown(shares)[:, 1] == pytest.approx(expected)


def test_the_memory_part_is_a_table_and_not_one_over_f(tx2: Scenario) -> None:
    space = tx2_space()
    model = model_at(tx2, space.fastest, find(space, emc=(800.0, 0)))
    shares = model.shares(tx2.networks.networks["alexnet"])
    times = dict(tx2.board.compute.emc_time)
    expected = 1.0 + shares.memory * (times[800.0] - 1.0)
    assert model.slowdown(shares)[:, 1] == pytest.approx(expected)
    assert times[800.0] != pytest.approx(1866.0 / 800.0, rel=0.1)


def test_cpu_work_is_on_the_fastest_core_that_is_on(tx2: Scenario) -> None:
    space, speed = tx2_space(), tx2.board.compute.core_speed
    model = model_at(tx2, space.fastest, find(space, big=(0.0, 0)))
    shares = model.shares(tx2.networks.networks["googlenet"])
    parallel = tx2.board.compute.cpu_parallel
    serial = (1.0 - parallel + parallel / 4.0) / (1.0 - parallel + parallel / 6.0)
    expected = 1.0 + shares.cpu * (speed["big"] / speed["little"] * serial - 1.0)
    assert model.slowdown(shares)[:, 1] == pytest.approx(expected)


def test_power_at_the_ends(tx2: Scenario) -> None:
    """By hand: everything on at its highest, and a dark board with one core."""
    power = tx2.board.power
    space = tx2_space()
    model = model_at(tx2, space.fastest, space.slowest)
    static = sum(domain.static_w for domain in power.values())
    assert model.idle_w[0] == pytest.approx(tx2.board.base_w + static)
    assert model.dynamic_w[0] == pytest.approx(
        [power["gpu"].dynamic_w, power["big"].dynamic_w, power["emc"].dynamic_w]
    )

    def volts(name: str) -> float:
        low, high = power[name].voltage_v
        return low / high

    idle = tx2.board.base_w + power["little"].static_w * volts("little") ** 2 / 4.0
    idle += sum(power[name].static_w * volts(name) ** 2 for name in ("gpu", "emc"))
    assert model.idle_w[1] == pytest.approx(idle)
    assert model.dynamic_w[1, 0] == pytest.approx(
        power["gpu"].dynamic_w * volts("gpu") ** 2 * 140.25 / 1300.5
    )
    little = power["little"]
    assert model.dynamic_w[1, 1] == pytest.approx(
        little.dynamic_w * volts("little") ** 2 * 345.6 / 2035.2
    )


@pytest.mark.parametrize(
    ("board", "low_w", "high_w"), [("tx2", 7.0, 16.0), ("xavier", 15.0, 32.0)]
)
def test_boards_under_load_take_what_is_published(board: str, low_w: float, high_w: float) -> None:
    """Max-N with all parts busy: about 15 W and 30 W."""
    scenario = load_scenario(SCENARIOS / f"{board}_cohort8.yaml")
    laboratory = Laboratory(scenario)
    model = BoardModel(
        scenario.board, laboratory.clock_table.space, laboratory.clock_table.indices
    )
    fastest = laboratory.clock_table.fastest
    assert low_w < model.idle_w[fastest] + model.dynamic_w[fastest].sum() < 1.25 * high_w
    for table in laboratory.true_tables:
        assert low_w < table.power_w[0, :, fastest].mean() < high_w


def test_caps_are_the_clocks_of_a_throttled_board(tx2: Scenario) -> None:
    space = tx2_space()
    indices = np.array([space.slowest, space.fastest])
    capped = BoardModel(tx2.board, space, indices, {"gpu": 675.75e6})
    plain = model_at(tx2, space.slowest, find(space, gpu=(675.75, 0)))
    shares = plain.shares(tx2.networks.networks["vgg16"])
    assert capped.slowdown(shares) == pytest.approx(plain.slowdown(shares))
    assert capped.idle_w == pytest.approx(plain.idle_w)


def test_symmetric_core_masks_are_alike() -> None:
    scenario = load_scenario(SCENARIOS / "xavier_cohort4.yaml")
    space = xavier_space()
    model = BoardModel(scenario.board, space, np.arange(len(space)))
    shares = model.shares(scenario.networks.networks["vgg16"])
    columns = np.stack([*model.slowdown(shares), model.idle_w], axis=1).round(9)
    assert len(np.unique(columns, axis=0)) <= 3248


def test_the_profile_is_near_the_truth_and_does_not_show_the_disturbances(tx2: Scenario) -> None:
    thermal = Laboratory(load_scenario(SCENARIOS / "tx2_thermal.yaml"))
    disturbed = Laboratory(load_scenario(SCENARIOS / "tx2_co_runner.yaml"))
    for laboratory in (Laboratory(tx2), thermal, disturbed):
        for table, truth in zip(laboratory.tables, laboratory.true_tables, strict=True):
            assert table.median_ns == pytest.approx(truth.median_ns, rel=0.02)
            assert table.slowdown == pytest.approx(truth.slowdown, rel=0.04)
            assert table.power_w == pytest.approx(truth.power_w, rel=0.06)
            fastest = laboratory.clock_table.fastest
            assert table.slowdown[:, :, fastest] == pytest.approx(1.0, rel=1e-12)
            assert not np.array_equal(table.slowdown, truth.slowdown)
            assert table.accuracy(0) == 1.0
        assert laboratory.interference == pytest.approx(laboratory.scenario.interference, rel=0.05)


def test_accuracy_of_a_whole_variant_is_its_loss(tx2: Scenario) -> None:
    for network in tx2.networks.networks:
        losses = tx2.networks.losses(network).sum(axis=1)
        assert losses == pytest.approx([variant.loss for variant in tx2.networks.variants])


def test_alone_share() -> None:
    scenario = load_scenario(SCENARIOS / "tx2_resnet50.yaml")
    (table,) = Laboratory(scenario).true_tables
    assert table.median_ns[0].sum() == pytest.approx(0.45 * 150e6, rel=1e-6)
    assert table.median_ns[2].sum() == pytest.approx(0.55 * 0.45 * 150e6, rel=1e-6)


def test_all_clocks_are_ordered_by_speed(tx2: Scenario) -> None:
    from dataclasses import replace

    laboratory = Laboratory(replace(tx2, clocks="all"))
    assert len(laboratory.clock_table) == 11_760
    slowness = sum(np.log(table.slowdown).mean(axis=(0, 1)) for table in laboratory.true_tables)
    assert (np.diff(slowness) <= 1e-9).all()
