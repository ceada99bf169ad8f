"""What the NeuOS paper is motivated by (sections 3.2 and 3.3), and that coordination ends it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import load_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import SimulatedFrame
from jetson_dnn_rt.lab.simulate.tally import Tally

SCENARIOS = Path(__file__).resolve().parents[3] / "config/scenarios"


@cache
def laboratory(name: str) -> Laboratory:
    return Laboratory(load_scenario(SCENARIOS / f"{name}.yaml"))


def accuracies(policy: str) -> list[float]:
    frames: list[SimulatedFrame] = []
    simulate(laboratory("feedback_loop"), policy, frames=120, observer=frames.append)
    return [frame.accuracy for frame in frames]


def test_the_clocks_alone_keep_the_deadline_at_full_accuracy_with_less_energy() -> None:
    clocks = simulate(laboratory("feedback_loop"), "clocks_alone", frames=120)
    static = simulate(laboratory("feedback_loop"), "static", frames=120)
    assert clocks.miss_ratio == 0.0
    assert clocks.accuracy == 1.0
    assert clocks.energy_j < 0.75 * static.energy_j


def test_the_variants_alone_have_no_reason_to_give_up_accuracy() -> None:
    assert set(accuracies("variants_alone")) == {1.0}


def test_both_together_give_up_nearly_all_that_can_be_given_up() -> None:
    seen = accuracies("uncoordinated")
    lowest = laboratory("feedback_loop").tables[0].accuracy(-1)
    assert seen[0] == 1.0
    late = seen[40:]
    assert sum(late) / len(late) < lowest + 0.2 * (1.0 - lowest)


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        ("neuos_balanced", PolicySettings()),
        ("neuos_max_accuracy", PolicySettings()),
        ("horizon", PolicySettings(mode="max_accuracy")),
    ],
)
def test_coordination_ends_the_loop(policy: str, settings: PolicySettings) -> None:
    tally = simulate(laboratory("feedback_loop"), policy, frames=120, settings=settings)
    assert tally.accuracy is not None
    assert tally.accuracy > 0.98
    assert tally.miss_ratio <= 0.01


def spread_of_misses(tally: Tally) -> float:
    shares = [1.0 - task.met / task.released for task in tally.tasks.values()]
    return max(shares) - min(shares)


def test_greedy_clocks_serve_instances_unequally() -> None:
    source = laboratory("greedy_imbalance")
    static, greedy, horizon = (
        simulate(source, policy, frames=300) for policy in ("static", "predjoule", "horizon")
    )
    assert static.miss_ratio == 0.0
    assert greedy.miss_ratio > 0.05
    assert spread_of_misses(greedy) > 0.2
    assert horizon.miss_ratio <= 0.005
    assert spread_of_misses(horizon) <= 0.02
    assert horizon.energy_j < greedy.energy_j
