# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The executor on the virtual clock: real threads, exact times; and its ways to fail."""

import itertools
import threading

import pytest
from executor_bench import MS, PLAIN, Bench, frame, parameters

from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.runtime import executor as executor_module
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.verdict_watch import judge_tasks
from jetson_dnn_rt.scheduling.analysis import Estimate
from jetson_dnn_rt.tasks import Outcome, Stage, stage_name


@pytest.fixture
def bench():
    return Bench()


def test_times_are_exact(bench):
    bench.add("a", 20, 4, 6)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(50)
    [record] = bench.finish()
    assert record.outcome is Outcome.MET
    assert [(s.start_ns, s.end_ns) for s in record.stages] == [(0, 4 * MS), (4 * MS, 10 * MS)]
    assert record.overhead_ns == 0


def test_threads_preempt_at_boundaries_like_the_engine(bench):
    bench.add("long", 100, 10, 10)
    bench.add("urgent", 25, 10)
    bench.executor.start()
    bench.submit("long", 0)
    bench.run_to(3)
    bench.submit("urgent", 0)
    bench.run_to(100)
    urgent, long = bench.finish()
    assert (urgent.task, urgent.start_ns, urgent.waiting_ns) == ("urgent", 10 * MS, 7 * MS)
    assert [stage.start_ns for stage in long.stages] == [0, 20 * MS]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_frame_without_a_result_is_reported_with_the_next_event(bench, arrives):
    stages = [bench.stage("s0", 12), bench.stage("s1", 20)]
    times = {"warm_up_times_ns": {"v": [(10 * MS, 20 * MS)]}}
    bench.add_stages(parameters("long", 100, ("s0", "s1")), {"v": stages}, **times)
    bench.add("short", 15, 5)
    reported = threading.Event()
    bench.executor.add_observer(lambda record, work: reported.set())
    bench.executor.start()
    bench.submit("long", 0)
    bench.run_to(1)
    bench.submit("short", 0)
    bench.run_to(13)
    # It was hopeless at 12 ms, in a boundary after which the worker went on.
    assert bench.executor.snapshot("short").outcomes[Outcome.SKIPPED] == 1
    assert bench.executor._shared.delivery.wait(5.0)  # what was handed over until then
    assert not reported.is_set()
    if arrives:
        bench.submit("short", 1)
    else:
        bench.run_to(32)
    assert reported.wait(5.0)
    bench.run_to(60)
    first = bench.finish()[0]
    assert (first.task, first.sequence, first.completion_ns) == ("short", 0, 12 * MS)
    assert first.reason == "budget"


def test_fifo_does_not(bench):
    bench = Bench(discipline="fifo")
    bench.add("long", 100, 10, 10)
    bench.add("late", 100, 10)
    bench.add("urgent", 35, 10)
    bench.executor.start()
    bench.submit("long", 0)
    bench.run_to(1)
    bench.submit("late", 0)
    bench.run_to(2)
    bench.submit("urgent", 0)
    bench.run_to(100)
    assert [r.task for r in bench.finish()] == ["late", "urgent", "long"]


def test_two_workers_overlap():
    bench = Bench(workers=2)
    bench.add("a", 20, 10)
    bench.add("b", 20, 10)
    bench.executor.start()
    bench.submit("a", 0)
    bench.submit("b", 0)
    bench.run_to(50)
    assert [r.completion_ns for r in bench.finish()] == [10 * MS, 10 * MS]


@pytest.mark.parametrize("started", [True, False])
def test_workers_may_become_more_until_there_is_a_task(bench, started):
    if started:
        bench.executor.start()
    bench.executor.set_workers(2)
    if not started:
        bench.executor.start()
    with pytest.raises(ValueError, match=r"cannot become 1: 2, tasks: \[\]"):
        bench.executor.set_workers(1)
    bench.add("a", 20, 10)
    bench.add("b", 20, 10)
    with pytest.raises(ValueError, match=r"cannot become 3: 2, tasks: \['a', 'b'\]"):
        bench.executor.set_workers(3)
    assert judge_tasks(bench.executor).schedulable
    bench.submit("a", 0)
    bench.submit("b", 0)
    bench.run_to(50)
    assert [r.completion_ns for r in bench.finish()] == [10 * MS, 10 * MS]


