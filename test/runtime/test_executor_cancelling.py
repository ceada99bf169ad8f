# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stages that are told to end: hopeless ones, for others, of a task that leaves, hanging ones."""

import threading

import pytest
from executor_bench import MS, Bench, CancellableRun

from jetson_dnn_rt.safety.faults import FAULTS
from jetson_dnn_rt.tasks import Outcome


class Cancelling(Bench):
    """A bench whose task `a` has one frame, released at 0: its network, then 1 ms of decoding."""

    def begin(self, run_ms, deadline_ms, until_ms, *, latency_ms=0.0, replaced=None, **options):
        """Run it until some time; `replaced` are functions in place of the network's own."""
        run = CancellableRun(self.clock, run_ms, latency_ms)
        vars(run).update(replaced or {})
        self.add_cancellable("a", deadline_ms, 10, run, **options)
        self.executor.start()
        self.submit("a", 0)
        self.run_to(until_ms)
        return run


@pytest.fixture
def bench():
    return Cancelling()


def test_a_hopeless_stage_is_told_to_end_and_the_next_job_runs(bench):
    bench.add("other", 100, 5)
    run = bench.begin(50, 20, 1, latency_ms=0.5)
    bench.submit("other", 0)
    bench.run_to(100)
    slow, other = bench.finish()
    # Its decoder takes 1 ms, its deadline is at 20 ms.
    assert run.asks == [pytest.approx(19, abs=1e-5)]
    assert (slow.outcome, slow.reason) == (Outcome.ABORTED, "cancelled")
    assert slow.cancelled_ns == slow.completion_ns == 19 * MS + 1 + MS // 2
    assert (other.outcome, other.start_ns) == (Outcome.MET, slow.completion_ns)


def test_a_stage_in_time_is_left_alone(bench):
    run = bench.begin(19, 20, 100)
    [record] = bench.finish()
    assert (record.outcome, run.asks) == (Outcome.MET, [])


def test_one_that_starts_later_may_be_hopeless_earlier():
    """The watchdog had planned to look at the first one's time."""
    bench = Cancelling(workers=2)
    short = CancellableRun(bench.clock, 500)
    bench.add_cancellable("short", 20, 10, short)
    long = bench.begin(500, 300, 10)
    bench.submit("short", 0)
    bench.run_to(400)
    assert [record.task for record in bench.finish()] == ["short", "a"]
    assert short.asks == [pytest.approx(29, abs=1e-5)]
    assert long.asks == [pytest.approx(299, abs=1e-5)]


def test_one_that_does_not_listen_is_told_again_and_again(bench):
    deaf = {"run": lambda work: bench.clock.sleep_until_ns(60 * MS)}
    run = bench.begin(500, 20, 100, replaced=deaf)
    [record] = bench.finish()
    assert [round(time_ms) for time_ms in run.asks] == [19, 20, 22, 26, 34, 50]
    # It ended by itself then, as if it could not be cancelled.
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "budget")
    assert record.cancelled_ns == 0


# -- for a more urgent frame ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "outcome", "asks", "cancelled_ns"),
    [(True, Outcome.MET, [3.0], 3 * MS + MS // 2), (False, Outcome.SKIPPED, [], 0)],
)
def test_a_stage_makes_room_and_begins_again(rule, outcome, asks, cancelled_ns):
    """Its network would end at 10, its rest at 11; `urgent` ends at 5.5 instead."""
    bench = Cancelling(cancels_for_urgent=rule)
    bench.add("urgent", 5, 2)
    run = bench.begin(10, 100, 3, latency_ms=0.5, cancel_latencies_ns={"v": [MS // 2]})
    bench.submit("urgent", 0)
    bench.run_to(100)
    urgent, long = bench.finish()
    assert (urgent.task, urgent.outcome, run.asks) == ("urgent", outcome, asks)
    assert (long.outcome, long.cancelled_ns) == (Outcome.MET, cancelled_ns)
    begun_ns = urgent.completion_ns if rule else 0
    assert begun_ns == (5 * MS + MS // 2 if rule else 0)
    assert [stage.start_ns for stage in long.stages] == [begun_ns, begun_ns + 10 * MS]


def test_a_latency_is_learned_when_a_hopeless_stage_ends(bench):
    bench.begin(50, 20, 100, latency_ms=0.5)
    assert bench.executor.snapshot("a").cancel_ms == {"v": 0.5}
    bench.finish()


# -- tasks that leave ----------------------------------------------------------------------------


def test_a_task_that_leaves_does_not_wait_for_its_stage(bench):
    run = bench.begin(5000, 10_000, 3)

    def remove():
        bench.executor.remove_task("a")
        bench.clock.leave()

    bench.clock.participate()
    remover = threading.Thread(target=remove)
    remover.start()
    bench.run_to(20)
    remover.join(60)
    [record] = bench.finish()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "deactivated")
    assert (record.completion_ns, run.asks) == (3 * MS, [3.0])


def test_the_end_does_not_wait_for_a_stage_either(bench):
    bench.begin(5000, 10_000, 3)
    [record] = bench.finish()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "shutdown")
    assert record.completion_ns == 3 * MS


# -- hanging stages ------------------------------------------------------------------------------


def test_a_hanging_stage_that_listens_costs_no_worker(bench, caplog):
    """Its frame fails, and the variant is blamed; nothing is restarted."""
    bench.begin(10_000, 10_000, 100, latency_ms=1, stage_timeout_ns=50 * MS)
    bench.submit("a", 1)
    bench.run_to(200)
    snapshot = bench.executor.snapshot("a")
    records = bench.finish()
    assert (snapshot.hangs, snapshot.suspended) == (0, "")
    assert [r.completion_ns for r in records] == [51 * MS, 151 * MS]
    assert {r.outcome for r in records} == {Outcome.FAILED}
    assert records[0].reason == "stage inference of v hangs: ended after 0.051 s"
    assert "stage inference of v hangs" in caplog.text


def test_a_hanging_stage_that_does_not_listen_is_given_up(bench):
    bench.begin(500, 10_000, 1000, replaced={"run": bench.hang}, stage_timeout_ns=50 * MS)
    snapshot = bench.executor.snapshot("a")
    [record] = bench.finish()
    assert (snapshot.hangs, snapshot.suspended[:6]) == (1, "stage ")
    assert (record.outcome, record.completion_ns) == (Outcome.FAILED, 300 * MS)
    assert record.reason == "stage inference of v hangs: still running after 0.05 s"


def test_a_cancel_that_raises_is_noted_and_the_stage_ends_by_itself(bench):
    def broken():
        raise OSError("the device is gone")

    bench.begin(30, 20, 100, replaced={"cancel": broken})
    [record] = bench.finish()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "budget")
    assert [fault.kind for fault in FAULTS.snapshot()] == ["cancelling a stage: OSError"]
