# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""From message to first layer: one view, one pass into the network's own input, nothing else."""

from __future__ import annotations

import tracemalloc
from contextlib import closing

import cv2
import numpy as np
import pytest
import torch
from networks import load_pipeline
from torch.nn.modules.module import register_module_forward_pre_hook

from benchmarks.zero_copy import make_message
from jetson_dnn_rt.cameras.image_messages import decode_image, view_image
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.tasks import Work

HEIGHT, WIDTH = 432, 768
INPUT_BYTES = 4 * 3 * 180 * 320


@pytest.fixture(scope="module")
def pipeline():
    """The built-in detector, 320x240, in torch on the CPU."""
    with closing(load_pipeline(load_model("builtin:detector"), "full@torch-fp32")) as pipeline:
        yield pipeline


@pytest.mark.skipif(torch.cuda.is_available(), reason="the first layer is on the GPU")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_from_the_message_to_the_first_layer(pipeline, encoding, monkeypatch):
    message = make_message(encoding, HEIGHT, WIDTH)
    data = np.frombuffer(message.data, np.uint8)
    sources: list[bool] = []
    layers: list[int] = []
    resize = cv2.resize

    def observe_resize(source, *args, **named):
        sources.append(np.shares_memory(source, data))
        return resize(source, *args, **named)

    def observe_layer(layer, values):
        layers.append(values[0].data_ptr())

    monkeypatch.setattr(cv2, "resize", observe_resize)
    hook = register_module_forward_pre_hook(observe_layer)
    try:
        work = Work(view_image(message, 0))
        pipeline.run(work)
    finally:
        hook.remove()
    assert sources
    assert all(sources)
    assert layers[0] == pipeline.processor.image.ctypes.data
    assert work.copied_bytes == INPUT_BYTES
    assert work.result is not None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_nothing_of_the_frames_size_is_made(pipeline, encoding):
    message = make_message(encoding, HEIGHT, WIDTH)
    for _ in range(2):
        pipeline.processor.preprocess(Work(view_image(message, 0)))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        pipeline.processor.preprocess(Work(view_image(message, 0)))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # The smallest array that could be a copy, a plane of the resized picture, has 56 KiB.
    assert peak < 20_000


def test_a_decoded_picture_counts(pipeline):
    picture = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    message = make_message("bgr8", 2, 2)
    message.data, message.format = cv2.imencode(".jpg", picture)[1].tobytes(), "jpeg"
    frame = decode_image(message, 0)
    assert frame.copied_bytes == picture.nbytes
    work = Work(frame)
    pipeline.processor.preprocess(work)
    assert work.copied_bytes == picture.nbytes + INPUT_BYTES


def test_every_frame_counts_for_itself(pipeline):
    counts = []
    for height in (432, 576, 432):
        work = Work(Frame(np.zeros((height, WIDTH, 3), np.uint8), "bgr8", 0, 0))
        pipeline.processor.preprocess(work)
        counts.append(work.copied_bytes)
    assert counts == [INPUT_BYTES, 4 * 3 * 240 * 320, INPUT_BYTES]
