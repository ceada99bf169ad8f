# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What hangs or raises in the executor costs what it hits, and is said; on the virtual clock."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from executor_bench import HANG_NS, MS, PLAIN, Bench, frame, parameters
from raising import RaisingSelector, Saboteur, SpoiledEngine, spoil_engine

from jetson_dnn_rt.errors import NotAnsweringError, StillRunningError
from jetson_dnn_rt.runtime import executor as executor_module
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.supervision import MAX_HUNG, MAX_TASK_RETRIED, WATCH_NS
from jetson_dnn_rt.runtime.task_entry import RETRY_NS, Restarts
from jetson_dnn_rt.safety.faults import FAULTS, Pulse, start_thread
from jetson_dnn_rt.scheduling.selection import StaticSelector
from jetson_dnn_rt.tasks import Outcome, Stage

S = 1000
"""Milliseconds."""


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.executor.stop(5.0)
    bench.clock.run_until(HANG_NS)


class Hanging:
    """A task whose stage hangs in every frame, until it is let go."""

    def __init__(self, bench, name="a", options=None, hangs=True):
        self.bench, self.name, self.hangs = bench, name, hangs
        self.restarts_ns = []
        self.returned = []
        bench.add_stages(
            parameters(name, S),
            self.run,
            stage_timeout_ns=50 * MS,
            **{"restart": self.restart, **(options or {})},
        )

    def run(self, work):
        if self.hangs:
            self.bench.clock.sleep_until_ns(HANG_NS)
            self.returned.append(work.frame.sequence)

    def restart(self):
        self.restarts_ns.append(self.bench.clock.now_ns())
        return {"v": [Stage("only", self.run)]}

    def frames(self, begin_ms, end_ms, step_ms):
        """A frame every so often."""
        for sequence, time_ms in enumerate(range(begin_ms, end_ms, step_ms)):
            self.bench.run_to(time_ms)
            self.bench.submit(self.name, sequence)
        self.bench.run_to(end_ms)

    @property
    def snapshot(self):
        return self.bench.executor.snapshot(self.name)


def count_workers():
    return sum(t.name.startswith("rt-worker") for t in threading.enumerate())


def check_counts(snapshot):
    assert sum(snapshot.outcomes.values()) == snapshot.released


# -- hangs -------------------------------------------------------------------------------------


def test_a_stage_that_always_hangs_is_restarted_three_times_then_suspended(bench, caplog):
    """EDGES 7: with pauses between, then ERROR with what to do; threads stay bounded."""
    before = count_workers()
    bench.add("other", 100, 1)
    task = Hanging(bench)
    bench.executor.start()
    task.frames(0, 60 * S, 20)
    assert task.restarts_ns == [50 * MS, 1110 * MS, 11170 * MS]
    assert task.snapshot.hangs == 4
    assert count_workers() - before == 1 + 4
    text = task.snapshot.suspended
    assert "stage only of v hangs: still running after 0.05 s; it hung 4 times" in text
    assert "at most 3 times in 10 minutes; 4 of its threads still hang" in text
    assert "a/enable with data: true" in text
    assert caplog.text.count("task a is suspended") == 1
    check_counts(task.snapshot)
    assert set(task.snapshot.reasons) == {"failed: stage only of v: hangs", "restarting", "hung"}
    # Two hours later it is as it was, and the other task never noticed.
    task.frames(60 * S, 7200 * S, 100 * S)
    assert len(task.restarts_ns) == 3
    bench.submit("other", 0)
    bench.run_to(7201 * S)
    assert bench.executor.snapshot("other").outcomes[Outcome.MET] == 1
    bench.finish()


