"""Policies without any control."""

from __future__ import annotations

import importlib

import pytest
from cohorts import (
    check_pure,
    cohorts,
    make_clock_table,
    make_cohort,
    make_member,
    make_policy,
    make_table,
)
from hypothesis import given, settings

from jetson_dnn_rt.coordinator.cohort import Cohort
from jetson_dnn_rt.coordinator.policies.max_n import MaxN
from jetson_dnn_rt.coordinator.policies.max_q import MaxQ
from jetson_dnn_rt.coordinator.policies.race_to_idle import RaceToIdle
from jetson_dnn_rt.coordinator.policies.static import Static
from jetson_dnn_rt.coordinator.policy import PolicySettings
from jetson_dnn_rt.coordinator.registry import POLICIES, create_policy, find_policy
from jetson_dnn_rt.errors import ConfigurationError

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
        PolicySettings(),
        workers=cohort.workers,
        interference=cohort.interference,
    )
    check_pure(made, cohort)


def test_unknown_policies_are_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"static, max_n.*: 'fast'"):
        find_policy("fast")


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_has_its_file(name: str) -> None:
    module, _, cls = find_policy(name).partition(":")
    assert module in (name, f"{name}.policy")
    imported = importlib.import_module(f"jetson_dnn_rt.coordinator.policies.{module}")
    assert getattr(imported, cls).__module__ == imported.__name__
