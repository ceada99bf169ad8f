"""Frames that change to tuned kernels of TVM and back, at the boundaries between their stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planned_selector import PlannedSelector
from tuned_kernels import SIZE, VARIANT, list_parts, make_tiny, tune

from jetson_dnn_rt.config.process import RealtimeConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.runtime.executor import Executor
from jetson_dnn_rt.tasks import JobRecord, Outcome, TaskParameters, Work
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS
from jetson_dnn_rt.variants.running.variant_set import VariantSet

PLAIN = RealtimeConfig(gc_freeze=False, mallopt=False, switch_interval_us=0)
DEADLINE_NS = 20_000_000_000
TORCH, ONNX = "full@torch-fp32", "full@onnxruntime-fp32"
NAMES = (TORCH, VARIANT, ONNX)


@pytest.fixture(scope="module")
def model() -> Model:
    return make_tiny()


@pytest.fixture(scope="module")
def library(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("tuned"))
    tune(model, library, list_parts(model, library, 2))
    return library


class Task:
    """An executor with one task on a `VariantSet` of two stages; keeps what ended."""

    def __init__(self, model: Model, library: Library) -> None:
        self.variants = VariantSet(
            TaskConfig(variants=tuple(NAMES), stages=2, finest_stages=True), model, library=library
        )
        self.executor = Executor(1, "edf", PLAIN)
        self.ended: list[tuple[JobRecord, Work]] = []
        pipelines = self.variants.pipelines
        self.executor.add_task(
            TaskParameters("a", DEADLINE_NS, DEADLINE_NS, self.variants.stage_names, NAMES, TORCH),
            {name: pipeline.stages for name, pipeline in pipelines.items()},
            lambda record, work: self.ended.append((record, work)),
        )
        self.executor.start()

    def run(self, seed: int) -> tuple[JobRecord, np.ndarray]:
        self.executor.submit("a", make_frame(seed), self.executor.clock.now_ns())
        assert self.executor.wait_idle(60.0)
        record, work = self.ended[-1]
        (logits,) = work.scratch[OUTPUTS]
        return record, logits.copy()

    def run_alone(self, plan: tuple[str, ...], seed: int) -> np.ndarray:
        """The same stages called one after the other, without executor and engine."""
        work = Work(make_frame(seed))
        for index, name in enumerate(plan):
            self.variants.pipelines[name].stages[index].run(work)
        (logits,) = work.scratch[OUTPUTS]
        return logits.copy()

    def close(self) -> None:
        self.executor.stop(5.0)
        self.variants.close()


def make_frame(seed: int) -> Frame:
    image = np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), np.uint8)
    return Frame(image, "bgr8", 0, seed)


@pytest.fixture
def task(model: Model, library: Library) -> Iterator[Task]:
    task = Task(model, library)
    yield task
    task.close()


def test_any_sequence_equals_the_same_stages_alone(task: Task) -> None:
    assert tuple(task.variants.pipelines) == NAMES
    rng = np.random.default_rng(2)
    plans = [tuple(NAMES[i] for i in rng.integers(0, 3, 4)) for _ in range(10)]
    plans += [
        (TORCH, VARIANT, TORCH, TORCH),  # to it and from it
        (TORCH, TORCH, VARIANT, TORCH),
        (VARIANT, ONNX, VARIANT, VARIANT),
        (VARIANT,) * 4,
    ]
    inner = {plan[1:3] for plan in plans}
    assert {(TORCH, VARIANT), (VARIANT, TORCH), (ONNX, VARIANT), (VARIANT, VARIANT)} <= inner
    for seed, plan in enumerate(plans):
        task.executor.set_selector(PlannedSelector({"a": plan}))
        record, logits = task.run(seed)
        assert record.outcome is Outcome.MET
        assert tuple(stage.variant for stage in record.stages) == plan
        np.testing.assert_array_equal(logits, task.run_alone(plan, seed))
        exact = task.run_alone((TORCH,) * 4, seed)
        np.testing.assert_allclose(logits, exact, atol=1e-5 * np.abs(exact).max())


def test_frames_go_on_while_the_variant_changes(task: Task) -> None:
    ran = []
    for seed, name in enumerate((TORCH, VARIANT, VARIANT, ONNX, VARIANT, TORCH)):
        task.executor.set_variant("a", name)
        record, logits = task.run(seed)
        assert record.outcome is Outcome.MET
        ran.append(record.variant)
        np.testing.assert_array_equal(logits, task.run_alone((name,) * 4, seed))
    assert ran == [TORCH, VARIANT, VARIANT, ONNX, VARIANT, TORCH]
