"""With one thread a network runs on the thread that calls, at that thread's priority."""

from __future__ import annotations

import time

import numpy as np
import pytest

from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.models.sources.registry import load_model


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino", "torch"])
def test_one_thread_is_the_calling_thread(backend):
    pytest.importorskip(backend)
    model = load_model("builtin:detector")
    runner = create_runner(model.part, backend, "fp32", threads=1)
    image = np.zeros(model.input_shape, np.float32)
    runner.run([image])
    own_ns, all_ns = time.thread_time_ns(), time.process_time_ns()
    for _ in range(5):
        runner.run([image])
    own_ns, all_ns = time.thread_time_ns() - own_ns, time.process_time_ns() - all_ns
    # Of the processor's time, not of the clock's: what other programs do is not in it.
    assert own_ns > 0.8 * all_ns
    runner.close()