def test_a_suspended_task_is_tried_again_when_somebody_asks(bench):
    """EDGES 7: the service's call forgets what was; too many hanging threads refuse it."""
    task = Hanging(bench)
    bench.executor.start()
    assert bench.executor.supervisor.retry("a") == ""
    task.frames(0, 30 * S, 20)
    assert "hung 4 times" in task.snapshot.suspended
    assert bench.executor.supervisor.retry("a") == "task a is being restarted"
    bench.clock.settle()
    bench.run_to(30 * S + 1)
    assert task.snapshot.suspended == ""
    task.hangs = False
    bench.submit("a", 0)
    bench.run_to(31 * S)
    assert task.snapshot.outcomes[Outcome.MET] == 1
    task.hangs = True
    task.frames(31 * S, 60 * S, 20)
    assert task.snapshot.hangs == MAX_HUNG - 3  # four of its own hang: no restart by itself
    assert "5 of its threads still hang" in task.snapshot.suspended
    task.frames(60 * S, 100 * S, 20)
    assert bench.executor.supervisor.retry("a") == "task a is being restarted"
    task.frames(100 * S, 200 * S, 20)
    with pytest.raises(StillRunningError, match="6 threads hang in stages, 6 of them of task a"):
        bench.executor.supervisor.retry("a")
    assert task.snapshot.hangs == MAX_TASK_RETRIED
    assert "then restart this process: 6 threads hang" in task.snapshot.suspended
    check_counts(task.snapshot)
    bench.finish()
    assert len(task.returned) == MAX_TASK_RETRIED


def ask(bench, name="a"):
    """Call `~/enable` with true; gives what the caller reads."""
    try:
        return bench.executor.supervisor.retry(name)
    except StillRunningError as error:
        return str(error)


def test_whoever_asks_all_the_time_leaves_threads_for_the_other_tasks(bench):
    """`~/enable` ten times a second for ten minutes; another task that hangs once goes on."""
    before = count_workers()
    task, other = Hanging(bench), Hanging(bench, "other", hangs=False)
    bench.executor.start()
    replies = Counter()
    for sequence, time_ms in enumerate(range(0, 600 * S, 100)):
        bench.run_to(time_ms)
        bench.submit("a", sequence)
        replies[ask(bench)] += 1
    assert replies["task a is being restarted"] == 2
    assert task.snapshot.hangs == MAX_TASK_RETRIED
    assert count_workers() - before == 1 + MAX_TASK_RETRIED
    assert any(
        "try again when one has returned, or restart this process" in text for text in replies
    )
    other.hangs = True
    bench.submit("other", 0)
    bench.run_to(601 * S)
    other.hangs = False
    assert (other.snapshot.hangs, other.snapshot.suspended) == (1, "")
    bench.submit("other", 1)
    bench.run_to(602 * S)
    assert other.snapshot.outcomes[Outcome.MET] == 1
    bench.finish()


def test_a_task_is_started_anew_by_hand_once_a_minute(bench):
    """Also where no thread hangs; the answer says in how many seconds."""

    def fail():
        raise RuntimeError("no device")

    task = Hanging(bench, options={"restart": fail})
    bench.add("other", 1000, 1)
    bench.executor.start()
    task.frames(0, S, 200)
    suspended = "restart failed: no device; call a/enable with data: true to try again"
    assert task.snapshot.suspended == suspended
    bench.submit("other", 0)
    assert ask(bench) == "task a is being restarted"
    bench.clock.settle()
    bench.run_to(31 * S)
    assert task.snapshot.suspended == suspended
    assert bench.executor.snapshot("other").outcomes[Outcome.MET] == 1
    assert ask(bench) == "task a was restarted less than a minute ago: try again in 30 s"
    bench.run_to(61 * S)
    assert RETRY_NS == 60 * S * MS
    assert ask(bench) == "task a is being restarted"
    bench.clock.settle()
    bench.finish()


def test_hangs_now_and_then_do_not_suspend_a_task_but_never_pile_up():
    """EDGES 7: three in ten minutes are forgiven after ten minutes."""
    restarts = Restarts()
    minute = 60 * 10**9
    assert [restarts.plan(m * minute) for m in (0, 5, 9, 11, 16)] == 5 * [True]
    assert restarts.due_ns == 16 * minute + 10**10  # the third of the last ten minutes
    assert not restarts.plan(17 * minute)
    assert restarts.due_ns is None
    restarts.forgive(17 * minute)
    assert (restarts.due_ns, restarts.hangs) == (17 * minute, 0)


