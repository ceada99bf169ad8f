# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A replay decides as the nodes do: batches, slow-downs and restarts, on a virtual clock."""

from __future__ import annotations

import threading

import pytest
from bags import TOPIC, make_image, write_bag
from executor_bench import HANG_NS, IMAGE, MS

from jetson_dnn_rt.cameras.bags.image_bag import open_image_bag
from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.evaluate.realtime import play
from jetson_dnn_rt.lab.evaluate.streams import plan_arrivals
from jetson_dnn_rt.models.output_check import OutputCheck
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.sharing import core_split
from jetson_dnn_rt.tasks import Outcome, Stage

FRAMES, RATE_HZ = 24, 40.0
DEADLINE_NS = 45 * MS + 1
HANGING = 9
"""Frame on which a stage of task b hangs."""
VARIANT = "full@null"
PROCESS = ProcessConfig(workers=2, gc_freeze=False, mallopt=False, switch_interval_us=0)


class ScriptedTask:
    """A loaded task whose stages sleep on the virtual clock, and may run batches."""

    def __init__(self, name, clock):
        self.name, self.clock = name, clock
        self.config = TaskConfig(name, stage_timeout_ms=100.0)
        self.stage_names = ("preprocess", "inference", "decode")
        self.variant_names = (VARIANT,)
        self.default = VARIANT
        self.warm_up_times_ns = {VARIANT: [(MS, 11 * MS, MS)] * 3}
        self.cancel_latencies_ns = {}
        self.missing = ()
        self.output_check = OutputCheck(None)
        self.restarts = 0
        self.stages = self._make_stages()

    def choose_variant(self, name):
        return VARIANT

    def rebuild(self, give_back):
        self.restarts += 1
        self.stages = self._make_stages()
        return self.stages

    def start_tracking(self, period_ns):
        pass

    def stop_tracking(self):
        pass

    def close(self):
        pass

    def _sleep(self, time_ns):
        self.clock.sleep_until_ns(self.clock.now_ns() + time_ns)

    def _infer(self, work):
        hangs = self.name == "b" and work.frame.sequence == HANGING and not self.restarts
        self._sleep(HANG_NS if hangs else 11 * MS + 100_000 * (work.frame.sequence % 7))

    def _infer_batch(self, works):
        hangs = any(work.frame.sequence == HANGING for work in works)
        self._sleep(HANG_NS if hangs else 14 * MS)

    def _make_stages(self):
        batch = None if self.restarts else self._infer_batch
        inference = Stage("inference", self._infer, run_batch=batch)
        around = [Stage(name, lambda work: self._sleep(MS)) for name in ("preprocess", "decode")]
        return {VARIANT: [around[0], inference, around[1]]}


class Groups:
    """One batch group of all tasks, in which two frames take 14 ms."""

    def form(self, *given):
        pass

    def find_group(self, task):
        return "group"

    def seed(self, executor):
        executor.seed_batch_budgets("a", VARIANT, "inference", 2, [14 * MS])

    def leave(self, task):
        return []


@pytest.fixture(autouse=True)
def slowdown(monkeypatch):
    monkeypatch.setattr(core_split, "measure_slowdown", lambda *given: {1: 1.0, 2: 1.3})


def open_session(clock):
    """What the nodes do with a configuration, up to the first frame."""
    session = Session(PerceptionConfig((), process=PROCESS), clock=clock)
    session.batches = Groups()  # type: ignore[assignment]
    session.start()
    for name in "abc":
        session.adopt(ScriptedTask(name, clock))  # type: ignore[arg-type]
    session.prepare()
    return session


def run_as_nodes(arrivals):
    """Frames from a camera: each released in all tasks by one call."""
    clock, records = VirtualClock(), []
    session = open_session(clock)
    times = {"period_ns": arrivals.period_ns, "deadline_ns": DEADLINE_NS}
    for name in "abc":
        session.activate(name, lambda record, work, result: records.append(record), **times)
    session.commit()
    for number, time_ns in enumerate(arrivals.times_ns.tolist()):
        due_ns = arrivals.period_ns + time_ns
        clock.run_until(due_ns)
        session.submit(Frame(IMAGE, "bgr8", 0, number), tuple("abc"), capture_ns=due_ns)
    clock.run_until(due_ns + 500 * MS)
    restarts = [task.restarts for task in session.tasks.values()]  # type: ignore[attr-defined]
    session.stop()
    clock.run_until(2 * HANG_NS)
    return records, restarts


def run_as_replay(path, arrivals):
    clock, records = VirtualClock(), []
    session = open_session(clock)

    def replay():
        with open_image_bag(path, TOPIC) as bag:
            deadlines_ns = dict.fromkeys("abc", DEADLINE_NS)
            play(bag, session, deadlines_ns, arrivals, lambda record, _: records.append(record))
        clock.leave()

    clock.participate()
    thread = threading.Thread(target=replay)
    thread.start()
    clock.run_until(arrivals.period_ns + int(arrivals.times_ns[-1]) + 500 * MS)
    thread.join(10.0)
    restarts = [task.restarts for task in session.tasks.values()]  # type: ignore[attr-defined]
    clock.run_until(2 * HANG_NS)
    return records, restarts


def find_end(record):
    return record.completion_ns, record.task, record.sequence


def test_a_replay_decides_bit_for_bit_as_the_nodes_do(tmp_path):
    path = write_bag(tmp_path / "drive", [make_image(n) for n in range(FRAMES)])
    with open_image_bag(path, TOPIC) as bag:
        arrivals = plan_arrivals(bag.log_times_ns, rate_hz=RATE_HZ)
    as_nodes, restarts = run_as_nodes(arrivals)
    as_replay, restarts_of_replay = run_as_replay(path, arrivals)
    # Two jobs that end at one time: whichever thread comes first reports first.
    assert sorted(as_replay, key=find_end) == sorted(as_nodes, key=find_end)
    assert restarts_of_replay == restarts
    # The frames had all of it: batches, a hang with its restart, and deadlines that are not kept.
    assert len(as_nodes) == 3 * FRAMES
    assert {record.batch for record in as_nodes} == {1, 2}
    assert sum(restarts) >= 1
    assert any(record.reason.startswith("stage inference") for record in as_nodes)
    outcomes = {record.outcome for record in as_nodes}
    assert {Outcome.MET, Outcome.FAILED} < outcomes