def test_a_worker_takes_the_next_frame_while_the_last_is_delivered(bench):
    """Delivery is told, not waited for; a stage may submit its task's next frame."""
    let_go, ran = threading.Event(), []

    def run(work):
        bench.clock.sleep_until_ns(bench.clock.now_ns() + MS)
        ran.append(bench.clock.now_ns() // MS)
        if len(ran) < 5:
            bench.executor.submit("a", frame(len(ran)), bench.clock.now_ns())

    bench.add_stages(parameters("a", 100), run)
    bench.executor.add_observer(lambda record, work: let_go.wait(60.0))
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(10)
    assert ran == [1, 2, 3, 4, 5]
    let_go.set()
    records = bench.finish()
    assert [r.outcome for r in records] == 5 * [Outcome.MET]
    assert [r.overhead_ns for r in records] == 5 * [0]


def test_a_frame_behind_another_of_its_task_wakes_nobody(monkeypatch):
    bench = Bench(workers=2)
    bench.add("a", 100, 5)
    bench.executor.start()
    woken = []
    condition = bench.executor._shared.condition
    notify_all = condition.notify_all
    monkeypatch.setattr(condition, "notify_all", lambda: (woken.append(1), notify_all()))
    bench.submit("a", 0)
    assert len(woken) == 1
    bench.run_to(1)
    bench.submit("a", 1)
    assert len(woken) == 1
    bench.run_to(20)
    assert [(r.outcome, r.completion_ns) for r in bench.finish()] == [
        (Outcome.MET, 5 * MS),
        (Outcome.MET, 10 * MS),
    ]


def test_frames_submitted_before_the_start_wait_for_it(bench):
    bench.add("a", 20, 4)
    bench.submit("a", 0)
    bench.executor.start()
    bench.run_to(50)
    assert [r.outcome for r in bench.finish()] == [Outcome.MET]


def test_stop_accounts_for_every_frame(bench):
    bench.add("a", 100, 10, 10)
    bench.executor.start()
    for sequence in range(2):
        bench.submit("a", sequence)
    stopper = threading.Thread(target=bench.executor.stop)
    stopper.start()
    while not bench.executor.snapshot("a").suspended:
        threading.Event().wait(0.001)
    bench.run_to(50)
    stopper.join(5)
    assert [(r.sequence, r.outcome.value, r.reason) for r in bench.records] == [
        (1, "skipped", "shutdown"),
        (0, "aborted", "shutdown"),
    ]


def test_a_raising_stage_fails_its_frame_only(bench):
    def raise_on_first(work):
        if work.frame.sequence == 0:
            raise RuntimeError("no memory left")

    bench.add_stages(parameters("a", 10), raise_on_first)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(1)
    bench.submit("a", 1)
    bench.run_to(2)
    first, second = bench.finish()
    assert (first.outcome, first.reason) == (Outcome.FAILED, "RuntimeError: no memory left")
    assert second.outcome is Outcome.MET


def test_bad_frames_do_not_withdraw_a_variant_but_errors_do(bench, caplog):
    def refuse(work):
        raise FrameError("encoding yuv16 is not known")

    def break_down(work):
        raise RuntimeError("driver gone")

    for name, stage in [("frames", refuse), ("variants", break_down)]:
        bench.add_stages(
            parameters(name, 10, variants=("v", "w")),
            {"v": [Stage("only", stage)], "w": [Stage("only", lambda work: None)]},
        )
    bench.executor.start()
    for sequence in range(3):
        for name in ("frames", "variants"):
            bench.submit(name, sequence)
        bench.run_to(sequence + 1)
    assert bench.executor.snapshot("frames").withdrawn == {}
    assert bench.executor.snapshot("variants").withdrawn == {"v": "RuntimeError: driver gone"}
    assert bench.executor.snapshot("variants").parameters.variant == "w"
    assert "variant v of task variants is withdrawn" in caplog.text
    bench.finish()


def test_the_watchdog_fails_a_hung_stage_and_restarts_the_task(bench, caplog):
    bench.add("other", 1000, 1)
    bench.add_stages(
        parameters("a", 1000),
        bench.hang,
        restart=lambda: {"v": [bench.stage("only", 3)]},
        stage_timeout_ns=50 * MS,
    )
    bench.executor.start()
    bench.run_to(7)
    bench.submit("a", 0)
    bench.run_to(10)
    bench.submit("a", 1)
    bench.run_to(56)
    assert bench.records == []
    bench.run_to(57)
    bench.submit("a", 2)
    bench.submit("other", 0)
    bench.run_to(100)
    hung, waiting, after, other = sorted(bench.finish(), key=lambda r: (r.task, r.sequence))
    assert (hung.outcome, hung.completion_ns) == (Outcome.FAILED, 57 * MS)
    assert hung.reason == "stage only of v hangs: still running after 0.05 s"
    assert (waiting.outcome, waiting.reason) == (Outcome.SKIPPED, "restarting")
    assert (after.outcome, after.execution_time_ns) == (Outcome.MET, 3 * MS)
    assert other.outcome is Outcome.MET
    assert "task a was restarted" in caplog.text


def test_variants_come_back_in_other_runs_of_stages_or_not_at_all(bench):
    names = ("first", "second", "third")
    stages = [bench.stage(name, 1) for name in names]
    hung = Stage("second", bench.hang)
    together = Stage(stage_name(names, 1, 2), stages[1].run, span=2)
    bench.add_stages(
        parameters("a", 1000, names, ("v", "w", "x")),
        {"v": [stages[0], hung, stages[2]], "w": stages, "x": stages},
        warm_up_times_ns={variant: [(MS, MS, MS)] for variant in "vwx"},
        restart=lambda: {"v": [stages[0], together], "x": stages},
        stage_timeout_ns=50 * MS,
    )
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(60)
    snapshot = bench.executor.snapshot("a")
    assert snapshot.suspended == ""
    assert snapshot.withdrawn == {"w": "it could not be rebuilt"}
    assert snapshot.budgets_ms["v"] == (0.0, 0.0, 0.0)  # to be learned again
    assert snapshot.budgets_ms["x"] == (1.0, 1.0, 1.0)
    bench.submit("a", 1)
    bench.run_to(70)
    _, again = bench.finish()
    assert again.outcome is Outcome.MET
    assert [stage.name for stage in again.stages] == ["first", together.name]


def test_removing_a_task_delivers_its_last_records(bench):
    bench.add("a", 100, 10)
    bench.add("b", 100, 10)
    bench.executor.start()
    bench.submit("b", 0)
    bench.submit("a", 0)
    bench.executor.remove_task("a")
    assert [(r.task, r.reason) for r in bench.records] == [("a", "deactivated")]
    with pytest.raises(KeyError):
        bench.executor.snapshot("a")
    bench.run_to(50)
    assert [r.task for r in bench.finish()] == ["a", "b"]


def test_a_broken_observer_is_reported_once_and_stops_nobody(bench, caplog):
    seen = []
    bench.add("a", 100, 1)

    def broken(record, work):
        raise ValueError("disk full")

    bench.executor.add_observer(broken)
    bench.executor.add_observer(lambda record, work: seen.append(record.sequence))
    bench.executor.start()
    for sequence in range(3):
        bench.submit("a", sequence)
        bench.run_to(10 * (sequence + 1))
    bench.finish()
    assert seen == [0, 1, 2]
    assert caplog.text.count("an observer of task a failed") == 1


def test_snapshot_and_verdict(bench):
    bench.add("a", 20, 4, 6)
    bench.add("b", 20, 10)
    bench.executor.start()
    bench.executor.reject("a", frame(0), 0, "truncated")
    snapshot = bench.executor.snapshot("a")
    assert snapshot.budgets_ms == {"v": (4.0, 6.0)}
    assert (snapshot.released, snapshot.outcomes[Outcome.FAILED]) == (1, 1)
    assert snapshot.reasons == {"truncated": 1}
    verdict = judge_tasks(bench.executor)
    assert (verdict.schedulable, verdict.utilization) == (True, 1.0)
    bench.finish()


def test_the_cpu_time_of_a_stage_stands_beside_its_wall_time(bench, monkeypatch):
    """D5: 10 ms of a stage that had a core for 4 of them looked like 10 ms of work."""
    readings = itertools.count(0, 4 * MS)
    monkeypatch.setattr(executor_module, "read_thread_ns", lambda: next(readings))
    bench.add("a", 30, 10, 6)
    bench.executor.start()
    assert bench.executor.snapshot("a").stage_ms == {}
    bench.submit("a", 0)
    bench.run_to(30)
    assert bench.executor.snapshot("a").stage_ms == {"v": {"s0": (10.0, 4.0), "s1": (6.0, 4.0)}}
    # Means of about the last second at 30 Hz.
    monkeypatch.setattr(executor_module, "read_thread_ns", lambda: 0)
    bench.submit("a", 1)
    bench.run_to(60)
    (wall_ms, cpu_ms), _ = bench.executor.snapshot("a").stage_ms["v"].values()
    assert (wall_ms, cpu_ms) == (10.0, 4.0 * 31 / 32)
    bench.finish()


def test_the_verdict_rests_on_the_times_of_the_longest_stage(bench):
    bench.add("a", 20, 4, 26)
    verdict = judge_tasks(bench.executor)
    assert verdict.decided_by.estimate == Estimate("s1", 26 * MS, 0.99, 1, 26 * MS)
    bench.finish()


def test_stages_must_be_named_as_declared(bench):
    with pytest.raises(ValueError, match="stages of variant 'v' of task 'a'"):
        bench.executor.add_task(
            parameters("a", 10, ("x",)), {"v": [bench.stage("y", 1)]}, lambda record, work: None
        )


def test_real_clock_end_to_end():
    """The steady clock: wait_idle returns when every record was delivered."""
    executor = Executor(realtime=PLAIN)
    records = []
    executor.add_task(
        parameters("a", 5000),
        {"v": [Stage("only", lambda work: None)]},
        lambda record, work: records.append((record, work.frame.sequence)),
    )
    executor.start()
    for sequence in range(20):
        executor.submit("a", frame(sequence), 0)
    assert executor.wait_idle(5.0)
    assert sorted(sequence for _, sequence in records) == list(range(20))
    assert executor.stop(5.0)


def test_shorter_deadlines_are_higher_classes(bench):
    """Works carry the deadline class of their task, by which a GPU chooses between streams."""
    seen = {}

    def add(name, deadline_ms):
        task = parameters(name, deadline_ms)
        bench.add_stages(task, lambda work: seen.update({name: work.urgency}))

    def classes():
        seen.clear()
        bench.submit(list(bench.executor._shared.tasks), 0)
        return seen

    bench.executor.start()
    add("slow", 90_000)
    assert classes() == {"slow": 0}
    add("fast", 10_000)
    add("middle", 40_000)
    add("also fast", 10_000)
    assert classes() == {"slow": 0, "middle": 1, "fast": 2, "also fast": 2}
    bench.executor.update("slow", deadline_ns=5_000 * MS)
    assert classes() == {"middle": 0, "fast": 1, "also fast": 1, "slow": 2}
    bench.executor.remove_task("middle")
    assert classes() == {"fast": 0, "also fast": 0, "slow": 1}
    bench.finish()