def test_a_stage_that_comes_back_frees_its_thread_and_what_it_used(bench):
    """EDGES 7: nothing is closed while a thread is in it, and it is when the thread returns."""
    before = count_workers()
    closed = []
    release = threading.Event()

    def hang(work):
        bench.clock.leave()
        release.wait(30)
        bench.clock.participate()

    def restart():
        bench.executor.supervisor.when_unused(
            "a", lambda: closed.append(threading.current_thread().name)
        )
        return {"v": [bench.stage("only", 3)]}

    bench.add_stages(parameters("a", S), hang, restart=restart, stage_timeout_ns=50 * MS)
    bench.executor.start()
    bench.executor.submit("a", frame(0), 0)
    bench.run_to(100)
    bench.submit("a", 1)
    bench.run_to(200)
    assert (bench.executor.snapshot("a").hangs, closed) == (1, [])
    release.set()
    while count_workers() > before + 1 or not closed:
        threading.Event().wait(0.001)
    assert closed == ["rt-give-back"]
    assert bench.executor.snapshot("a").hangs == 0
    assert bench.executor.supervisor.when_unused("a", lambda: closed.append("at once"))
    assert closed[1] == "at once"
    assert [r.outcome for r in bench.finish()] == [Outcome.FAILED, Outcome.MET]


# -- exceptions --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["release", "next", "boundary", "take_endings", "has_ready"])
def test_one_exception_in_the_engine_does_not_end_the_worker(bench, monkeypatch, method):
    """EDGES 8: the frame that it hit fails, all others are worked on."""
    bench.add("a", 100, 1)
    engine = bench.executor._shared.engine = SpoiledEngine(bench.executor._shared.engine)
    bench.executor.start()
    saboteur = Saboteur(0, 1.0, 1)
    if method == "has_ready":
        monkeypatch.setattr(SpoiledEngine, method, property(lambda self: 1 / 0), raising=False)
        bench.executor._shared.idle += 1  # as with a second worker
    else:
        saboteur.spoil(engine, [method])
    for sequence in range(50):
        bench.submit("a", sequence)
        bench.run_to(10 * (sequence + 1))
        if method == "has_ready" and sequence == 1:
            monkeypatch.undo()
    snapshot = bench.executor.snapshot("a")
    check_counts(snapshot)
    assert snapshot.released == 50
    assert snapshot.outcomes[Outcome.MET] >= 47
    records = bench.finish()
    assert sorted(r.sequence for r in records) == list(range(50))
    assert FAULTS.snapshot()[0].kind.startswith("scheduling engine: ")


def test_a_recovery_that_raises_is_tried_again(bench):
    """Campaign of faults: the frame that the first exception hit never ended, nor the next."""
    bench.add("a", 100, 1)
    engine = bench.executor._shared.engine = SpoiledEngine(bench.executor._shared.engine)
    bench.executor.start()
    # Before the work of the call; of the recoveries the second after it.
    first, second = Saboteur(1, 1.0, 1), Saboteur(1, 1.0, 2)
    first.spoil(engine, ["boundary"])
    second.spoil(engine, ["recover"])
    for sequence in range(3):
        bench.submit("a", sequence)
        bench.run_to(10 * (sequence + 1))
    check_counts(bench.executor.snapshot("a"))
    assert (len(first.raised), len(second.raised)) == (1, 2)
    assert [r.outcome.value for r in bench.finish()] == ["failed", "met", "met"]
    counts = {fault.kind: fault.count for fault in FAULTS.snapshot()}
    assert counts["recovery of the scheduling engine: InjectedError"] == 2


