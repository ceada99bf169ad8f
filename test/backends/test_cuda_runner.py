# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Where the inputs of a runner on a CUDA device lie: read in place, fetched or copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, IntegratedCuda
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier, make_join

from jetson_dnn_rt.backends.base import Parts
from jetson_dnn_rt.backends.cuda.device import regions
from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner

KINDS = ("mapped", "pinned", "pageable")
IMAGE_BYTES = 3 * 16 * 24 * 4
OUTPUT_COPIES = 2


def create(cuda, kind="auto"):
    runner = TensorRtRunner(make_classifier(), "fp32", cuda=cuda, module=make_tensorrt("10.3.0"))
    runner.use_memory(kind)
    return runner


def make_image(seed=0):
    return np.random.default_rng(seed).random((1, 3, 16, 24), np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_allocated_in_that_memory(kind):
    runner = create(IntegratedCuda(), kind)
    image, three = runner.allocate_input(), runner.allocate_input(3)
    assert (image.shape, three.shape) == ((1, 3, 16, 24), (3, 3, 16, 24))
    assert not image.any()
    assert bool(regions.find(image)) == (kind == "mapped")
    assert bool(regions.find(three[2])) == (kind == "mapped")


def run(runner, image):
    """The outputs, and the copies that were queued for them."""
    cuda: Any = runner._cuda
    cuda.calls.clear()
    outputs = runner.to_host(runner.run([image]))
    return [output.copy() for output in outputs], cuda.calls.count("copy") - OUTPUT_COPIES


def test_every_memory_gives_the_same_to_the_bit():
    results = []
    for kind in KINDS:
        runner = create(IntegratedCuda(), kind)
        image = runner.allocate_input()
        runner.adopt_input(0, image)
        image[:] = make_image()
        (scores, best), copies = run(runner, image)
        assert copies == (0 if kind == "mapped" else 1)
        assert runner.copied_bytes - scores.nbytes - best.nbytes == copies * IMAGE_BYTES
        results.append(scores)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_an_adopted_input_is_read_anew_in_every_run():
    runner, reference = create(IntegratedCuda(), "mapped"), create(IntegratedCuda(), "pageable")
    image = runner.allocate_input()
    runner.adopt_input(0, image)
    assert runner.cuda_graph
    for seed in range(3):
        image[:] = make_image(seed)
        (scores, _), copies = run(runner, image)
        assert copies == 0
        np.testing.assert_array_equal(scores, run(reference, make_image(seed))[0][0])


def test_a_view_is_adopted_by_its_address():
    runner, reference = create(IntegratedCuda(), "mapped"), create(IntegratedCuda(), "pageable")
    slots = runner.allocate_input(4)
    runner.adopt_input(0, slots[2:3])
    slots[2:3] = make_image()
    (scores, _), copies = run(runner, slots[2:3])  # another view of the same memory
    assert copies == 0
    np.testing.assert_array_equal(scores, run(reference, make_image())[0][0])


def test_adopting_the_same_again_captures_nothing_anew(monkeypatch):
    runner = create(IntegratedCuda(), "mapped")
    image = runner.allocate_input()
    runner.adopt_input(0, image)
    monkeypatch.setattr(runner, "_prepare", lambda: pytest.fail("captured anew"))
    runner.adopt_input(0, image[:])


def test_what_is_not_mapped_is_copied():
    runner = create(IntegratedCuda(), "mapped")
    plain = make_image()
    runner.adopt_input(0, plain)
    assert run(runner, plain)[1] == 1


def test_a_slot_that_is_not_aligned_is_copied():
    runner = create(IntegratedCuda(), "mapped")
    memory = runner.allocate_input(2).reshape(-1)
    odd = memory[1 : 1 + 3 * 16 * 24].reshape(1, 3, 16, 24)
    runner.adopt_input(0, odd)
    odd[:] = make_image()
    (scores, _), copies = run(runner, odd)
    assert copies == 1
    np.testing.assert_array_equal(scores, run(create(FakeCuda()), make_image())[0][0])


def test_mapped_memory_that_the_part_cannot_read_is_copied_and_that_is_said(caplog, monkeypatch):
    runner = create(IntegratedCuda(), "mapped")
    image = runner.allocate_input()

    def refuse(*arguments):
        raise RuntimeError("the pointer is not registered\nwith a device")

    monkeypatch.setattr(runner._cuda, "view", refuse)
    runner.adopt_input(0, image)
    (record,) = caplog.records
    assert "it is copied: the pointer is not registered with a device" in record.getMessage()
    image[:] = make_image()
    (scores, _), copies = run(runner, image)
    assert copies == 1
    np.testing.assert_array_equal(scores, run(create(FakeCuda()), make_image())[0][0])


def test_other_memory_than_the_adopted_is_copied_and_the_adopted_left_alone(caplog):
    runner = create(IntegratedCuda(), "mapped")
    image, other = runner.allocate_input(), make_image(7)
    runner.adopt_input(0, image)
    image[:] = make_image(1)
    (scores, _), copies = run(runner, other)
    assert copies == 1
    assert "not in the memory that was adopted" in caplog.text
    np.testing.assert_array_equal(scores, run(create(FakeCuda()), other)[0][0])
    np.testing.assert_array_equal(image, make_image(1))
    caplog.clear()
    assert run(runner, image)[1] == 1  # from now on it copies
    assert not caplog.text


def test_parts_of_an_input_are_put_side_by_side():
    runner = create(FakeCuda())
    image = make_image()
    assert run(runner, Parts([image]))[1] == 1  # type: ignore[arg-type]
    np.testing.assert_array_equal(runner.device_input(0).memory, image)


def test_two_inputs_of_which_one_is_adopted():
    part = make_join()
    shape = part.input_shapes[0]
    runner = TensorRtRunner(part, "fp32", cuda=IntegratedCuda(), module=make_tensorrt("10.3.0"))
    left, right = runner.allocate_input(), np.ones(shape, np.float32)
    runner.adopt_input(0, left)
    left[:] = 2.0
    (joined,) = runner.to_host(runner.run([left, right]))
    fetched = TensorRtRunner(part, "fp32", cuda=FakeCuda(), module=make_tensorrt("10.3.0"))
    (expected,) = fetched.to_host(fetched.run([left, right]))
    np.testing.assert_array_equal(joined, expected)
    assert runner.copied_bytes == right.nbytes + joined.nbytes


def test_what_lies_in_the_devices_buffer_is_not_copied():
    runner = create(FakeCuda())
    there = runner.device_input(0)
    there.memory[:] = make_image()
    (scores, _), copies = run(runner, there)
    assert copies == 0
    np.testing.assert_array_equal(scores, run(create(FakeCuda()), make_image())[0][0])
