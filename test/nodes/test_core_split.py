# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Workers and threads of a process: as set, or as the trial at its start finds best."""

from __future__ import annotations

import os
import threading

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from networks import make_onnx

from jetson_dnn_rt.backends.threads import count_cores
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.perception import PerceptionConfig
from jetson_dnn_rt.config.process import ProcessConfig
from jetson_dnn_rt.config.task import TaskConfig, wants_trial
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.nodes.tasks.task_node import DetectorNode
from jetson_dnn_rt.nodes.tasks.task_status import session_values
from jetson_dnn_rt.runtime import session as sessions
from jetson_dnn_rt.runtime import task as loading
from jetson_dnn_rt.runtime.session import Session
from jetson_dnn_rt.runtime.sharing.core_split import CoreSplit, measure_slowdown, share_cores
from jetson_dnn_rt.runtime.sharing.forecast import TrialTask
from jetson_dnn_rt.runtime.task import make_grey_frame, open_model

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
def test_one_word_of_anybody_asks_for_the_trial(process, tasks, wanted):
    given = (TaskConfig(threads=threads) for threads in tasks)
    assert wants_trial(process, given) is wanted


def test_the_trial_decides_on_workers_and_threads(ros, capfd, monkeypatch):
    loads: list[str] = []

    def load(values):
        loads.append("segmenter" if "segmentation" in values.model else "detector")
        return open_model(values)

    monkeypatch.setattr(loading, "open_model", load)
    node = make(
        ros,
        {"workers": 4},
        detector={**DETECTOR, "threads": "auto"},
        segmenter={**SEGMENTER, "threads": 3},
    )
    assert node.autostart(), node.fault
    assert node.bridge.session.split == CoreSplit(2, 1)
    assert node.bridge.session.split.workers == count_workers() == 2
    assert sorted(loads) == ["detector", "segmenter"]  # for the trial, and kept
    assert node.bridge.session._models == {}
    loaded = {name: task.loaded for name, task in node.tasks.items()}
    # Who names a number has it.
    assert {name: one.threads for name, one in loaded.items() if one} == {
        "detector": 1,
        "segmenter": 3,
    }
    values = session_values(node.bridge.session)
    assert (values["workers"], values["threads"]) == (2, 1)
    assert node.coordinator is not None
    assert node.coordinator.coordinator is not None
    assert node.coordinator.coordinator.cohort.workers == 2
    said = capfd.readouterr().err
    assert "workers: 4 is ignored: threads: auto decides" in said
    assert "threads: auto takes 2 x 1 (workers x threads)" in said
    assert "-> 2 x 1: " in said
    # Once more from the beginning: the trial is part of it.
    node.trigger_deactivate()
    node.trigger_cleanup()
    assert count_workers() == 0
    node.trigger_configure()
    assert node.bridge.session.split == CoreSplit(2, 1)


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
def test_what_is_set_is_taken_without_a_trial(workers, process, task, split, threads):
    config = PerceptionConfig((), process=ProcessConfig(workers=workers), threads=process)
    with Session(config) as session:
        assert session.split == split
        assert count_workers() == session.split.workers == workers
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


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return f"onnx:{make_onnx(tmp_path_factory.mktemp('network') / 'small.onnx')}"


def test_the_slow_down_of_the_loaded_tasks_reaches_budgets_and_coordinator(ros, network, capfd):
    task = {
        "model": network, "kind": "segmentation", "variants": ["full@onnxruntime-fp32"],
        "warmup_runs": 3, "engine_cache": "none",
    }  # fmt: skip
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
    assert session_values(node.bridge.session)["cohort_slowdown"] == "1: 1.00, 2: 50.00"


def test_one_task_or_one_worker_has_nobody_beside():
    assert measure_slowdown({}, 4, SteadyClock(), pytest.fail) == {}


def test_a_task_that_cannot_be_loaded_is_named(tmp_path):
    given = [
        TrialTask(
            TaskConfig(name, model=model, engine_cache="none"), 10**7, make_grey_frame((8, 8))
        )
        for name, model in (("front", "null:1"), ("rear", f"onnx:{tmp_path}/none.onnx"))
    ]
    with pytest.raises(ModelError, match=r"^task rear: .*none\.onnx"):
        share_cores(given, 2, "edf", SteadyClock(), pytest.fail)
