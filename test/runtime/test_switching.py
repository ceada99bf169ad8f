# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Real networks switched between their stages by the real executor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from networks import calibrate, make_model
from planned_selector import PlannedSelector
from switched_task import SwitchedTask

from jetson_dnn_rt.backends.registry import inspect_backend
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.variants.measuring.timing import measure_stages
from jetson_dnn_rt.variants.running.variant_set import VariantSet

SIZE = builtin.INPUT_SIZE["segmenter"]
EXACT, OTHER, SHORT = "full@torch-fp32", "full@onnxruntime-fp32", "full@torch-bf16"


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        module = builtin.build("segmenter").eval()
    return make_model(calibrate(module, SIZE), SIZE, builtin.labels("segmenter"))


@pytest.fixture
def make_task(model):
    tasks: list[SwitchedTask] = []

    def make(names, stages, finest=False):
        for name in names:
            backend, precision = name.partition("@")[2].split("-")
            info = inspect_backend(backend)
            if precision not in info.precisions:
                pytest.skip(f"{name}: {info.reason}")
        config = TaskConfig(variants=tuple(names), stages=stages, finest_stages=finest)
        variants = VariantSet(config, model)
        tasks.append(SwitchedTask(variants, SIZE))
        return tasks[-1]

    yield make
    for task in tasks:
        task.close()


def test_any_sequence_equals_the_same_stages_alone(make_task):
    # One run per stage on ONNX Runtime too, however the timing of this moment falls out.
    task = make_task([EXACT, SHORT], 4)
    rng = np.random.default_rng(1)
    names = [EXACT, SHORT]
    outputs = []
    for seed in range(6):
        plan = tuple(names[i] for i in rng.integers(0, len(names), 6))
        task.executor.set_selector(PlannedSelector({"a": plan}))
        record, logits = task.run(seed)
        assert record.outcome is Outcome.MET
        assert tuple(stage.variant for stage in record.stages) == plan
        outputs.append(logits)
        np.testing.assert_array_equal(outputs[-1], task.run_alone(plan, seed))
    assert not np.array_equal(outputs[0], outputs[1])


def test_stages_of_different_back_ends_follow_each_other(make_task):
    task = make_task([EXACT, OTHER], 3, finest=True)
    expected = task.run_alone((EXACT,) * 5, 0)
    plans = [
        (EXACT, OTHER, EXACT, OTHER, EXACT),
        (OTHER, EXACT, OTHER, EXACT, OTHER),
        (OTHER,) * 5,
    ]
    for plan in plans:
        task.executor.set_selector(PlannedSelector({"a": plan}))
        record, logits = task.run(0)
        assert tuple(stage.variant for stage in record.stages) == plan
        np.testing.assert_allclose(logits, expected, atol=2e-4 * np.abs(expected).max())
        np.testing.assert_array_equal(logits, task.run_alone(plan, 0))


def test_a_cover_is_one_stage_of_the_record(make_task, monkeypatch):
    from jetson_dnn_rt.variants import network

    monkeypatch.setattr(
        network, "measure_in_turns", lambda covers, runs=9: {n: float(n) for n in covers}
    )
    task = make_task([OTHER, EXACT], 4)
    record, _work = task.run(0)
    names = [stage.name for stage in record.stages]
    assert names == ["preprocess", "inference-1..4", "decode"]
    # Not to be entered at stage 2: the frame stays where it is.
    task.executor.set_selector(PlannedSelector({"a": (EXACT, EXACT, OTHER, OTHER, EXACT, OTHER)}))
    record, _ = task.run(0)
    assert [stage.variant for stage in record.stages] == [EXACT] * 5 + [OTHER]


def test_a_variant_is_added_while_frames_come(make_task):
    task = make_task([EXACT], 2)
    task.run(0)
    pipeline = task.variants.add(OTHER)
    times = measure_stages(pipeline.stages, [task.make_frame(9)], 2, task.executor.clock)
    task.executor.add_variant("a", OTHER, pipeline.stages, times)
    task.executor.update("a", variant=OTHER)
    record, _ = task.run(1)
    assert record.variant == OTHER
    assert record.outcome is Outcome.MET
    assert task.executor.snapshot("a").budgets_ms[OTHER][1] > 0.0


class Poisoned:
    """A stage's runner that gives NaN, as a network does whose weights overflowed."""

    def __init__(self, runner):
        self._runner = runner

    def run(self, values):
        given = self._runner.run(values)
        for value in given:
            value[:, :1] = np.nan
        return given

    queue = run

    def __getattr__(self, name):
        return getattr(self._runner, name)


def poison(task, variant, stage):
    """Let one stage of one variant give NaN; the pipeline's stage is made anew."""
    pipeline = task.variants.pipelines[variant]
    segment = pipeline.segments[stage]
    bad = type(segment)(segment.piece, Poisoned(segment.runner))
    segments = [bad if other is segment else other for other in pipeline.segments]
    made = type(pipeline)(pipeline.spec, pipeline.processor, segments, task.variants.stage_names)
    task.executor.add_variant("a", variant, made.stages, [])


def test_nan_withdraws_the_variant_after_two_frames(make_task):
    task = make_task([EXACT, OTHER], 2)
    poison(task, EXACT, 1)
    outcomes = [task.run(seed)[0] for seed in range(4)]
    assert [record.outcome.value for record in outcomes] == ["failed", "failed", "met", "met"]
    assert "NaN" in outcomes[0].reason
    assert outcomes[2].variant == OTHER
    assert list(task.executor.snapshot("a").withdrawn) == [EXACT]


def test_of_several_variants_the_one_that_gives_nan_is_blamed(make_task):
    task = make_task([EXACT, OTHER], 3, finest=True)
    poison(task, OTHER, 1)
    plan = (EXACT, EXACT, OTHER, EXACT, EXACT)
    task.executor.set_selector(PlannedSelector({"a": plan}))
    records = [task.run(seed)[0] for seed in range(4)]
    # The first shows that something is wrong; then every stage is looked at, two frames long.
    assert [record.outcome.value for record in records] == ["failed", "failed", "failed", "met"]
    assert "stage inference-2 of full@onnxruntime-fp32 gives NaN" in records[1].reason
    assert list(task.executor.snapshot("a").withdrawn) == [OTHER]
    assert records[3].variant == EXACT
