# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The rows of `bench zero-copy` on a made-up CUDA device: every way ends in the same input."""

import numpy as np
import pytest
from fake_cuda import FakeCuda, IntegratedCuda
from host_kernel import HostKernel, compile_for_host

from benchmarks import zero_copy
from benchmarks.zero_copy import (
    AS_WRITTEN,
    FUSED,
    IN_PLACE,
    MAPPED,
    MAPPED_FRAME,
    PAGEABLE,
    PINNED,
    PINNED_FRAME,
    Way,
    make_device_ways,
    make_fetched_ways,
    make_message,
    make_ways,
)
from jetson_dnn_rt.backends.cuda.device import DeviceProperties
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.input.preprocessing import Preprocessing

EXPECTED = Preprocessing(96, 128)
SIZE = (240, 320)
INPUT_BYTES, SMALL_BYTES = 96 * 128 * 3 * 4, 96 * 128 * 3


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    return compile_for_host(tmp_path_factory.mktemp("kernel"))


def test_every_way_ends_in_the_same_input(function, monkeypatch):
    monkeypatch.setattr(zero_copy, "load_kernel", lambda: HostKernel(function))
    monkeypatch.setattr(zero_copy, "open_cuda", IntegratedCuda)
    message = make_message("bgr8", *SIZE)
    reference = np.array(make_ways(EXPECTED, *SIZE, "bgr8")[FUSED].run(message))
    ways = make_device_ways(EXPECTED, *SIZE, "bgr8")
    for way in ways.values():
        there = way.run(message)
        np.testing.assert_array_equal(there.memory, reference)
        assert way.passes == 1
    # Resized and parted bytes, floats, and their copy; or the frame, fetched, and floats.
    on_cpu = 2 * SMALL_BYTES + INPUT_BYTES
    assert {name.removeprefix("cuda "): way.copied_bytes for name, way in ways.items()} == {
        PAGEABLE: on_cpu + INPUT_BYTES,
        PINNED: on_cpu + INPUT_BYTES,
        MAPPED: on_cpu,
        PINNED_FRAME: SIZE[0] * SIZE[1] * 3 + INPUT_BYTES,
        MAPPED_FRAME: INPUT_BYTES,
    }


def test_what_the_device_cannot_do_is_left_out(monkeypatch, capsys):
    class Unmapped(FakeCuda):
        device = DeviceProperties(integrated=False, maps_host_memory=False, capability=(5, 0))

    def fail():
        raise BackendUnavailableError("NVRTC cannot be used")

    monkeypatch.setattr(zero_copy, "load_kernel", fail)
    monkeypatch.setattr(zero_copy, "open_cuda", Unmapped)
    assert list(make_device_ways(EXPECTED, *SIZE, "nv12")) == [
        f"cuda {kind}" for kind in (PAGEABLE, PINNED)
    ]
    assert "does not convert frames: NVRTC cannot be used" in capsys.readouterr().err


def test_outputs_are_fetched_before_they_are_read():
    outputs = (np.arange(6, dtype=np.float32).reshape(1, 6), np.ones((1, 2), np.float32))
    seen = []

    def read(arrays):
        seen.append([array.ctypes.data for array in arrays])
        return [array.copy() for array in arrays]

    ways = {IN_PLACE: Way(read, 10, passes=0), AS_WRITTEN: Way(read, 20, passes=0)}
    fetched = make_fetched_ways(ways, outputs, FakeCuda())
    for way in fetched.values():
        for found, expected in zip(way.run(None), outputs, strict=True):
            np.testing.assert_array_equal(found, expected)
    fetched[f"cuda {PINNED}"].run(None)
    assert seen[0] == seen[-1]  # the page-locked memory is kept
    assert {name: way.copied_bytes for name, way in fetched.items()} == {
        f"cuda {PINNED}": 42, f"cuda {PAGEABLE}": 42, f"cuda {AS_WRITTEN}": 52,
    }  # fmt: skip