@pytest.mark.parametrize("seed", range(8))
def test_every_frame_ends_once_wherever_the_engine_raises(seed):
    """EDGES 8: with real workers; afterwards everything works as on the first day."""
    bench = Bench(workers=2)
    for name in "abc":
        bench.add(name, 100, 2, 3)
    saboteur = Saboteur(seed, 0.05, 25)
    spoil_engine(bench.executor._shared.engine, saboteur)
    bench.executor.start()
    for sequence in range(100):
        bench.submit("abc"[sequence % 3], sequence)
        bench.run_to(4 * (sequence + 1))
    saboteur.limit = 0
    bench.run_to(3000)
    for number, name in enumerate("abc", 1):
        bench.submit(name, 1000)
        bench.run_to(3000 + 100 * number)
    for name in "abc":
        snapshot = bench.executor.snapshot(name)
        check_counts(snapshot)
    records = bench.finish()
    assert Counter(r.sequence for r in records) == {**dict.fromkeys(range(100), 1), 1000: 3}
    assert all(r.outcome is Outcome.MET for r in records if r.sequence == 1000)
    assert len(saboteur.raised) == 25


def test_a_selector_that_raises_is_replaced_and_said(bench, caplog):
    """EDGES 8: the worker goes on, and diagnostics name the selector."""
    bench.add("a", 100, 1)
    bench.executor.set_selector(RaisingSelector(StaticSelector(), "choose"))
    bench.executor.start()
    for sequence in range(5):
        bench.submit("a", sequence)
        bench.run_to(10 * (sequence + 1))
    assert [r.outcome for r in bench.finish()] == 5 * [Outcome.MET]
    assert "RaisingSelector raised 2 times" in bench.executor.selector_failure
    assert "RaisingSelector" in bench.executor.describe()["selector_failure"]
    assert caplog.text.count("it is set aside") == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_a_stage_may_raise_anything(bench, error):
    """EDGES 8: an exception that is no `Exception` fails its frame only, too."""

    def run(work):
        if work.frame.sequence == 0:
            raise error("out")

    bench.add_stages(parameters("a", 10), run)
    bench.executor.start()
    for sequence in range(3):
        bench.submit("a", sequence)
        bench.run_to(sequence + 1)
    assert [r.outcome.value for r in bench.finish()] == ["failed", "met", "met"]


def test_a_watchdog_that_raises_goes_on(bench, monkeypatch):
    """EDGES 8: it is noted, and what hangs is still found."""
    task = Hanging(bench)
    saboteur = Saboteur(0, 1.0, 3)
    saboteur.spoil(bench.executor.supervisor, ["_check_threads", "_give_up"])
    bench.executor.start()
    task.frames(0, 5 * S, 50)
    assert task.snapshot.hangs > 0
    check_counts(task.snapshot)
    kinds = [fault.kind for fault in FAULTS.snapshot()]
    assert "thread rt-watchdog: InjectedError" in kinds
    bench.finish()


def test_a_task_added_while_the_watchdog_plans_is_watched(bench, monkeypatch):
    """Without tasks it waits without limit, and is told of the first before it does."""
    added = []

    def add_first():  # the end of the watchdog's plan
        if not added:
            added.append(Hanging(bench))

    monkeypatch.setattr(bench.executor.supervisor, "_check_threads", add_first)
    bench.executor.start()
    bench.run_to(0)
    bench.submit("a", 0)
    bench.run_to(50)
    assert added[0].restarts_ns == [50 * MS]
    bench.finish()


def test_a_dead_worker_is_replaced_within_a_second(bench):
    """EDGES 8: also where a thread ends that nothing can keep alive."""
    bench.add("a", 100, 1)
    bench.executor.start()
    [worker] = bench.executor.supervisor.workers
    with bench.executor._shared.condition:
        worker.abandoned = True  # the thread ends without having said so
        bench.executor._shared.condition.notify_all()
    bench.run_to(1)
    bench.submit("a", 0)
    bench.run_to(3)
    worker.thread.join(10)
    bench.run_to(1001)
    bench.submit("a", 1)
    bench.run_to(1010)
    assert "rt-worker-0" not in FAULTS.dead_threads
    assert sorted(r.outcome.value for r in bench.finish()) == ["failed", "met"]


