# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A session without ROS: tasks come and go, frames from anywhere, results to observers."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from executor_bench import MS, frame
from traced_jobs import make_record

from jetson_dnn_rt.clock import VirtualClock
from jetson_dnn_rt.config.nodes import CameraConfig
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError, UnschedulableError
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.runtime.realtime import Realtime, Setting
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.tasks import JobRecord, Outcome, Work

PROCESS = ProcessConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)


def task(name, model="null:10", **values):
    """Ten milliseconds a frame, in a period of 100."""
    given = {"warmup_runs": 0, "engine_cache": "none", "expected_frequency": 10.0, **values}
    return TaskConfig(name, model=model, **given)  # type: ignore[arg-type]


class Bench:
    """A session on virtual time, and the records and results that its observer saw."""

    def __init__(self, session, clock):
        self.session, self.clock = session, clock
        self.seen: list[tuple[JobRecord, Result | None]] = []
        session.observe(lambda record, result: self.seen.append((record, result)))

    def run_to(self, milliseconds):
        self.clock.run_until(milliseconds * MS)
        self.session.executor._shared.delivery.wait(5.0)

    @property
    def outcomes(self):
        return [(r.task, r.outcome, result is not None) for r, result in self.seen]


@contextmanager
def open_bench(*tasks, **process):
    clock = VirtualClock()
    values = {**vars(PROCESS), **process}
    cameras = tuple(CameraConfig(name) for name in dict.fromkeys(t.camera for t in tasks) if name)
    config = PerceptionConfig(tasks, cameras, ProcessConfig(**values))  # type: ignore[arg-type]
    with Session(config, clock=clock) as session:
        bench = Bench(session, clock)
        yield bench
        clock.run_until(clock.now_ns() + 10_000 * MS)


def test_frames_go_to_the_tasks_of_their_camera_at_one_instant():
    tasks = [task("a", camera="front"), task("b", camera="rear"), task("c", camera="front")]
    with open_bench(*tasks) as bench:
        bench.session.submit(frame(0), camera="front", capture_ns=0)
        bench.session.submit(frame(1), camera="rear")
        bench.run_to(50)
        assert [(r.task, r.sequence) for r, _ in bench.seen] == [("a", 0), ("b", 1), ("c", 0)]
        bench.session.submit(frame(2), ["c"])
        bench.session.submit(frame(3))
        bench.run_to(200)
    assert {r.task for r, _ in bench.seen if r.sequence == 3} == {"a", "b", "c"}


@pytest.mark.parametrize(("rule", "is_published"), [("drop", False), ("publish", True)])
def test_a_late_result_is_no_result_unless_that_is_asked_for(rule, is_published):
    # After the last boundary nobody stops it; nothing was measured, so that it is tried.
    with open_bench(task("a", "null:decode=50", deadline_ms=20.0, late_results=rule)) as bench:
        bench.session.submit(frame(0))
        bench.run_to(60)
        assert bench.outcomes == [("a", Outcome.LATE, is_published)]
        config = bench.session.tasks["a"].config
        assert config.late_results == rule


def test_a_real_time_setting_that_was_refused_is_warned_of_and_no_other(caplog, monkeypatch):
    settings = [Setting("mlockall", False, "no permission"), Setting("mallopt", True, "done")]
    monkeypatch.setattr(Realtime, "settings", property(lambda self: tuple(settings)))
    with open_bench(task("a")):
        pass
    warned = [text for text in caplog.messages if "mlockall" in text or "mallopt" in text]
    assert warned == ["mlockall is not applied: no permission"]


def test_parts_of_the_start_are_logged_with_the_first_result(caplog):
    caplog.set_level(logging.INFO)
    with open_bench(task("a"), task("b")) as bench:
        bench.clock.run_until(2_000 * MS)
        assert "first result" not in caplog.text
        for number in range(2):
            bench.session.submit(frame(number), ["a"])
            bench.run_to(2_010 + 100 * number)
    logged = [text for text in caplog.messages if "first result" in text]
    assert logged == ["first result after 2.01 s: first frame 2.00, a's result 0.01"]


def test_tasks_come_and_go_while_others_run():
    with open_bench(task("a")) as bench:
        session = bench.session
        session.submit(frame(0))
        bench.run_to(15)
        session.load(task("b"))
        session.activate("b")
        session.commit()
        session.submit(frame(1))
        bench.run_to(45)
        remover = threading.Thread(target=session.deactivate, args=("a",))
        remover.start()
        remover.join()
        session.unload("a")
        session.submit(frame(2))
        bench.run_to(75)
        assert bench.outcomes == [(name, Outcome.MET, True) for name in "aabb"]
        assert list(session.tasks) == ["b"]
        assert not session.is_active("a")


def test_each_kind_of_switch_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    with open_bench(task("a")) as bench:
        for sequence, variant in enumerate(["x", "y", "y", "x", "y", "x"]):
            record = make_record(sequence, task="a", variant=variant)
            bench.session._tell_task(None, record, Work(frame(sequence)))
    said = [line for line in caplog.messages if line.startswith("task a: ")]
    assert [line.partition(";")[0] for line in said] == [
        "task a: full@null -> x in frame 0",  # another than the configured one
        "task a: x -> y in frame 1",
        "task a: y -> x in frame 3",
    ]


def test_dynamic_values_take_effect_with_the_next_frame():
    with open_bench(task("a", "null:50", deadline_ms=80.0)) as bench:
        bench.session.submit(frame(0))
        bench.run_to(60)
        changed = task("a", "null:50", deadline_ms=30.0, late_results="publish")
        bench.session.update(changed)
        bench.session.submit(frame(1))
        bench.run_to(120)
        assert bench.outcomes[0] == ("a", Outcome.MET, True)
        assert bench.seen[1][0].absolute_deadline_ns - bench.seen[1][0].release_ns == 30 * MS
        with pytest.raises(ConfigurationError, match="variant must be one of full@null"):
            bench.session.update(task("a", variant="full@torch-fp32"))
        assert bench.session.tasks["a"].config is changed


