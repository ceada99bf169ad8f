# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input pass on a real CUDA device, where there is one, against the pass on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from jetson_dnn_rt.backends.cuda.device import regions
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Preprocessing

pytestmark = pytest.mark.gpu

SHAPE = (1, 3, 208, 224)


@pytest.fixture
def cuda():
    try:
        cuda = open_cuda()
    except BackendUnavailableError as error:
        pytest.skip(str(error))
    yield cuda
    cuda.close()


def make_frame(cuda, encoding, height, width):
    image = cuda.allocate_mapped(ENCODINGS[encoding].shape(height, width), np.uint8)
    image[:] = np.random.default_rng(2).integers(0, 256, image.shape, np.uint8)
    return Frame(image, encoding, 0, 0, device_address=regions.find(image))


@pytest.mark.parametrize("fetched", [False, True], ids=["in_place", "fetched"])
@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_the_device_gives_what_the_cpu_gives(cuda, encoding, fetched):
    expected = Preprocessing(*SHAPE[2:], resize="letterbox_center", scale=1.0)
    frame = make_frame(cuda, encoding, 360, 640)
    here = np.zeros(SHAPE, np.float32)
    Preprocessor(expected, here).write(frame)
    there = cuda.allocate(SHAPE, np.float32)
    device = DevicePreprocessor(expected, there, open_cuda(), load_kernel(), fetched=fetched)
    assert device.can_read(frame)
    device.write(frame)
    result = cuda.allocate_host(SHAPE, np.float32)
    cuda.copy(result, there)
    cuda.synchronize()
    device.close()
    if ENCODINGS[encoding].layout == "packed":
        np.testing.assert_array_equal(result, here)
    else:
        assert np.abs(result - here).max() <= 1.0


def test_the_device_writes_into_mapped_memory(cuda):
    frame, expected = make_frame(cuda, "bgr8", 120, 160), Preprocessing(*SHAPE[2:])
    host = cuda.allocate_mapped(SHAPE, np.float32)
    there = cuda.view(regions.find(host), SHAPE, np.float32)
    device = DevicePreprocessor(expected, there, open_cuda(), load_kernel(), fetched=False)
    device.write(frame)
    device.close()
    here = np.zeros(SHAPE, np.float32)
    Preprocessor(expected, here).write(frame)
    np.testing.assert_array_equal(host, here)
