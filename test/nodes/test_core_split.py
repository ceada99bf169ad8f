# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Workers and threads of a process: as set, or as they were chosen."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import numpy as np
from networks import make_onnx

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig, follows_load
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode
from jetson_dnn_rt.nodes.tasks.task_status import session_values
from jetson_dnn_rt.runtime import session as sessions
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, NarrowTimes, measure_slowdown
from jetson_dnn_rt.runtime.sharing.split_choice import Comparison, SplitChoice
from jetson_dnn_rt.runtime.sharing.split_chooser import SplitChooser
from jetson_dnn_rt.tasks import Work

# 20 ms in a period of 33: one worker keeps half of the deadlines of two such tasks, two keep all.
CAMERA = {"source": "synthetic:64x64", "rate": 30.0}
DETECTOR = {"model": "null:20", "warmup_runs": 1}
SEGMENTER = {"model": "null:20,segmentation", "warmup_runs": 1}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(sessions, "count_cores", lambda: 2)


def make(ros, perception, **tasks):
    return ros.make(
        PerceptionNode, overrides={"perception": perception, "camera": CAMERA, **tasks}
    )


def count_workers():
    return sum(thread.name.startswith("rt-worker-") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("process", "tasks", "wanted"),
    [(0, (0, 3), False), ("auto", (0, 3), True), (0, (0, "auto"), True), (4, (), False)],
)
def test_one_word_of_anybody_is_enough(process, tasks, wanted):
    given = (TaskConfig(threads=threads) for threads in tasks)
    assert follows_load(process, given) is wanted


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return f"onnx:{make_onnx(tmp_path_factory.mktemp('network') / 'small.onnx')}"


def values_for(network, **values):
    return {
        "model": network, "kind": "segmentation", "variants": ["full@onnxruntime-fp32"],
        "warmup_runs": 3, "engine_cache": "none", **values,
    }  # fmt: skip


PLANNED = CoreSplit(1, 2, 1, 2)


def force(monkeypatch, split, measured):
    """Let this split be better than the default, by what is measured; returns what was asked."""
    times = NarrowTimes(measured)
    monkeypatch.setattr(sessions.core_split, "measure_narrow", lambda *given: times)
    asked = []

    def choose(self, periods_ns, deadlines_ns):
        asked.append((periods_ns, deadlines_ns))
        better = () if split == PLANNED.wide else (
            Comparison(PLANNED.wide, split, True, 12, 12, 0, 0.5, 0.75),
        )  # fmt: skip
        return SplitChoice(split, periods_ns, deadlines_ns, better)

    monkeypatch.setattr(SplitChooser, "choose", choose)
    return asked


def test_networks_are_loaded_for_all_cores_and_for_each_other(ros, network, capfd, monkeypatch):
    measured = {"detector": [1.5], "rear/detector": [1.25]}
    asked = force(monkeypatch, PLANNED, measured)
    node = make(
        ros,
        {"workers": 4, "tasks": ["detector", "rear/detector"]},
        **{
            "detector": values_for(network, threads="auto"),
            "rear/detector": values_for(network, threads=3),
        },
    )
    assert node.autostart(), node.fault
    session = node.bridge.session
    assert session.split == PLANNED
    assert count_workers() == 2  # one, and a helper
    period_ns = int(1e9 / 30)  # of the camera
    assert asked == [(dict.fromkeys(measured, period_ns),) * 2]
    loaded = {name: task.loaded for name, task in node.tasks.items()}
    # Who names a number has it.
    found = {n: (one.threads, one.narrow_threads, one.is_narrow) for n, one in loaded.items()}
    assert found == {"detector": (2, 1, True), "rear/detector": (3, 0, False)}
    states = session.executor._shared.engine.tasks
    assert {name: states[name].narrow.median_ns for name in states} == {
        "detector": 1500,
        "rear/detector": 1250,
    }
    values = session_values(session)
    assert (values["workers"], values["threads"]) == (1, 2)
    assert str(values["split"]).startswith(
        "1 x 2 or 2 x 1 (workers x threads): 1 x 2 meets 50.0 %, 1 x 2 or 2 x 1 75.0 % "
    )
    assert values["split_review"] == "none"
    sharing = {"workers": 1, "helpers": 1, "threads": "auto", "narrow_slowdowns": measured}
    assert session.describe_sharing() == sharing
    assert node.coordinator is not None
    assert node.coordinator.coordinator is not None
    assert node.coordinator.coordinator.cohort.workers == 1
    assert "workers: 4 is ignored: threads: auto decides" in capfd.readouterr().err
    # Once more from the beginning.
    node.trigger_deactivate()
    node.trigger_cleanup()
    assert count_workers() == 0
    node.trigger_configure()
    assert node.bridge.session.split == PLANNED


