"""All policies in the states that frames really lead to: pure, and NeuOS within its candidates."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cohorts import snapshot

from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policies.neuos import NeuOS
from jetson_dnn_rt.coordinator.policy import Policy
from jetson_dnn_rt.coordinator.registry import POLICIES
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import Simulation


class Watched:
    """A policy that is asked twice."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.adjusts_clocks = policy.adjusts_clocks
        self.clocks_at_boundaries = policy.clocks_at_boundaries
        self.adjusts_variants = policy.adjusts_variants
        self.fastest_clocks = policy.fastest_clocks
        self.decisions = 0
        self.chosen: set[int] = set()
        self.problems: list[str] = []

    def candidates(self, cohort: Cohort, member: int) -> Sequence[int]:
        return self.policy.candidates(cohort, member)

    def decide(self, cohort: Cohort, now_ns: int) -> Decision:
        before = snapshot(cohort)
        decision = self.policy.decide(cohort, now_ns)
        if self.policy.decide(cohort, now_ns) != decision or snapshot(cohort) != before:
            self.problems.append(f"not pure at {now_ns}")
        deciding = cohort.deciding
        if isinstance(self.policy, NeuOS):
            begins = deciding >= 0 and not cohort.members[deciding].started
            delta = {candidate.clocks for candidate in self.policy.clock_candidates(cohort)}
            if decision.clocks not in (delta if begins else {cohort.clocks_target}):
                self.problems.append(f"{decision.clocks} is not in {delta} at {now_ns}")
        if deciding >= 0:
            may = list(self.policy.candidates(cohort, deciding))
            if decision.variants[deciding] not in may:
                self.problems.append(f"variant {decision.variants[deciding]} is not in {may}")
        self.decisions += 1
        self.chosen.add(decision.clocks)
        return decision


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory(open_scenario("tx2_cohort4"))


@pytest.mark.parametrize("name", POLICIES)
def test_in_a_cohort_of_four(laboratory: Laboratory, name: str) -> None:
    watched: list[Watched] = []

    def watch(simulation: Simulation, coordinator: Coordinator) -> None:
        watched.append(Watched(coordinator.policy))
        coordinator.policy = watched[0]

    simulate(laboratory, name, frames=60, watch=watch)
    assert watched[0].problems == []
    assert watched[0].decisions > 500
    if name in ("predjoule", "poet", "alert", "race_to_idle") or name.startswith("neuos"):
        assert len(watched[0].chosen) > 1