def test_a_worker_that_dies_with_a_job_and_again_while_that_is_recovered_loses_no_frame(
    bench, monkeypatch
):
    """Campaign of faults: the second exception left the job running for ever."""
    bench.add("a", 100, 1)
    executor, clock = bench.executor, bench.executor.clock
    now_ns, recover, failed = clock.now_ns, executor.supervisor.recover, []
    recovered = threading.Event()
    executor.start()
    [worker] = executor.supervisor.workers

    def fail_between_stages():
        if not failed and worker.job is not None and threading.current_thread() is worker.thread:
            failed.append("clock")
            raise OSError("no clock")
        return now_ns()

    def fail_once(error):
        failed.append("recovery")
        if failed.count("recovery") == 1:
            raise OSError("no recovery")
        recover(error)
        recovered.set()

    monkeypatch.setattr(clock, "now_ns", fail_between_stages)
    monkeypatch.setattr(executor.supervisor, "recover", fail_once)
    bench.submit("a", 0)
    assert recovered.wait(30.0)
    assert failed == ["clock", "recovery", "recovery"]
    bench.run_to(10)
    bench.submit("a", 1)
    bench.run_to(20)
    check_counts(executor.snapshot("a"))
    assert sorted(r.outcome.value for r in bench.finish()) == ["failed", "met"]


class HangingSelector(StaticSelector):
    """A policy that does not return: it is asked while the executor's lock is held."""

    def __init__(self):
        self.entered, self.let_go = threading.Event(), threading.Event()

    def released(self, state, job, now_ns):
        self.entered.set()
        assert self.let_go.wait(60.0)


def test_a_policy_that_does_not_return_is_named_and_stops_nobody_else(monkeypatch):
    """Campaign of faults: whoever asked for diagnostics, or brought a frame, hung as well."""
    monkeypatch.setattr(executor_module, "ANSWER_S", 0.01)
    monkeypatch.setattr(executor_module, "FRAME_ANSWER_S", 0.01)
    monkeypatch.setattr("jetson_dnn_rt.safety.faults.STUCK_S", 0.0)
    executor = Executor(1, realtime=PLAIN)
    records, selector = [], HangingSelector()
    executor.add_task(
        parameters("a", 10_000), {"v": [Stage("only", lambda work: None)]},
        lambda record, work: records.append(record),
    )  # fmt: skip
    executor.set_selector(selector)
    executor.start()
    first = start_thread(
        lambda: executor.submit("a", frame(0), executor.clock.now_ns()), "camera", pulse=Pulse()
    )
    assert selector.entered.wait(60.0)
    with pytest.raises(NotAnsweringError, match=r"keeps its lock: .*camera: .* s in "):
        executor.snapshot("a")
    with pytest.raises(NotAnsweringError):
        executor.submit("a", frame(1), 0)
    with pytest.raises(NotAnsweringError):
        executor.reject("a", frame(1), 0, "not released")
    assert executor.describe()["frames_refused"] == 1
    selector.let_go.set()
    first.join(60.0)
    monkeypatch.setattr(executor_module, "FRAME_ANSWER_S", 60.0)
    executor._shared.asked_in_vain_ns = 0
    executor.submit("a", frame(2), executor.clock.now_ns())
    assert executor.wait_idle(60.0)
    assert sorted(r.sequence for r in records) == [0, 2]
    check_counts(executor.snapshot("a"))
    executor.stop(5.0)


@pytest.mark.parametrize(
    ("part", "method"), [("_shared", "hand_over"), ("supervisor", "cancel_unwanted")]
)
def test_a_frame_that_was_released_is_not_told_as_lost(bench, part, method):
    """Campaign of faults: who called rejected the frame then, and it had two outcomes."""
    bench.add("a", 100, 1)
    bench.executor._shared.engine.cancels_for_urgent = True
    bench.executor.start()
    saboteur = Saboteur(0, 1.0, 1)
    saboteur.spoil(getattr(bench.executor, part), [method])
    bench.submit("a", 0)
    bench.run_to(100)
    assert saboteur.raised == [method]
    assert [r.outcome for r in bench.finish()] == [Outcome.MET]