def test_without_a_deadline_the_period_stays_the_deadline():
    """Also where the period is not the one of the configuration: a camera sets the rate."""
    with open_bench() as bench:
        config = task("a")
        bench.session.load(config)
        bench.session.activate("a", period_ns=70 * MS)
        bench.session.update(replace(config, max_age_ms=5.0))
        parameters = bench.session.executor.snapshot("a").parameters
        assert (parameters.deadline_ns, parameters.max_age_ns) == (70 * MS, 5 * MS)


@contextmanager
def open_strict(measured, workers=1):
    """A session that refuses what does not fit, with an active task that was warmed up."""
    clock = VirtualClock()
    values = {**vars(PROCESS), "on_unschedulable": "refuse", "workers": workers}
    session = Session(PerceptionConfig([], process=ProcessConfig(**values)), clock=clock)
    session.start()
    clock.participate()
    worker = threading.Thread(target=lambda: (session.load(measured), clock.leave()))
    worker.start()
    clock.run_until(1000 * MS)
    worker.join(5.0)
    session.activate(measured.name)
    yield session
    session.close()


def test_what_does_not_fit_is_refused_where_that_is_asked_for():
    hopeless = task("a", "null:10", warmup_runs=2, deadline_ms=1.0)
    with open_strict(hopeless) as session, pytest.raises(UnschedulableError):
        session.commit()


def test_a_limit_that_cannot_hold_is_refused_where_that_is_asked_for():
    """Beyond one worker the analysis proves nothing else: frames of 10 ms, 5 ms apart."""
    values = {"warmup_runs": 2, "deadline_ms": 100.0, "expected_frequency": 200.0}
    with open_strict(task("a", "null:10", **values), workers=2) as session:
        verdict = session.commit()
        assert (verdict.schedulable, verdict.broken_limits) == (None, ())
    limited = task("a", "null:10", met_of=(2, 3), **values)
    refused = pytest.raises(UnschedulableError, match=r"met_of \[2, 3\] of task a cannot hold")
    with open_strict(limited, workers=2) as session, refused:
        session.commit()
    # Of two frames one can be met.
    with open_strict(task("a", "null:10", met_of=(1, 2), **values), workers=2) as session:
        assert session.commit().schedulable is None


def test_a_variant_that_is_none_closes_its_task():
    with open_bench() as bench, pytest.raises(ConfigurationError, match="variant must be one of"):
        bench.session.load(task("a", variant="full@torch-fp32"))
    assert bench.session.tasks == {}


def test_a_session_that_cannot_load_a_task_leaves_nothing_behind():
    before = threading.active_count()
    config = PerceptionConfig([task("a"), task("b", "onnx:/nowhere.onnx")], process=PROCESS)
    session = Session(config)
    with pytest.raises(Exception, match="nowhere"):
        session.__enter__()
    assert not session.running
    assert session.tasks == {}
    assert threading.active_count() == before
    with pytest.raises(ConfigurationError, match="configure the node"):
        session.submit(frame(0))


def test_a_session_may_be_stopped_and_started_anew():
    with open_bench(task("a")) as bench:
        session = bench.session
        session.submit(frame(0))
        bench.run_to(20)
        session.stop()
        session.start()
        session.activate("a")
        session.submit(frame(1))
        bench.run_to(40)
        assert [r.sequence for r, _ in bench.seen] == [0, 1]


def test_every_job_is_traced_where_a_folder_is_named(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from jetson_dnn_rt.traces.reader import open_trace
    from jetson_dnn_rt.traces.schema import SHARING

    with open_bench(task("a", camera="front"), task("helpers"), trace_dir=str(tmp_path)) as bench:
        bench.session.submit(frame(0))
        bench.run_to(20)
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("session-")
    trace = open_trace(folder)
    assert [job.record.outcome for job in trace.jobs()] == [Outcome.MET] * 2
    assert trace.metadata.tasks["a"].camera == "front"
    assert trace.metadata.parameters["a"]["model"] == "null:10"
    # Apart from the tasks, whatever their names are.
    sharing = {"workers": 1, "helpers": 1, "threads": 0, "narrow_slowdowns": {}}
    assert trace.metadata.parameters[SHARING] == sharing
    assert trace.metadata.parameters["helpers"]["model"] == "null:10"


def test_a_task_that_is_loaded_beside_running_ones_is_no_worker():
    """With `realtime.sched_fifo` it would hold up the frames of the others."""
    classes = []

    def log(text):
        classes.append(os.sched_getscheduler(0))

    with open_bench(task("a")) as bench:
        session, before = bench.session, os.sched_getscheduler(0)
        session.load(task("b"), log=log)
        assert set(classes) == {os.SCHED_BATCH}  # the mark of `Realtime.in_background`
        session.deactivate("a")
        classes.clear()
        session.load(task("c"), log=log)
        assert set(classes) == {before}
        assert os.sched_getscheduler(0) == before


def test_what_a_task_counts_may_be_asked_at_any_time():
    """Diagnostics and the coordinator ask beside transitions."""
    with open_bench(task("a")) as bench:
        session = bench.session
        counts = session.snapshot("a")
        assert counts is not None
        assert counts.released == 0
        assert session.selector_failure == ""
        session.executor.remove_task("a")  # what a transition has just done
        assert session.snapshot("a") is None
        session._active.clear()
    assert session.snapshot("a") is None
    assert session.selector_failure == ""
