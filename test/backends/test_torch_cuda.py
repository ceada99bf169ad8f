# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""torch on a CUDA device: against the CPU, captured and not, and what stays in place."""

from __future__ import annotations

import copy
import gc
import sys
import threading

import numpy as np
import pytest
import torch
from fake_driver import FakeDriver
from networks import BoxesAndScores, BrightColumns, Classifier

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.backends.cuda.device import CudaError, DeviceProperties, regions
from jetson_dnn_rt.backends.cuda.driver import CudaDriver
from jetson_dnn_rt.backends.cuda.owners import TorchCuda
from jetson_dnn_rt.backends.torch import TorchCudaRunner, TorchRunner, fold_norms
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError

SIZE = (32, 48)
PRECISIONS = ("fp32", "fp16")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


class ModulePart:
    """A module as a part."""

    name, graph_hash = "test:part", "0" * 64
    input_shapes = ((1, 3, *SIZE),)

    def __init__(self, module):
        self._module = module.eval()

    def torch_module(self):
        return copy.deepcopy(self._module)

    def onnx_model(self):
        raise AssertionError("not needed on torch")


def make_image(seed):
    return np.random.default_rng(seed).random((1, 3, *SIZE), np.float32)


def test_without_a_device_the_reason_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendUnavailableError, match=r"torch .* has none"):
        TorchCuda()
    with pytest.raises(BackendUnavailableError, match=r"torch .* has none"):
        TorchCudaRunner(ModulePart(Classifier()), "fp32")


def test_without_torch_the_reason_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendUnavailableError, match="torch cannot be imported"):
        TorchCuda()


class Untraceable(torch.nn.Module):
    def forward(self, image):
        return image if image.sum() > 0 else -image


