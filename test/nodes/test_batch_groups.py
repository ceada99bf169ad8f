# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tasks of one model on several cameras: who is a group, and what its frames come to."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")

from networks import Classifier, make_model
from task_bench import Seen

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.backends.onnxruntime import OnnxRuntimeRunner
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.nodes.perception import PerceptionNode
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.runtime import task as loading
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.runtime.sharing.batch_groups import BatchGroups
from jetson_dnn_rt.runtime.task import Task
from jetson_dnn_rt.tasks import Outcome, TaskParameters, Work
from jetson_dnn_rt.variants.running import batching

ONNX, TORCH = "full@onnxruntime-fp32", "full@torch-fp32"
SMALL = make_model(Classifier().eval(), (32, 48))
FRONT, REAR = "front/detector", "rear/detector"


@pytest.fixture
def always_faster(monkeypatch):
    """Every size is used, however long it takes on this machine."""
    monkeypatch.setattr(batching, "MAX_SHARE", float("inf"))


@pytest.fixture
def dear_calls(monkeypatch, always_faster):
    """Every run costs 20 ms more, however many images it takes: a batch is faster for certain."""
    run = OnnxRuntimeRunner._run

    def run_slowly(self, values):
        time.sleep(0.02)
        return run(self, values)

    monkeypatch.setattr(OnnxRuntimeRunner, "_run", run_slowly)


# -- groups, without ROS -----------------------------------------------------------------------


class Tasks:
    """Loaded tasks, as a composed process has them."""

    def __init__(self, library):
        self._library = library
        self.loaded: dict[str, Task] = {}
        self.groups = BatchGroups(self.loaded)
        self.log: list[str] = []

    def load(self, name, **values):
        values = {"variants": (ONNX,), "warmup_runs": 1, "threads": 1, **values}
        self.loaded[name] = Task(
            TaskConfig(engine_cache=str(self._library), **values),
            (48, 64),
            threads=values["threads"],
            clock=SteadyClock(),
            log=lambda text: None,
            find_like=self.groups.find_like,
        )
        return self.loaded[name]

    def form(self):
        self.groups.form(1, SteadyClock(), self.log.append)

    def clean_up(self, name):
        groups = self.groups.leave(name)
        self.loaded.pop(name).close()
        for group in groups:
            group.close()

    def close(self):
        for name in list(self.loaded):
            self.clean_up(name)


@pytest.fixture
def tasks(tmp_path, monkeypatch, always_faster):
    """Their networks are small: one for each name of a model."""
    models: dict[str, Model] = {}
    real = loading.open_model

    def load_small(values):
        if values.model.startswith("null:"):
            return real(values)
        made = dataclasses.replace(SMALL, model_hash=f"{len(models):064x}")
        return models.setdefault(values.model, made)

    monkeypatch.setattr(loading, "open_model", load_small)
    made = Tasks(tmp_path)
    yield made
    made.close()


def test_tasks_of_one_model_are_a_group_and_others_are_not(tasks):
    tasks.load("a")
    tasks.load("other", model="builtin:segmenter", kind="segmentation")
    tasks.load("alone", batch="off")
    tasks.load("null", model="null:1", variants=())
    tasks.load("threads", threads=2)
    tasks.load("b")
    tasks.form()
    names = {name: loaded.batch_group for name, loaded in tasks.loaded.items()}
    assert names == {
        "a": "a, b", "b": "a, b", "other": "", "alone": "", "null": "", "threads": ""
    }  # fmt: skip
    assert tasks.log == [f"a, b: {tasks.groups.reports_of('a')[0]}"]
    assert "batches of 2 in full@onnxruntime-fp32" in tasks.log[0]
    # One buffer, a slot each.
    images = [tasks.loaded[n].variants.pipelines[ONNX].processor.image for n in ("a", "b")]
    assert images[0].base is images[1].base is not None
    assert not np.shares_memory(*images)
    assert tasks.groups.reports_of("other") == []
    values = tasks.groups.describe("a")
    assert values["batch_group"] == "a, b"
    assert "one by one" in str(values[f"batch.{ONNX}.2"])
    assert tasks.groups.describe("other") == {"batch_group": "none"}
    found = [tasks.groups.find_group(name) for name in ("a", "b", "other")]
    assert found == ["a, b", "a, b", ""]
    tasks.form()  # nothing new
    assert len(tasks.log) == 1


def test_a_group_without_a_batch_of_use_is_none_for_the_executor(tasks, monkeypatch):
    for name in ("a", "b"):
        tasks.load(name)
    monkeypatch.setattr(batching, "MAX_SHARE", 0.0)
    tasks.form()
    assert tasks.groups.describe("a")["batch_group"] == "a, b"
    assert tasks.groups.find_group("a") == ""


def test_each_bears_its_share_of_the_memory(tasks):
    own = [tasks.load(name).memory_bytes for name in ("a", "b")]
    tasks.form()
    (report,) = tasks.groups.reports_of("a")
    share = report.memory_bytes // 2
    assert [loaded.memory_bytes for loaded in tasks.loaded.values()] == [m + share for m in own]