@pytest.mark.parametrize(
    ("split", "workers", "threads", "slowdowns"),
    [
        (PLANNED.wide, 1, 2, {}),
        (PLANNED.narrow, 2, 1, {}),
        (PLANNED, 1, 2, {"a": [1.5], "b": [2]}),
    ],
)
def test_a_session_runs_with_the_split_that_was_chosen(
    network, monkeypatch, split, workers, threads, slowdowns
):
    force(monkeypatch, split, {"a": [1.5], "b": [2]})
    tasks = tuple(TaskConfig(name, **values_for(network)) for name in ("a", "b"))
    with Session(PerceptionConfig(tasks, threads="auto")) as session:
        for _ in range(2):  # and once more after a stop
            assert session.split == split
            assert count_workers() == workers + 1
            described = session.describe_sharing()
            assert (described["workers"], described["helpers"]) == (workers, 1)
            assert described["narrow_slowdowns"] == slowdowns
            assert session.count_threads(TaskConfig()) == threads
            always = [task.variants.runs_narrow for task in session.tasks.values()]
            assert always == [split == PLANNED.narrow] * 2
            session.stop()
            session.start()


def test_what_has_changed_since_the_choice_is_in_diagnostics(network, monkeypatch, capfd):
    force(monkeypatch, PLANNED.wide, {"a": [1.5], "b": [2]})
    tasks = tuple(TaskConfig(name, **values_for(network)) for name in ("a", "b"))
    with Session(PerceptionConfig(tasks, threads="auto")) as session:
        assert session_values(session)["split_review"] == "none"
        session.update(replace(session.tasks["a"].config, deadline_ms=100.0))
        text = str(session_values(session)["split_review"])
        assert "the deadline of a is 100.0 ms, not 33.3" in text
        session.note_drift("b", True)
        text = str(session_values(session)["split_review"])
        assert "times of b no longer match its profile" in text


def watch_runs(runner, words, ran):
    """Note every run of a runner."""
    queue = runner.queue

    def watched(values):
        ran.append(words)
        return queue(values)

    runner.queue = watched


def test_a_task_that_always_runs_narrow_is_measured_so(network):
    """Its runs, the first budgets, and what is rehearsed are those of few threads."""
    task = TaskConfig("a", **values_for(network))
    with Session(PerceptionConfig((), threads="auto")) as session:
        session.share_cores(2)
        loaded = session.load(task)
        (pipeline,) = loaded.variants.pipelines.values()
        ran = []
        wide = [segment.runner for segment in pipeline.segments]
        for words, runners in (("wide", wide), ("narrow", pipeline.narrow)):
            for runner in runners:
                watch_runs(runner, words, ran)
        before = loaded.warm_up_times_ns
        loaded.run_narrow(True)
        assert set(ran) == {"narrow"}
        assert loaded.warm_up_times_ns is not before
        ran.clear()
        loaded.variants.rehearse(loaded.default).run(Work(loaded.frame))
        loaded.variants.pipelines[loaded.default].run(Work(loaded.frame))
        assert set(ran) == {"narrow"}
        loaded.run_narrow(False)
        ran.clear()
        loaded.variants.pipelines[loaded.default].run(Work(loaded.frame))
        assert set(ran) == {"wide"}


def test_a_narrow_run_gives_what_a_wide_one_gives(network):
    """The same network on one thread, timed beside another one."""
    tasks = tuple(TaskConfig(name, **values_for(network)) for name in ("a", "b"))
    with Session(PerceptionConfig(tasks, threads="auto")) as session:
        pipeline = session.tasks["a"].variants.pipelines["full@onnxruntime-fp32"]
        frame = session.tasks["a"].frame
        results = []
        for narrow in (False, True):
            work = Work(frame, narrow=narrow)
            pipeline.run(work)
            results.append(work.result)
        np.testing.assert_array_equal(results[0].mask, results[1].mask)
        assert pipeline.narrow[0] is not pipeline.segments[0].runner


