"""`decide` and its cohort: what they do, not how fast this machine is."""

import benches
from cohorts import make_clock_table, make_table

from benchmarks import decide
from benchmarks.decide import CohortWalk
from jetson_dnn_rt.config.nodes import CoordinatorConfig
from jetson_dnn_rt.coordinator.cohort import Decision
from jetson_dnn_rt.coordinator.policies.neuos import NeuOSBalanced


def walk_with(policy, steps, seed=0):
    clock_table = make_clock_table()
    tables = [make_table(f"task-{i}", frames=(0.9, 1.0, 1.2)) for i in range(3)]
    walk = CohortWalk(clock_table, tables, (1.0, 1.3, 1.6), seed)
    policy = policy or NeuOSBalanced(
        clock_table, tables, CoordinatorConfig(), workers=3, interference=(1.0, 1.3, 1.6)
    )
    for _ in range(steps):
        walk.step()
        walk.apply(policy, policy.decide(walk.cohort, walk.now_ns))
    return walk


def test_the_walk_goes_through_frames():
    clock_table = make_clock_table()
    tables = [make_table(f"task-{i}", frames=(0.9, 1.0, 1.2)) for i in range(3)]
    walk = CohortWalk(clock_table, tables, (1.0, 1.3, 1.6))
    policy = NeuOSBalanced(
        clock_table, tables, CoordinatorConfig(), workers=3, interference=(1.0,)
    )
    seen = set()
    lags = set()
    for _ in range(600):
        before = [(m.active, m.started, m.stage, m.stages_done) for m in walk.cohort.members]
        walk.step()
        deciding = walk.cohort.deciding
        for number, member in enumerate(walk.cohort.members):
            active, started, stage, done = before[number]
            if not active and member.active:
                assert (member.started, member.stage) == (False, 0)
                assert deciding == number
            if member.stages_done > done:
                assert active
                assert started
                assert member.stages_done == done + 1
                assert member.stage == stage + 1
                assert member.last_stage is not None
                assert member.last_stage.stage == stage
                if member.stage == 3:
                    assert deciding == -1
                    assert member.last_frame is not None
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
    def state(walk):
        return [walk.now_ns, [(m.lag_ns, m.stages_done, m.stage) for m in walk.cohort.members]]

    assert state(walk_with(None, 200)) == state(walk_with(None, 200))
    assert state(walk_with(None, 200)) != state(walk_with(None, 200, seed=1))


def test_figures_of_both_boards():
    policies = "static,neuos_max_accuracy"
    _, result = benches.run("decide", f"--hull --decisions 60 --policies {policies}")
    assert result["cohort"] == 8
    assert result["decisions"] == 60
    rows = result["policies"]
    assert list(rows) == ["static", "neuos_max_accuracy"]
    for row in rows.values():
        for figures in row["decision_us"].values():
            assert 0.0 < figures["p50"] <= figures["p99"] <= figures["max"]
        slowest = max(figures["p99"] for figures in row["decision_us"].values())
        flat = max(row["ratio"].values()) <= decide.RATIO_BAR
        assert row["passed"] == (flat and slowest <= decide.P99_BAR_US)
    assert result["passed"] == all(row["passed"] for row in rows.values())


def test_a_decision_that_changes_clocks_is_heeded_where_the_policy_may():
    walk = walk_with(None, 0)
    walk.step()
    deciding = walk.cohort.deciding
    policy = NeuOSBalanced(
        walk.cohort.clock_table,
        [member.table for member in walk.cohort.members],
        CoordinatorConfig(),
        workers=3,
        interference=(1.0,),
    )
    walk.apply(policy, Decision((0, 0, 0), 0))
    assert walk.cohort.clocks_target == 0
    assert walk.cohort.clocks == 2
    member = walk.cohort.members[deciding]
    member.stage = 1  # in the middle of a frame
    walk.apply(policy, Decision((0, 0, 0), 1))
    assert walk.cohort.clocks_target == 0
