# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Stages that are told to end: hopeless ones, those of a task that leaves, hanging ones."""

import threading

import pytest
from executor_bench import MS, Bench, CancellableRun

from jetson_dnn_rt.tasks import Outcome


@pytest.fixture
def bench():
    return Bench()


def test_a_hopeless_stage_is_told_to_end_and_the_next_job_runs(bench):
    run = CancellableRun(bench.clock, 50, latency_ms=0.5)
    bench.add_cancellable("slow", 20, 10, run)
    bench.add("other", 100, 5)
    bench.executor.start()
    bench.submit("slow", 0)
    bench.run_to(1)
    bench.submit("other", 0)
    bench.run_to(100)
    slow, other = bench.finish()
    # Its decoder takes 1 ms, its deadline is at 20 ms.
    assert run.asks == [pytest.approx(19, abs=1e-5)]
    assert (slow.outcome, slow.reason) == (Outcome.ABORTED, "cancelled")
    assert slow.cancelled_ns == slow.completion_ns == 19 * MS + 1 + MS // 2
    assert (other.outcome, other.start_ns) == (Outcome.MET, slow.completion_ns)


def test_a_stage_in_time_is_left_alone(bench):
    run = CancellableRun(bench.clock, 19)
    bench.add_cancellable("a", 20, 10, run)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(100)
    [record] = bench.finish()
    assert (record.outcome, run.asks) == (Outcome.MET, [])


def test_one_that_starts_later_may_be_hopeless_earlier(bench):
    """The watchdog had planned to look at the first one's time."""
    bench = Bench(workers=2)
    runs = [CancellableRun(bench.clock, 500) for _ in range(2)]
    bench.add_cancellable("long", 300, 100, runs[0])
    bench.add_cancellable("short", 20, 10, runs[1])
    bench.executor.start()
    bench.submit("long", 0)
    bench.run_to(10)
    bench.submit("short", 0)
    bench.run_to(400)
    short, long = bench.finish()
    assert [r.task for r in (short, long)] == ["short", "long"]
    assert runs[1].asks == [pytest.approx(29, abs=1e-5)]
    assert runs[0].asks == [pytest.approx(299, abs=1e-5)]


def test_one_that_does_not_listen_is_told_again_and_again(bench):
    run = CancellableRun(bench.clock, 500)
    deaf = run.run
    run.run = lambda work: bench.clock.sleep_until_ns(bench.clock.now_ns() + 60 * MS)
    bench.add_cancellable("a", 20, 10, run)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(100)
    [record] = bench.finish()
    assert deaf is not run.run
    assert [round(time_ms) for time_ms in run.asks] == [19, 20, 22, 26, 34, 50]
    # It ended by itself then, as if it could not be cancelled.
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "budget")
    assert record.cancelled_ns == 0


def test_a_task_that_leaves_does_not_wait_for_its_stage(bench):
    run = CancellableRun(bench.clock, 5000)
    bench.add_cancellable("a", 10_000, 10, run)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(3)

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
    run = CancellableRun(bench.clock, 5000)
    bench.add_cancellable("a", 10_000, 10, run)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(3)
    [record] = bench.finish()
    assert (record.outcome, record.reason, record.completion_ns) == (
        Outcome.ABORTED,
        "shutdown",
        3 * MS,
    )


def test_a_hanging_stage_that_listens_costs_no_worker(bench, caplog):
    """Its frame fails, and the variant is blamed; nothing is restarted."""
    run = CancellableRun(bench.clock, 10_000, latency_ms=1)
    bench.add_cancellable("a", 10_000, 10, run, stage_timeout_ns=50 * MS)
    bench.executor.start()
    for sequence in range(2):
        bench.submit("a", sequence)
        bench.run_to(100 * (sequence + 1))
    snapshot = bench.executor.snapshot("a")
    records = bench.finish()
    assert (snapshot.hangs, snapshot.suspended) == (0, "")
    assert [r.completion_ns for r in records] == [51 * MS, 151 * MS]
    assert {r.outcome for r in records} == {Outcome.FAILED}
    assert records[0].reason == "stage inference of v hangs: ended after 0.051 s"
    assert "stage inference of v hangs" in caplog.text


def test_a_hanging_stage_that_does_not_listen_is_given_up(bench):
    run = CancellableRun(bench.clock, 500)
    run.run = bench.hang
    bench.add_cancellable("a", 10_000, 10, run, stage_timeout_ns=50 * MS)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(1000)
    snapshot = bench.executor.snapshot("a")
    [record] = bench.finish()
    assert (snapshot.hangs, snapshot.suspended[:6]) == (1, "stage ")
    assert (record.outcome, record.completion_ns) == (Outcome.FAILED, 300 * MS)
    assert record.reason == "stage inference of v hangs: still running after 0.05 s"


def test_a_cancel_that_raises_is_noted_and_the_stage_given_up_in_the_end(bench):
    from jetson_dnn_rt.safety.faults import FAULTS

    run = CancellableRun(bench.clock, 30)

    def broken():
        raise OSError("the device is gone")

    run.cancel = broken
    bench.add_cancellable("a", 20, 10, run)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(100)
    [record] = bench.finish()
    assert (record.outcome, record.reason) == (Outcome.ABORTED, "budget")
    assert [fault.kind for fault in FAULTS.snapshot()] == ["cancelling a stage: OSError"]
