# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Frames and inputs of variants on a made-up CUDA device: where they lie, who converts them."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np
import pytest
from fake_cuda import IntegratedCuda
from fake_tensorrt import make_tensorrt
from host_kernel import HostKernel, compile_for_host
from networks import Classifier, make_model

from jetson_dnn_rt.backends.cuda.device import CudaError, regions
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError, FrameError
from jetson_dnn_rt.frames import Frame, FramePool
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.running import frame_processor
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS, ROWS
from jetson_dnn_rt.variants.running.variant_set import VariantSet

VARIANTS = ("full@tensorrt-fp32", "full@tensorrt-fp16")
SIZE = (32, 48)
FRAME = (64, 96, 3)  # no padding, which the device writes in every frame
INPUT_BYTES = 3 * SIZE[0] * SIZE[1] * 4
FRAME_BYTES = 64 * 96 * 3


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    return compile_for_host(tmp_path_factory.mktemp("kernel"))


@pytest.fixture
def kernel(function, monkeypatch):
    kernel = HostKernel(function)
    monkeypatch.setattr(frame_processor, "load_kernel", lambda: kernel)
    return kernel


@pytest.fixture(scope="module")
def model():
    return make_model(Classifier(), SIZE)


@pytest.fixture
def load(monkeypatch, model):
    monkeypatch.setitem(sys.modules, "tensorrt", make_tensorrt("10.3.0"))
    for name in (
        "backends.tensorrt.runner",
        "backends.memory",
        "variants.running.frame_processor",
        "backends.cuda.owners",  # last: the others import its function
    ):
        monkeypatch.setattr(f"jetson_dnn_rt.{name}.open_cuda", IntegratedCuda)

    def create(memory="auto", names=VARIANTS[:1]):
        return VariantSet(TaskConfig(variants=tuple(names), memory=memory), model)

    return create


def make_pixels(seed=0):
    return np.random.default_rng(seed).integers(0, 256, FRAME, np.uint8)


def run(variants, frame, name=VARIANTS[0]):
    """What the network returns, and the work it was done for."""
    work = Work(frame)
    for stage in variants.pipelines[name].stages[:-1]:
        stage.run(work)
    outputs: Any = work.scratch[OUTPUTS]
    return outputs[0].copy(), work


def borrow(variants):
    """A frame in memory that the device reads."""
    loan = FramePool(FRAME, allocate=variants.read_frames_on_device()).borrow()
    loan.buffer[:] = make_pixels()
    return Frame(loan.buffer, "bgr8", 0, 0, owner=loan, device_address=loan.device_address)


def test_every_way_gives_the_same_to_the_bit(load, kernel):
    plain = Frame(make_pixels(), "bgr8", 0, 0)
    reference, work = run(load("pageable"), plain)
    copied = {"pageable": work.copied_bytes}
    for memory in ("mapped", "pinned"):
        variants = load(memory)
        assert variants.memory == memory
        for name, frame in ((memory, plain), (f"{memory} frames", borrow(variants))):
            outputs, work = run(variants, frame)
            np.testing.assert_array_equal(outputs, reference)
            copied[name] = work.copied_bytes
        variants.close()
    assert kernel.launches == 2
    results = copied["pageable"] - 2 * INPUT_BYTES
    assert copied == {
        "pageable": 2 * INPUT_BYTES + results,  # the pass, and the copy to the device
        "mapped": INPUT_BYTES + results,  # the pass
        "mapped frames": INPUT_BYTES + results,  # the pass, on the device
        "pinned": 2 * INPUT_BYTES + results,
        "pinned frames": FRAME_BYTES + INPUT_BYTES + results,
    }


def test_frames_out_of_reach_are_the_cpus(load, kernel):
    variants = load("mapped")
    assert variants.read_frames_on_device() is not None
    run(variants, Frame(make_pixels(), "bgr8", 0, 0))
    assert not kernel.launches


def test_in_pageable_memory_the_device_reads_no_frames(load, kernel):
    assert load("pageable").read_frames_on_device() is None


def test_without_a_kernel_the_cpu_converts_and_it_is_said(load, monkeypatch, caplog):
    def fail():
        raise BackendUnavailableError("NVRTC cannot be used")

    monkeypatch.setattr(frame_processor, "load_kernel", fail)
    assert load("mapped").read_frames_on_device() is None
    assert "the CPU converts the frames" in caplog.text
    assert "NVRTC cannot be used" in caplog.text


def test_mapped_memory_that_the_device_does_not_see_leaves_the_frames_to_the_cpu(
    load, kernel, monkeypatch, caplog
):
    def refuse(*arguments):
        raise RuntimeError("the pointer is not registered")

    monkeypatch.setattr(IntegratedCuda, "view", refuse)
    variants = load("mapped")
    assert variants.read_frames_on_device() is None
    assert (
        "the CPU converts the frames, though there is a CUDA device: the pointer is not registered"
        in caplog.text
    )
    run(variants, Frame(make_pixels(), "bgr8", 0, 0))


