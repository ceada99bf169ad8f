# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The pass with the PyTorch profiler."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from networks import load_pipeline  # noqa: E402

from jetson_dnn_rt.errors import ConfigurationError, ModelError  # noqa: E402
from jetson_dnn_rt.frames import Frame  # noqa: E402
from jetson_dnn_rt.lab.profile.operator_profile import profile_operators  # noqa: E402
from jetson_dnn_rt.models.sources.registry import load_model  # noqa: E402

FRAMES = [Frame(np.full((48, 64, 3), 90 * i, np.uint8), "bgr8", 0, i) for i in range(2)]


@pytest.fixture(scope="module")
def pipeline():
    return load_pipeline(load_model("builtin:segmenter"), "full@torch-fp32")


def test_operators_are_attributed_and_exported(pipeline, tmp_path):
    trace = tmp_path / "operators.json"
    operators = profile_operators(pipeline, FRAMES, 2, trace)
    on_cpu = [operator for operator in operators if operator.device == "cpu"]
    assert sum(operator.share for operator in on_cpu) == pytest.approx(1.0)
    times = [operator.self_ms for operator in on_cpu]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 0.0
    names = {operator.name: operator for operator in on_cpu}
    assert any("convolution" in name for name in names)
    # Our own marks are in the trace, and not among the operators.
    assert not {"preprocess", "inference", "decode"} & set(names)
    events = json.loads(trace.read_text())["traceEvents"]
    marks = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert [marks.count(name) for name in ("preprocess", "inference", "decode")] == [2, 2, 2]


def test_calls_are_per_frame(pipeline):
    one, three = (
        {o.name: o.calls for o in profile_operators(pipeline, FRAMES, runs)} for runs in (1, 3)
    )
    convolutions = [name for name in one if name.endswith("convolution")]
    assert convolutions
    assert all(one[name] == three[name] for name in convolutions)


def test_other_back_ends_are_not_seen():
    null = load_pipeline(load_model("null:1"), "full@null")
    with pytest.raises(ConfigurationError, match="sees nothing of null"):
        profile_operators(null, FRAMES, 1)


def test_a_trace_that_cannot_be_written_is_said(pipeline, tmp_path):
    with pytest.raises(ModelError, match="cannot write"):
        profile_operators(pipeline, FRAMES, 1, tmp_path / "none" / "trace.json")