def test_what_does_not_fit_the_limit_is_left_out(tasks, monkeypatch):
    for name in ("a", "b"):
        tasks.load(name, memory_limit_mb=1000.0)
    monkeypatch.setattr(Task, "room_bytes", -1)
    tasks.form()
    assert "(memory_limit_mb)" in tasks.log[0]
    assert tasks.loaded["a"].batch_bytes == 0


def test_a_second_task_is_cut_where_the_first_is(tasks):
    for name in ("a", "b"):
        tasks.load(name, stages=2, variants=(TORCH, ONNX), finest_stages=True)
    pieces = [
        [
            (s.piece.first, s.piece.inputs, s.piece.outputs)
            for p in loaded.variants.pipelines.values()
            for s in p.segments
        ]
        for loaded in tasks.loaded.values()
    ]
    assert pieces[0] == pieces[1]
    assert len(pieces[0]) == 4


def test_runners_of_batches_stay_until_the_last_task_goes(tasks):
    for name in ("a", "b"):
        tasks.load(name)
    tasks.form()
    stage = tasks.loaded["b"].stages[ONNX][1]
    runners = stage.run_batch.func.__self__._runners[2]  # type: ignore[union-attr]
    tasks.clean_up("a")
    image = np.zeros((2, *runners[0].input_shapes[0][1:]), np.float32)
    runners[0].run([image])
    tasks.clean_up("b")
    with pytest.raises(RunnerClosedError):
        runners[0].run([image])


def test_a_task_that_was_made_anew_runs_alone(tasks):
    """A stage hung: what it may still use is left behind, and closed by nobody."""
    for name in ("a", "b"):
        tasks.load(name)
    tasks.form()
    runners = tasks.loaded["b"].stages[ONNX][1].run_batch.func.__self__._runners[2]  # type: ignore
    stages = tasks.loaded["a"].rebuild(lambda close: close())
    assert [stage.run_batch for stage in stages[ONNX]] == [None, None, None]
    assert tasks.loaded["a"].batch_group == ""
    assert tasks.groups.reports_of("a") == []
    tasks.clean_up("a")
    tasks.clean_up("b")
    runners[0].run([np.zeros((2, *runners[0].input_shapes[0][1:]), np.float32)])


def test_the_executor_learns_the_sizes_that_its_tasks_can_form(tasks):
    for name in ("a", "b", "c"):
        tasks.load(name)
    tasks.form()
    executor = Executor()
    group = tasks.loaded["a"].batch_group
    for count, name in enumerate(("a", "b", "c"), 1):
        loaded = tasks.loaded[name]
        executor.add_task(
            TaskParameters(
                name=name, deadline_ns=10**9, period_ns=10**9, stages=loaded.stage_names,
                variants=(ONNX,), variant=ONNX, batch_group=group,
            ),
            loaded.stages,
            lambda record, work: None,
        )  # fmt: skip
        tasks.groups.seed(executor)
        budgets = executor._shared.engine.groups[group].budgets
        known = {key: sorted(sizes) for key, sizes in budgets.items()}
        assert known == ({(ONNX, 1): list(range(2, count + 1))} if count > 1 else {})


# -- frames, in a composed process -------------------------------------------------------------


def run_alone(loaded, frame):
    work = Work(frame)
    for stage in loaded.stages[ONNX]:
        stage.run(work)
    assert isinstance(work.result, Detections)
    return work.result


def test_results_of_two_cameras_are_those_of_each_alone(ros, dear_calls):
    """Overloaded, so that frames of both wait at once; every frame of a batch is right."""
    camera = {"source": "synthetic:320x240", "rate": 30.0}
    detector = {
        "model": "builtin:detector", "variants": [ONNX], "warmup_runs": 3, "threads": 1,
        "deadline_ms": 2000.0, "confidence_threshold": 0.05, "engine_cache": "none",
    }  # fmt: skip
    seen = Seen()
    node = ros.make(
        PerceptionNode,
        overrides={
            "perception": {
                "tasks": [FRONT, REAR],
                "cameras": ["front/camera", "rear/camera"],
                "coordinator": False,
            },
            "front/camera": camera,
            "rear/camera": {**camera, "seed": 7},
            FRONT: {**detector, "camera": "front/camera"},
            REAR: {**detector, "camera": "rear/camera"},
        },
        observer=seen,
    )
    assert node.autostart(), node.fault
    batched = seen.wait(12, lambda record: any(stage.batch > 1 for stage in record.stages))
    loaded = {name: task.loaded for name, task in node.tasks.items()}
    node.trigger_deactivate()
    assert {record.task for record, _ in batched} == {FRONT, REAR}
    found = 0
    for record, work in batched:
        assert record.outcome is Outcome.MET
        task = loaded[record.task]
        assert task is not None
        alone, result = run_alone(task, work.frame), work.result
        assert isinstance(result, Detections)
        np.testing.assert_array_equal(result.class_ids, alone.class_ids)
        np.testing.assert_allclose(result.boxes, alone.boxes, atol=0.05)
        np.testing.assert_allclose(result.scores, alone.scores, atol=1e-4)
        found += len(result.scores)
        # Both slots lie side by side: nothing but what preprocessing writes.
        image = task.variants.pipelines[ONNX].processor.image
        assert record.copied_bytes < 1.5 * image.nbytes
    assert found > 0
    node.trigger_cleanup()
    assert node.bridge.session.batches.reports_of(FRONT) == []