def test_a_device_that_fails_is_said_once_and_the_cpu_goes_on(load, kernel, caplog):
    variants = load("mapped")
    assert variants.describe_input() == "in mapped memory, frames are converted by the CPU"
    frame = borrow(variants)
    assert variants.describe_input() == "in mapped memory, frames are converted by the device"
    reference, _ = run(variants, frame)
    kernel.error = CudaError("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED (719)")
    for _ in range(2):
        np.testing.assert_array_equal(run(variants, frame)[0], reference)
    errors = [record for record in caplog.records if "stopped converting frames" in record.message]
    assert len(errors) == 1
    assert "CUDA_ERROR_LAUNCH_FAILED" in errors[0].getMessage()
    assert variants.describe_input().endswith("by the CPU: " + str(kernel.error))
    assert kernel.launches == 1


def test_the_cpu_pads_anew_after_the_device(load, kernel):
    variants = load("mapped")
    tall = Frame(make_pixels()[:, :40], "bgr8", 0, 0)  # bars at its sides
    expected, _ = run(load("pageable"), tall)
    frame = borrow(variants)  # no bars
    for _ in range(2):
        np.testing.assert_array_equal(run(variants, tall)[0], expected)
        run(variants, frame)


def test_a_bad_frame_is_the_frames_fault(load, kernel):
    variants = load("mapped")
    variants.read_frames_on_device()
    bad = Frame(make_pixels(), "mono8", 0, 0, device_address=1)
    with pytest.raises(FrameError, match="needs 1 channels"):
        run(variants, bad)
    good = Frame(make_pixels(), "bgr8", 0, 0)
    good.device_address = int(good.image.ctypes.data)
    run(variants, good)
    assert kernel.launches == 1


def test_all_variants_read_one_input_in_place(load):
    variants = load("mapped", VARIANTS)
    frame = Frame(make_pixels(), "bgr8", 0, 0)
    for name in VARIANTS:
        _, work = run(variants, frame, name)
        outputs: Any = work.scratch[OUTPUTS]
        assert work.copied_bytes == INPUT_BYTES + sum(output.nbytes for output in outputs)


def test_a_variant_that_comes_later_reads_it_in_place_after_its_rehearsal(load, caplog):
    variants, late = load("mapped"), VARIANTS[1]
    frame = Frame(make_pixels(), "bgr8", 0, 0)
    run(variants, frame)
    image = variants.pipelines[VARIANTS[0]].processor.image
    before = image.copy()
    variants.add(late)
    rehearsal = variants.rehearse(late)
    other = Work(Frame(make_pixels(9), "bgr8", 0, 0))
    for stage in rehearsal.stages[:-1]:
        stage.run(other)
    np.testing.assert_array_equal(image, before)  # the running task's is left alone
    variants.settle(late)
    _, work = run(variants, frame, late)
    outputs: Any = work.scratch[OUTPUTS]
    assert work.copied_bytes == INPUT_BYTES + sum(output.nbytes for output in outputs)
    assert "other memory" not in caplog.text


@pytest.mark.parametrize("memory", ["mapped", "pinned"])
def test_a_slot_of_a_group_is_written_by_the_device_too(load, kernel, memory):
    variants = load(memory)
    frame = borrow(variants)
    reference, _ = run(variants, frame)
    whole = variants.pipelines[VARIANTS[0]].segments[0].runner.allocate_input(3)
    variants.move_input(whole, 1)
    outputs, work = run(variants, frame)
    np.testing.assert_array_equal(outputs, reference)
    assert kernel.launches == 2
    assert not whole[0].any()
    assert bool(whole[1].any()) == (memory == "mapped")  # else it is in a buffer of the device
    assert bool(cast("dict[str, Any]", work.scratch[ROWS])) == (memory == "mapped")


def test_frames_are_found_by_their_addresses(load, kernel):
    variants = load("mapped")
    allocate = variants.read_frames_on_device()
    image, address = allocate(FRAME)
    assert image.shape == FRAME
    assert address == regions.find(image) != 0
    variants.close()
    assert allocate(FRAME)[1]  # a camera may outlive the task


def test_a_kind_that_is_none(load):
    with pytest.raises(ConfigurationError, match="memory must be one of auto, mapped"):
        load("managed")


def test_without_a_cuda_device_there_is_nothing_to_choose(model):
    variants = VariantSet(TaskConfig(variants=("full@onnxruntime-fp32",)), model)
    assert variants.memory == ""
    assert variants.describe_input() == "in the CPU's memory"
    assert variants.read_frames_on_device() is None
    variants.close()
