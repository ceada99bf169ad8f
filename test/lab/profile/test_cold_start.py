# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""First frames of fresh processes."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import numpy as np
import pytest

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile import cold_start
from jetson_dnn_rt.lab.profile.cold_start import FRAMES, ColdSpec, ColdStart, start_cold
from jetson_dnn_rt.safety.records import read_record

IMAGES = [Frame(np.full((8, 8, 3), i, np.uint8), "bgr8", 0, 40 + i) for i in range(3)]
SPEC = ColdSpec("null:preprocess=1;inference=4;decode=2", "full@null", stages=1)


def test_a_fresh_process_says_when_it_was_where():
    before_ns = time.monotonic_ns()
    cold = start_cold(SPEC, IMAGES)
    after_ns = time.monotonic_ns()
    marks = [
        before_ns, cold.begin_ns, cold.imported_ns, cold.model_ns, cold.variant_ns,
        *(stamp for row in cold.stamps_ns for stamp in row), after_ns,
    ]  # fmt: skip
    assert marks == sorted(marks)
    assert cold.stages == ("preprocess", "inference", "decode")
    assert len(cold.stamps_ns) == len(cold.sequences) == FRAMES
    assert cold.sequences[:4] == (40, 41, 42, 40)
    assert all(row[-1] - row[0] >= 7_000_000 for row in cold.stamps_ns)
    phases = cold.phases_ms
    parts = ("imports", "model", "variant", "first_frame")
    assert sum(phases[name] for name in parts) <= phases["until_first_result"]
    assert read_record(ColdStart, json.loads(json.dumps(asdict(cold)))) == cold


def test_a_process_that_fails_or_hangs_is_an_error(monkeypatch):
    spec = ColdSpec("onnx:/none/model.onnx", "full@onnxruntime-fp32")
    with pytest.raises(ModelError, match=r"fresh process \(exit code 1\): .*model.onnx"):
        start_cold(spec, IMAGES)
    monkeypatch.setattr(cold_start, "_LIMIT_S", 0.01)
    with pytest.raises(ModelError, match=r"no frame within 0\.01 s of a cold start"):
        start_cold(SPEC, IMAGES)