@pytest.mark.parametrize(
    ("workers", "process", "task", "split", "threads"),
    [
        (1, 0, 0, CoreSplit(1, 2), 2),
        (2, 0, 0, CoreSplit(2, 1), 1),
        (3, 0, "auto", CoreSplit(3, 1), 1),
        (2, 4, 0, CoreSplit(2, 4), 4),
        (1, 4, 1, CoreSplit(1, 4), 1),
    ],
)
def test_what_is_set_is_taken(workers, process, task, split, threads):
    config = PerceptionConfig((), process=ProcessConfig(workers=workers), threads=process)
    with Session(config) as session:
        assert session.split == split
        assert session.split.workers == workers
        assert count_workers() == workers + 1
        assert session.count_threads(TaskConfig(threads=task)) == threads


def test_cores_that_the_workers_may_not_use_are_not_shared(monkeypatch):
    monkeypatch.setattr(sessions, "count_cores", count_cores)
    before = os.sched_getaffinity(0)
    core = min(before)
    with Session(PerceptionConfig((), process=ProcessConfig(cpu_affinity=(core,)))) as session:
        assert session.split == CoreSplit(1, 1)
        assert os.sched_getaffinity(0) == before


def test_a_task_alone_has_all_cores(ros):
    node = ros.make(DetectorNode)
    assert ros.set(node, workers=2, threads="auto", model="null:1").successful
    node.trigger_configure()
    assert node.state_name == "inactive", node.fault
    assert node.bridge.session.split == CoreSplit(1, 2)
    assert node.loaded is not None
    assert node.loaded.threads == 2


def test_threads_are_a_number_or_the_word(ros):
    node = ros.make(DetectorNode)
    for value in (3, "auto", 0):
        assert ros.set(node, threads=value).successful
        assert node.parameters.threads == value
    for value in ("many", 2.5, True):
        result = ros.set(node, threads=value)
        assert (result.successful, result.reason) == (
            False,
            f"threads must be a whole number or auto: {value!r}",
        )
    assert "Max: 1024" in ros.set(node, threads=1025).reason
    descriptor = node.describe_parameter("threads")
    assert descriptor.additional_constraints == "a number, or auto"


def test_the_slow_down_of_the_loaded_tasks_reaches_budgets_and_coordinator(ros, network, capfd):
    task = values_for(network)
    node = make(
        ros,
        {"workers": 2, "tasks": ["detector", "rear/detector"]},
        **{"detector": task, "rear/detector": task},
    )
    node.trigger_configure()
    assert node.state_name == "inactive", node.fault
    assert list(node.bridge.session.cohort_slowdown) == [1, 2]
    assert node.bridge.session.cohort_slowdown[1] == 1.0
    assert node.bridge.session.cohort_slowdown[2] >= 1.0
    assert "slow-down by the number of stages side by side: 1: 1.00, 2: " in capfd.readouterr().err
    # Another figure than the machine's, that can be known again.
    node.bridge.session.set_slowdown({1: 1.0, 2: 50.0})
    camera = node.cameras["camera"]
    camera.fanout.add = lambda *given: None  # no frame: the budgets stay as they were seeded
    node.trigger_activate()
    assert node.state_name == "active", node.fault
    for one in node.tasks.values():
        assert one.loaded is not None
        (variant,) = one.loaded.variant_names
        warm_up_ns = [
            max(stage) for stage in zip(*one.loaded.warm_up_times_ns[variant], strict=True)
        ]
        budgets_ms = one.snapshot.budgets_ms[variant]
        assert budgets_ms == pytest.approx([50.0 * ns / 1e6 for ns in warm_up_ns])
    assert node.coordinator is not None
    assert node.coordinator.coordinator is not None
    assert tuple(node.coordinator.coordinator.cohort.interference) == (1.0, 50.0)
    assert session_values(node.bridge.session)["cohort_slowdown_at_start"] == "1: 1.00, 2: 50.00"


def test_one_task_or_one_worker_has_nobody_beside():
    assert measure_slowdown({}, 4, SteadyClock(), pytest.fail) == {}
