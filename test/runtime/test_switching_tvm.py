# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames that change to tuned kernels of TVM and back, at the boundaries between their stages."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm", reason="TVM is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planned_selector import PlannedSelector
from switched_task import SwitchedTask
from tuned_kernels import SIZE, VARIANT, list_parts, make_tiny, tune

from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.variant_set import VariantSet

TORCH, ONNX = "full@torch-fp32", "full@onnxruntime-fp32"
NAMES = (TORCH, VARIANT, ONNX)


@pytest.fixture(scope="module")
def model():
    return make_tiny()


@pytest.fixture(scope="module")
def library(model, tmp_path_factory):
    library = Library(tmp_path_factory.mktemp("tuned"))
    tune(model, library, list_parts(model, library, 2))
    return library


@pytest.fixture
def task(model, library):
    config = TaskConfig(variants=NAMES, stages=2, finest_stages=True)
    variants = VariantSet(config, model, library=library)
    task = SwitchedTask(variants, SIZE)
    yield task
    task.close()


def test_any_sequence_equals_the_same_stages_alone(task):
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


def test_frames_go_on_while_the_variant_changes(task):
    ran = []
    for seed, name in enumerate((TORCH, VARIANT, VARIANT, ONNX, VARIANT, TORCH)):
        task.executor.update("a", variant=name)
        record, logits = task.run(seed)
        assert record.outcome is Outcome.MET
        ran.append(record.variant)
        np.testing.assert_array_equal(logits, task.run_alone((name,) * 4, seed))
    assert ran == [TORCH, VARIANT, VARIANT, ONNX, VARIANT, TORCH]
