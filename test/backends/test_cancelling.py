# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Runs that another thread cancels, on every back end here."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from networks import make_model

from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import RunCancelledError

SIZE = (128, 128)
TIMEOUT_S = 60.0


class Deep(torch.nn.Module):
    """Takes some hundred milliseconds, in many operators."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Conv2d(32, 32, 3, padding=1) for _ in range(150)]
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, padding=1), *layers)

    def forward(self, image):
        return self.layers(image).mean((2, 3))


def make_runner(backend, threads):
    info = inspect_backend(backend)
    if not info.available:
        pytest.skip(f"{backend}: {info.reason}")
    torch.manual_seed(0)
    return create_runner(make_model(Deep(), SIZE), backend, "fp32", threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_cancelled_run_raises_and_the_next_is_right(backend, threads):
    runner = make_runner(backend, threads)
    if not runner.can_cancel:
        pytest.skip(f"{backend} cannot cancel with {threads} threads")
    image = np.random.default_rng(0).random((1, 3, *SIZE), np.float32)
    (expected,) = (np.array(value) for value in runner.run([image]))
    for _ in range(5):
        ended = threading.Event()
        caught = []

        def run(ended=ended, caught=caught):
            try:
                runner.run([image])
            except RunCancelledError as error:
                caught.append(error)
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        while not ended.wait(0.005):  # it may not have begun at the first
            runner.cancel()
        thread.join(TIMEOUT_S)
        assert len(caught) == 1
        assert "was cancelled" in str(caught[0])
        (again,) = runner.run([image])
        assert np.array_equal(again, expected)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_cancel_outside_of_a_run_changes_nothing(backend):
    runner = make_runner(backend, 2)
    if not runner.can_cancel:
        pytest.skip(f"{backend} cannot cancel")
    image = np.random.default_rng(0).random((1, 3, *SIZE), np.float32)
    runner.cancel()
    (first,) = (np.array(value) for value in runner.run([image]))
    runner.cancel()
    (second,) = runner.run([image])
    assert np.array_equal(first, second)
    runner.close()
    runner.cancel()


def test_others_say_that_they_cannot():
    runner = make_runner("torch", 1)
    assert not runner.can_cancel
