"""All policies: those without any control by hand, every one pure in the states of real frames."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import pytest
from cohorts import (
    check_pure,
    cohorts,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
    snapshot,
)
from hypothesis import given, settings

from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Cohort, Decision
from jetson_dnn_rt.coordinator.coordinator import Coordinator
from jetson_dnn_rt.coordinator.policies.neuos import NeuOS
from jetson_dnn_rt.coordinator.policies.static import MaxN, MaxQ, RaceToIdle, Static
from jetson_dnn_rt.coordinator.policy import (
    POLICIES,
    Policy,
    configured,
    create_policy,
    find_policy,
)
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import simulate
from jetson_dnn_rt.lab.simulate.simulation import Simulation

SIMPLE = [Static, MaxN, MaxQ, RaceToIdle]


@pytest.mark.parametrize("cls", SIMPLE)
@settings(max_examples=30, deadline=None)
@given(cohort=cohorts())
def test_variants_are_those_that_tasks_are_set_to(cls: type[Static], cohort: Cohort) -> None:
    policy = make_policy(cls, cohort)
    decision = check_pure(policy, cohort)
    assert decision.variants == tuple(member.configured for member in cohort.members)
    assert not policy.adjusts_variants
    for number, member in enumerate(cohort.members):
        assert list(policy.candidates(cohort, number)) == [member.configured]


@settings(deadline=None)
@given(cohort=cohorts())
def test_clocks(cohort: Cohort) -> None:
    table = cohort.clock_table
    decided = {cls: make_policy(cls, cohort).decide(cohort, 0).clocks for cls in SIMPLE}
    assert decided[Static] == cohort.clocks_target
    assert decided[MaxN] == table.max_n
    assert decided[MaxQ] == table.max_q
    works = any(member.active for member in cohort.members)
    assert decided[RaceToIdle] == (table.fastest if works else table.slowest)
    assert [cls.adjusts_clocks for cls in SIMPLE] == [False, True, True, True]


def test_presets_say_how_fast_they_may_go() -> None:
    member = make_member(make_table(speeds=(1, 2, 3, 4, 5), powers_w=(1, 2, 3, 4, 5)))
    cohort = make_cohort(make_clock_table(5, max_n=3, max_q=1), [member])
    fastest = [make_policy(cls, cohort).fastest_clocks for cls in SIMPLE]
    assert fastest == [4, 3, 1, 4]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "horizon"])
@settings(max_examples=30, deadline=None)
@given(cohort=cohorts())
def test_every_policy_by_its_name_is_pure(name: str, cohort: Cohort) -> None:
    made = create_policy(
        name,
        cohort.clock_table,
        [member.table for member in cohort.members],
        CoordinatorConfig(),
        workers=cohort.workers,
        interference=cohort.interference,
    )
    check_pure(made, cohort)


def test_a_new_policy_is_a_class_with_decide_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slowest(Policy):
        adjusts_clocks = True

        def decide(self, cohort: Cohort, now_ns: int) -> Decision:
            return Decision(configured(cohort), self.clock_table.slowest)

    module = ModuleType("jetson_dnn_rt.coordinator.policies.slowest")
    module.Slowest = Slowest  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(POLICIES, "slowest", "slowest:Slowest")
    cohort = make_cohort(make_clock_table(), [make_member(make_table())])
    made = create_policy(
        "slowest", cohort.clock_table, [], CoordinatorConfig(), workers=1, interference=(1.0,)
    )
    assert check_pure(made, cohort).clocks == 0
    assert made.candidates(cohort, 0) == (0,)
    assert made.fastest_clocks == cohort.clock_table.fastest


def test_unknown_policies_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"static, max_n.*: 'fast'"):
        find_policy("fast")


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
