# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""All policies: those without any control by hand, every one pure in the states of real frames."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from cohorts import (
    MS,
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
from hypothesis import strategies as st

from jetson_dnn_rt.config.nodes import MODES, POLICIES
from jetson_dnn_rt.coordinator.cohort import Decision
from jetson_dnn_rt.coordinator.policies.neuos import NeuOS
from jetson_dnn_rt.coordinator.policies.static import MaxN, MaxQ, RaceToIdle, Static
from jetson_dnn_rt.coordinator.policy import Policy, configured, find_policy
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.simulate.laboratory import Laboratory
from jetson_dnn_rt.lab.simulate.scenario import open_scenario
from jetson_dnn_rt.lab.simulate.session import simulate

SIMPLE = [Static, MaxN, MaxQ, RaceToIdle]


@given(cohort=cohorts())
def test_clocks(cohort):
    table = cohort.clock_table
    decided = {cls: make_policy(cls, cohort).decide(cohort, 0).clocks for cls in SIMPLE}
    assert decided[Static] == cohort.clocks_target
    assert decided[MaxN] == table.max_n
    assert decided[MaxQ] == table.max_q
    works = any(member.active for member in cohort.members)
    assert decided[RaceToIdle] == (table.fastest if works else table.slowest)
    assert [cls.adjusts_clocks for cls in SIMPLE] == [False, True, True, True]


def test_presets_say_how_fast_they_may_go():
    member = make_member(make_table(speeds=(1, 2, 3, 4, 5), powers_w=(1, 2, 3, 4, 5)))
    cohort = make_cohort(make_clock_table(5, max_n=3, max_q=1), [member])
    fastest = [make_policy(cls, cohort).fastest_clocks for cls in SIMPLE]
    assert fastest == [4, 3, 1, 4]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=30)
@given(cohort=cohorts(), now_ms=st.integers(0, 60), mode=st.sampled_from(MODES))
def test_every_policy_is_pure_and_runs_only_what_may_run(name, cohort, now_ms, mode):
    policy = make_policy(find_policy(name), cohort, mode=mode)
    decision = check_pure(policy, cohort, now_ms * MS)
    for number, member in enumerate(cohort.members):
        candidates = list(policy.candidates(cohort, number))
        if policy.adjusts_variants:
            assert candidates
            assert all(member.usable[variant] for variant in candidates)
        else:
            assert candidates == [member.configured] == [decision.variants[number]]
    if policy.adjusts_variants and (deciding := cohort.deciding) >= 0:
        member = cohort.members[deciding]
        # ALERT leaves a frame on its way what it was given.
        assert member.usable[decision.variants[deciding]] or (name == "alert" and member.started)


def test_a_new_policy_is_a_class_with_decide_and_a_line(monkeypatch):
    class Slowest(Policy):
        adjusts_clocks = True

        def decide(self, cohort, now_ns):
            return Decision(configured(cohort), self.clock_table.slowest)

    module = ModuleType("jetson_dnn_rt.coordinator.policies.slowest")
    module.Slowest = Slowest  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(POLICIES, "slowest", "slowest:Slowest")
    cohort = make_cohort(make_clock_table(), [make_member(make_table())])
    made = make_policy(find_policy("slowest"), cohort)
    assert check_pure(made, cohort).clocks == 0
    assert made.candidates(cohort, 0) == (0,)
    assert made.fastest_clocks == cohort.clock_table.fastest


def test_unknown_policies_are_refused_with_those_there_are():
    with pytest.raises(ConfigurationError, match=r"static, max_n.*: 'fast'"):
        find_policy("fast")


class Watched:
    """A policy that is asked twice."""

    def __init__(self, policy):
        self.policy = policy
        self.decisions = 0
        self.chosen: set[int] = set()
        self.problems: list[str] = []

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def decide(self, cohort, now_ns):
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
def laboratory():
    return Laboratory(open_scenario("tx2_cohort4"))


@pytest.mark.parametrize("name", POLICIES)
def test_in_a_cohort_of_four(laboratory, name):
    watched: list[Watched] = []

    def watch(simulation, coordinator):
        watched.append(Watched(coordinator.policy))
        coordinator.policy = watched[0]

    simulate(laboratory, name, frames=60, watch=watch)
    assert watched[0].problems == []
    assert watched[0].decisions > 500
    if name in ("predjoule", "poet", "alert", "race_to_idle") or name.startswith("neuos"):
        assert len(watched[0].chosen) > 1
