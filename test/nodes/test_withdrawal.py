# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A variant that gives NaN is withdrawn, the right one, and the task goes on with another."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed: the nodes need ROS 2")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import ros_graph
from diagnostic_msgs.msg import DiagnosticArray
from planned_selector import PlannedSelector
from task_bench import Bench, diagnostics_of, make_image

from jetson_dnn_rt.tasks import Outcome
from jetson_dnn_rt.variants.running import variant_set

TORCH, ONNX = "full@torch-fp32", "full@onnxruntime-fp32"


class Illness:
    """Makes the runners of one back end give NaN, from the moment it is told to."""

    def __init__(self, monkeypatch):
        self.backend = ""
        original = variant_set.make_runner

        def make_runner(model, spec, part, **options):
            runner = original(model, spec, part, **options)
            run = runner._run
            runner._run = lambda values: self._spoil(spec.backend, run(values))
            return runner

        monkeypatch.setattr(variant_set, "make_runner", make_runner)

    def _spoil(self, backend, values):
        if backend != self.backend:
            return values
        return tuple(np.full_like(value, np.nan) for value in values)


@pytest.fixture
def illness(monkeypatch):
    monkeypatch.setattr(ros_graph, "TIMEOUT_S", 120.0)
    return Illness(monkeypatch)


def start(ros, **values):
    bench = Bench(
        ros,
        **{
            "model": "builtin:detector",
            "variants": [ONNX, TORCH],
            "deadline_ms": 20_000.0,
            "threads": 1,
            **values,
        },
    )
    bench.start()
    bench.send(make_image(ros), 1)
    assert bench.count(Outcome.MET) == 1
    return bench


def test_a_variant_that_gives_nan_is_withdrawn(ros, illness):
    inbox = ros.listen(DiagnosticArray, "/diagnostics")
    bench = start(ros)
    illness.backend = "onnxruntime"
    for count in (2, 3, 4, 5):
        bench.send(make_image(ros), count)
    assert bench.seen.variants[1:] == [ONNX, ONNX, TORCH, TORCH]
    assert (bench.count(Outcome.FAILED), bench.count(Outcome.MET)) == (2, 3)
    inbox.clear()
    found = diagnostics_of(inbox, "/detector: task_status", b"\x01")
    assert found[""] == f"withdrawn: {ONNX}"
    assert "NaN" in found[f"withdrawn.{ONNX}"]
    assert found["variant"] == TORCH
    assert ros.set(bench.node, variant=TORCH).successful
    result = ros.set(bench.node, variant=ONNX)
    assert not result.successful
    assert "withdrawn" in result.reason


@pytest.mark.parametrize("ill", [ONNX, TORCH])
def test_of_several_variants_of_a_frame_the_ill_one_is_withdrawn(ros, illness, ill):
    well = TORCH if ill == ONNX else ONNX
    bench = start(ros, stages=3, finest_stages=True)  # every stage can be entered
    assert len(bench.node.loaded.stage_names) == 5
    plan = (well, well, ill, well, well)
    bench.node.session.executor.set_selector(PlannedSelector({"detector": plan}))
    bench.send(make_image(ros), 2)
    assert bench.count(Outcome.MET) == 2
    illness.backend = "onnxruntime" if ill == ONNX else "torch"
    # In the first one only the outputs are looked at, then every stage; two are counted.
    for count in (3, 4, 5, 6, 7):
        bench.send(make_image(ros), count)
    paths = [tuple(stage.variant for stage in r.stages) for r, _ in bench.seen.items[1:]]
    assert paths[0] == plan
    assert paths[2] == paths[3] == (well, well)  # that raised in the third stage
    assert paths[4] == paths[5] == (well,) * 5
    assert (bench.count(Outcome.FAILED), bench.count(Outcome.MET)) == (3, 4)
    (withdrawn,) = bench.node.snapshot.withdrawn
    assert withdrawn == ill
    assert f"stage inference-2 of {ill} gives NaN" in bench.node.snapshot.withdrawn[ill]