def test_batch_norms_are_folded():
    whole = Classifier().eval()
    with torch.no_grad():
        whole.layers[1].running_mean.uniform_(-1, 1)
        whole.layers[1].running_var.uniform_(0.5, 2)
    folded = fold_norms(whole)
    assert not [m for m in folded.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    again = fold_norms(folded)  # a graph, as stages are
    image = torch.from_numpy(make_image(0))
    with torch.inference_mode():
        expected = whole(image)
        for module in (folded, again):
            (found,) = module(image) if isinstance(module(image), tuple) else (module(image),)
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_module_that_cannot_be_traced_stays():
    module = Untraceable().eval()
    assert fold_norms(module) is module


class TestOnDevice:
    pytestmark = on_gpu

    @pytest.mark.parametrize("cuda_graph", [True, False])
    @pytest.mark.parametrize("precision", PRECISIONS)
    @pytest.mark.parametrize("network", [Classifier, BoxesAndScores])
    def test_agrees_with_the_cpu(self, network, precision, cuda_graph):
        part = ModulePart(network())
        runner = TorchCudaRunner(part, precision, cuda_graph=cuda_graph)
        reference = TorchRunner(part, "fp32", 1)
        assert runner.cuda_graph == cuda_graph
        assert (runner.backend, runner.precision, runner.device) == ("torch", precision, "cuda")
        buffer = runner.allocate_input()
        for seed in range(3):
            buffer[:] = make_image(seed)
            found = runner.to_host(runner.run([buffer]))
            expected = reference.run([buffer])
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype
                # Corners around 4000 would be off by 1 if they were added in fp16.
                tolerance = 1e-4 if precision == "fp32" else 1e-2
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=tolerance)
        assert torch.from_numpy(buffer).is_pinned()
        for _ in range(2):
            runner.close()
        with pytest.raises(RunnerClosedError, match="torch"):
            runner.run([buffer])

    def test_fp16_is_really_used(self):
        part = ModulePart(Classifier())
        exact = TorchRunner(part, "fp32", 1).run([make_image(0)])[0]
        runner = TorchCudaRunner(part, "fp16")
        error = np.abs(runner.to_host(runner.run([make_image(0)]))[0] - exact).max()
        assert error > 1e-5

    def test_lists_run_without_a_graph_which_is_said_once(self, caplog):
        runner = TorchCudaRunner(ModulePart(BrightColumns()), "fp16")
        assert not runner.cuda_graph
        told = [r for r in caplog.records if "without a CUDA graph" in r.getMessage()]
        assert len(told) == 1
        assert "captur" in told[0].getMessage()
        for count in (3, 0, 7, 48):
            image = np.zeros((1, 3, *SIZE), np.float32)
            image[0, 0, 0, :count] = 0.75
            boxes, labels, scores = runner.to_host(runner.run([image]))
            assert boxes.shape == (count, 4)
            np.testing.assert_array_equal(labels, np.arange(count))
            np.testing.assert_allclose(scores, np.full(count, 0.75))
        # The device is as usable as before.
        after = TorchCudaRunner(ModulePart(Classifier()), "fp16")
        assert after.cuda_graph
        after.run([make_image(0)])

    def test_a_stage_takes_what_another_left_on_the_device(self):
        torch.manual_seed(5)
        first = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ReLU())
        whole = torch.nn.Sequential(first, first)
        one = TorchCudaRunner(ModulePart(first), "fp16")
        other = TorchCudaRunner(ModulePart(first), "fp16")
        for seed in range(3):
            image = make_image(seed)
            maps = one.run([image])
            assert all(hasattr(value, "__cuda_array_interface__") for value in maps)
            assert maps[0].is_contiguous(memory_format=torch.channels_last)
            assert maps[0].dtype == torch.float32
            (found,) = other.to_host(other.run(maps))
            with torch.inference_mode():
                expected = whole(torch.from_numpy(image)).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-2)

    def test_outputs_stay_in_place(self):
        runner = TorchCudaRunner(ModulePart(Classifier()), "fp16")
        places = {runner.run([make_image(seed)])[0].data_ptr() for seed in range(3)}
        assert len(places) == 1

    def test_two_runners_on_two_threads(self):
        part = ModulePart(Classifier())
        runners = [TorchCudaRunner(part, "fp16") for _ in range(2)]
        expected = [r.to_host(r.run([make_image(i)]))[0].copy() for i, r in enumerate(runners)]
        wrong: list[int] = []

        def work(index):
            for _ in range(200):
                found = runners[index].to_host(runners[index].run([make_image(index)]))[0]
                if not np.array_equal(found, expected[index]):
                    wrong.append(index)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_a_network_that_fails(self):
        class Stubborn(torch.nn.Module):
            def forward(self, image):
                return image + torch.ones(image.shape)  # on the CPU, whatever the image

        with pytest.raises(ModelError, match="cannot be run on a CUDA device"):
            TorchCudaRunner(ModulePart(Stubborn()), "fp32")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_mapped_pinned_and_pageable_give_the_same_to_the_bit():
    runner = TorchCudaRunner(ModulePart(Classifier()), "fp32")
    outputs = []
    for kind in ("mapped", "pinned", "pageable"):
        runner.use_memory(kind)
        image = runner.allocate_input()
        runner.adopt_input(0, image)
        image[:] = make_image(0)
        (result, *_) = runner.to_host(runner.run([image]))
        assert (runner.copied_bytes < image.nbytes) == (kind == "mapped")
        outputs.append(result.copy())
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


class WithoutDevice(TorchCuda):
    """torch's memory of the host, and a made-up driver that says where it is mapped."""

    def __init__(self, driver):
        self._torch = torch
        self.driver = driver
        self._driver = CudaDriver(driver)  # type: ignore[misc]

    def allocate_host(self, shape, dtype):
        array = torch.zeros(tuple(shape), dtype=torch.uint8).numpy()
        self.driver.mapped[array.ctypes.data] = 0x203000000
        return array


def test_mapped_memory_of_torch_is_where_the_driver_says():
    cuda = WithoutDevice(FakeDriver())
    assert cuda.properties() == DeviceProperties(True, True, (8, 7))
    image = cuda.allocate_mapped((4, 6, 3), np.uint8)
    assert regions.find(image) == 0x203000000
    rows, whole = image[1:], image.nbytes
    del image
    gc.collect()
    assert regions.find(rows) == 0x203000000 + 18
    assert rows.nbytes == whole - 18
    cuda.driver.fail["cuMemHostGetDevicePointer_v2"] = 1
    with pytest.raises(CudaError, match="cuMemHostGetDevicePointer_v2"):
        cuda.allocate_mapped((4, 6, 3), np.uint8)
