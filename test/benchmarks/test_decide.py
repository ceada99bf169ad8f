# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""`decide` and its cohort: what they do, not how fast this machine is."""

import benches
from cohorts import make_clock_table, make_table

from benchmarks import decide
from benchmarks.decide import CohortWalk
from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Decision
from jetson_dnn_rt.coordinator.policies.neuos import NeuOSBalanced


def make(seed=0):
    clock_table = make_clock_table()
    tables = [make_table(f"task-{i}", frames=(0.9, 1.0, 1.2)) for i in range(3)]
    interference = (1.0, 1.3, 1.6)
    policy = NeuOSBalanced(
        clock_table, tables, CoordinatorConfig(), workers=3, interference=interference
    )
    return CohortWalk(clock_table, tables, interference, seed), policy


def test_the_walk_goes_through_frames():
    walk, policy = make()
    seen, lags = set(), set()
    for _ in range(600):
        before = [(m.active, m.stage, m.stages_done) for m in walk.cohort.members]
        walk.step()
        deciding = walk.cohort.deciding
        for number, (member, (active, stage, done)) in enumerate(
            zip(walk.cohort.members, before, strict=True)
        ):
            if not active and member.active:
                assert (member.started, member.stage, deciding) == (False, 0, number)
            if member.stages_done > done:
                assert active
                assert (member.stages_done, member.stage) == (done + 1, stage + 1)
                assert member.last_stage.stage == stage
                if member.stage == 3:
                    assert deciding == -1
                    # LAG at the end is what is left of the deadline.
                    assert member.lag_ns == member.deadline_ns - member.last_frame.response_ns
        decision = policy.decide(walk.cohort, walk.now_ns)
        walk.apply(policy, decision)
        seen.add((deciding, decision.clocks))
        lags.update(m.lag_ns for m in walk.cohort.members)
    assert {who for who, _ in seen} == {-1, 0, 1, 2}
    assert len({clocks for _, clocks in seen}) > 1
    assert min(lags) < 0 < max(lags)
    assert all(member.frames_done > 20 for member in walk.cohort.members)


def test_the_same_seed_is_the_same_way():
    def go(seed):
        walk, policy = make(seed)
        for _ in range(200):
            walk.step()
            walk.apply(policy, policy.decide(walk.cohort, walk.now_ns))
        return [walk.now_ns, [(m.lag_ns, m.stages_done, m.stage) for m in walk.cohort.members]]

    assert go(0) == go(0) != go(1)


def test_figures_of_both_boards():
    policies = "static,neuos_max_accuracy"
    _, result = benches.run("decide", f"--hull --decisions 60 --policies {policies}")
    assert result["cohort"] == 8
    assert result["decisions"] == 60
    rows = result["policies"]
    assert list(rows) == ["static", "neuos_max_accuracy"]
    for row in rows.values():
        figures = row["decision_us"].values()
        assert all(0.0 < one["p50"] <= one["p99"] <= one["max"] for one in figures)
        flat = max(row["ratio"].values()) <= decide.RATIO_BAR
        quick = max(one["p99"] for one in figures) <= decide.P99_BAR_US
        assert row["passed"] == (flat and quick)
    assert result["passed"] == all(row["passed"] for row in rows.values())


def test_a_decision_that_changes_clocks_is_heeded_where_the_policy_may():
    walk, policy = make()
    walk.step()
    deciding = walk.cohort.deciding
    walk.apply(policy, Decision((0, 0, 0), 0))
    assert walk.cohort.clocks_target == 0
    assert walk.cohort.clocks == 2
    member = walk.cohort.members[deciding]
    member.stage = 1  # in the middle of a frame
    walk.apply(policy, Decision((0, 0, 0), 1))
    assert walk.cohort.clocks_target == 0
