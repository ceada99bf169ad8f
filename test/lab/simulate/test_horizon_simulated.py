"""`horizon` in worlds it has not seen: noise, side by side, a co-runner that nobody announces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import CoRunner
from jetson_dnn_rt.lab.simulate.scenario_files import open_scenario
from jetson_dnn_rt.lab.simulate.session import simulate


@pytest.mark.parametrize("scenario", ["tx2_cohort4", "xavier_cohort4"])
def test_hardly_a_miss_at_half_the_energy(scenario: str) -> None:
    lab = Laboratory(open_scenario(scenario))
    ours = simulate(lab, "horizon", seed=3, frames=90)
    fastest = simulate(lab, "max_n", seed=3, frames=90)
    assert ours.miss_ratio <= 0.01
    assert ours.accuracy is not None
    assert ours.accuracy >= 0.93
    assert ours.energy_j <= 0.6 * fastest.energy_j


def test_a_hidden_co_runner_is_followed() -> None:
    scenario = open_scenario("tx2_vgg16")
    busy = replace(scenario, co_runners=(CoRunner(1.0, 6.0, 1.6),))
    tally = simulate(Laboratory(busy), "horizon", seed=2, frames=120)
    (task,) = tally.tasks.values()
    # One frame may be caught by it; the next ones are planned with it.
    assert task.released - task.met <= 2
    assert task.max_burst <= 1