def test_a_job_nobody_was_woken_for_is_found_by_the_watchdog(bench, monkeypatch):
    """Campaign of faults: it waited for the next frame, which may not come."""
    bench.add("a", 10 * S, 1)
    bench.executor.start()
    bench.clock.settle()
    condition = bench.executor._shared.condition
    monkeypatch.setattr(condition, "notify_all", lambda: None)
    bench.executor.submit("a", frame(0), 0)
    monkeypatch.undo()
    bench.run_to(WATCH_NS // MS + 2)
    assert [r.outcome for r in bench.finish()] == [Outcome.MET]


def test_a_restart_that_finds_no_thread_is_tried_again(bench, monkeypatch):
    """Campaign of faults: the task stayed ``restarting`` for ever."""
    task = Hanging(bench)
    supervisor, failures = bench.executor.supervisor, [RuntimeError("can't start new thread")]
    spawn = supervisor._spawn

    def fail(target, name, *args):
        if failures and name.startswith("rt-restart"):
            raise failures.pop()
        return spawn(target, name, *args)

    monkeypatch.setattr(supervisor, "_spawn", fail)
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(S)
    assert len(task.restarts_ns) == 1
    assert task.snapshot.suspended == ""
    bench.finish()


# -- removal -----------------------------------------------------------------------------------


def test_a_removal_that_times_out_is_finished_when_the_stage_returns(bench):
    """EDGES 15: until then the name is taken, with a clear reason; afterwards it is free."""
    entered, release = threading.Event(), threading.Event()

    def slow(work):
        bench.clock.leave()
        entered.set()
        release.wait(30)
        bench.clock.participate()

    def add():
        bench.add_stages(parameters("a", S), slow, stage_timeout_ns=HANG_NS)

    closed = threading.Event()
    add()
    bench.executor.start()
    bench.executor.submit("a", frame(0), 0)
    assert entered.wait(10)
    with pytest.raises(TimeoutError, match="is removed when it returns"):
        bench.executor.remove_task("a", timeout_s=0.0)
    with pytest.raises(StillRunningError, match="still being removed"):
        add()
    with pytest.raises(StillRunningError, match="still runs"):  # a second deactivation
        bench.executor.remove_task("a", timeout_s=0.0)
    assert not bench.executor.supervisor.when_unused("a", closed.set)
    assert not closed.is_set()
    release.set()
    assert closed.wait(10)
    while "a" in bench.executor._shared.tasks:
        threading.Event().wait(0.001)
    add()
    bench.submit("a", 1)
    # The only stage was the last one too: the frame was done, and then there was nothing to end.
    assert [(r.sequence, r.outcome.value) for r in bench.finish()] == [(0, "met"), (1, "met")]


def test_two_tasks_that_leave_at_once_are_both_forgotten(bench):
    """EDGES 15: what makes the first one free makes the second one free, too."""
    for name in ("a", "b"):
        bench.add(name, 100, 1)
        bench.executor._shared.tasks[name].leaving = True
    with bench.executor._shared.condition:
        bench.executor._shared.forget_idle()
    assert not bench.executor._shared.tasks
    assert not bench.executor._shared.leaving


def test_a_stage_that_hangs_is_never_run_a_second_time(bench):
    """EDGES 15: its task is removed at once, and cannot come back with the same stages."""
    task = Hanging(bench, options={"restart": None})
    stages = {"v": list(bench.executor._shared.tasks["a"].stages["v"])}
    bench.executor.start()
    bench.submit("a", 0)
    bench.run_to(60)
    assert "cannot be restarted by itself" in task.snapshot.suspended
    bench.executor.remove_task("a")
    with pytest.raises(StillRunningError, match="hangs and has not returned"):
        bench.executor.add_task(parameters("a", S), stages, lambda record, work: None)
    Hanging(bench, hangs=False)  # loaded anew
    bench.submit("a", 1)
    bench.run_to(70)
    assert [r.outcome.value for r in bench.finish()] == ["failed", "met"]
