# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Every back end against torch on small networks, and what they promise."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from networks import BoxesAndScores, BrightColumns, Classifier, make_model

from jetson_dnn_rt.backends.base import RunnerClosedError
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph.empty_branches import compute_empty_lists
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.network import IMAGE, Network, run_piece
from jetson_dnn_rt.variants.spec import FULL

SIZE = (32, 48)

VARIANTS = [
    ("torch", "fp32"),
    ("torch", "bf16"),
    ("onnxruntime", "fp32"),
    ("openvino", "fp32"),
    ("openvino", "bf16"),
]


def create(model, backend, precision, threads=1):
    info = inspect_backend(backend)
    if not info.available:
        pytest.skip(f"{backend}: {info.reason}")
    if precision not in info.precisions:
        pytest.skip(f"{backend} has no {precision} here: {info.reason}")
    return create_runner(model, backend, precision, threads=threads)


def compute(runner, image):
    return runner.to_host(runner.run([image]))


def make_image(seed):
    return np.random.default_rng(seed).random((1, 3, *SIZE), np.float32)


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
@pytest.mark.parametrize("network", [Classifier, BoxesAndScores])
def test_agrees_with_torch(network, backend, precision):
    model = make_model(network(), SIZE)
    module = model.torch_module()
    runner = create(model, backend, precision)
    assert runner.allocate_input().shape == (1, 3, *SIZE)
    assert runner.allocate_input().dtype == np.float32
    assert runner.input_shapes == ((1, 3, *SIZE),)
    assert (runner.backend, runner.precision) == (backend, precision)
    assert runner.version
    for seed in range(3):
        image = make_image(seed)
        outputs = compute(runner, image)
        with torch.inference_mode():
            expected = module(torch.from_numpy(image))
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert len(outputs) == len(expected)
        for output, wanted in zip(outputs, expected, strict=True):
            assert output.dtype == np.float32
            # bf16 has 8 bits; around 4000 that would be steps of 16.
            tolerance = 1e-4 if precision == "fp32" else 0.02
            np.testing.assert_allclose(output, wanted.numpy(), rtol=1e-4, atol=tolerance)
        first = [output.copy() for output in outputs]
        np.testing.assert_array_equal(image, make_image(seed))
        for one, other in zip(first, compute(runner, image), strict=True):
            np.testing.assert_array_equal(one, other)
    for _ in range(2):
        runner.close()
    with pytest.raises(RunnerClosedError, match=backend):
        compute(runner, make_image(0))


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
def test_short_types_are_really_used(backend, precision):
    model = make_model(Classifier(), SIZE)
    runner = create(model, backend, precision)
    with torch.inference_mode():
        exact = model.torch_module()(torch.from_numpy(make_image(0))).numpy()
    error = float(np.abs(compute(runner, make_image(0))[0] - exact).max())
    assert (error > 1e-4) == (precision == "bf16")


@pytest.mark.parametrize(("backend", "precision"), [v for v in VARIANTS if v[0] != "torch"])
def test_fixed_outputs_are_one_buffer(backend, precision):
    """No copy: the library reads our input and writes our outputs."""
    runner = create(make_model(BoxesAndScores(), SIZE), backend, precision)
    addresses = []
    for seed in range(3):
        addresses.append([output.ctypes.data for output in runner.run([make_image(seed)])])
    assert addresses[0] == addresses[1] == addresses[2]


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
def test_either_memory_layout_and_changing_buffers(backend, precision):
    """Boundary tensors come from other back ends: in C order or channels last, anywhere."""
    runner = create(make_model(BoxesAndScores(), SIZE), backend, precision)
    for seed in range(3):
        image = make_image(seed)
        expected = [output.copy() for output in compute(runner, image)]
        channels_last = np.ascontiguousarray(image.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        assert not channels_last.flags.c_contiguous
        for value in (channels_last, image.copy(), channels_last.copy(order="K")):
            for one, other in zip(compute(runner, value), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-5)


def test_maps_inside_openvino_have_their_channels_last():
    """As its kernels compute: at a boundary nothing is copied, and no layout is converted."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    model = load_model("builtin:segmenter")
    network = Network(model, 4)
    whole = create(model, "openvino", "fp32")
    image = np.random.default_rng(0).random(model.input_shape, np.float32)
    values, maps = {IMAGE: image}, 0
    for piece in network.pieces(FULL):
        runner = create(piece.part, "openvino", "fp32")
        given = run_piece(piece, runner, values)
        assert runner.copied_bytes == 0
        for name, value in zip(piece.outputs, given, strict=True):
            is_map = value.ndim == 4 and value.shape[1] > 4 and name not in piece.results
            assert value.transpose(0, 2, 3, 1).flags.c_contiguous == is_map
            maps += is_map
    assert maps >= 3
    results = [values[name] for name in piece.results]
    for one, other in zip(results, whole.run([image]), strict=True):
        assert one.flags.c_contiguous
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_map_in_another_layout_is_copied(backend):
    """A stage of another back end came before."""
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    part = Network(load_model("builtin:segmenter"), 4).pieces(FULL)[1].part
    runner = create(part, backend, "fp32")
    rng = np.random.default_rng(0)
    planar = [rng.random(shape, np.float32) for shape in part.input_shapes]
    last = [
        np.ascontiguousarray(value.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for value in planar
    ]
    expected = [value.copy() for value in runner.run(list(planar))]
    assert (runner.copied_bytes > 0) == (backend == "openvino")
    for one, other in zip(runner.run(list(last)), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (runner.copied_bytes > 0) == (backend == "onnxruntime")


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
def test_outputs_whose_length_changes(backend, precision):
    runner = create(make_model(BrightColumns(), SIZE), backend, precision)
    image = runner.allocate_input()
    for count in (3, 0, 7, 48):
        image[:] = 0.0
        image[0, 0, 0, :count] = 0.75
        boxes, labels, scores = compute(runner, image)
        assert boxes.shape == (count, 4)
        np.testing.assert_array_equal(labels, np.arange(count))
        assert np.issubdtype(labels.dtype, np.integer)
        np.testing.assert_allclose(scores, np.full(count, 0.75))


class SuppressedColumns(BrightColumns):
    """Its boxes of one label suppress each other, in a branch that an empty list does not take."""

    def forward(self, image):
        boxes, labels, scores = super().forward(image)
        keep = pytest.importorskip("torchvision").ops.batched_nms(boxes, scores, labels, 0.5)
        return boxes[keep], labels[keep], scores[keep]


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
def test_a_picture_without_objects_has_no_boxes(backend, precision):
    model = make_model(SuppressedColumns(), SIZE)
    nodes = onnx.load_from_string(model.onnx_model()).graph.node
    assert "If" in {node.op_type for node in nodes}
    runner = create(model, backend, precision)
    image = runner.allocate_input()
    for count in (3, 0, 7, 0):
        image[:] = 0.0
        image[0, 0, 0, :count] = 0.75
        shapes = [output.shape for output in compute(runner, image)]
        assert shapes == [(count, 4), (count,), (count,)]


def test_graphs_without_empty_branches_stay_as_they_are():
    data = make_model(Classifier(), SIZE).onnx_model()
    assert compute_empty_lists(data) is data
    rewritten = compute_empty_lists(make_model(SuppressedColumns(), SIZE).onnx_model())
    onnx.checker.check_model(onnx.load_from_string(rewritten))
    assert compute_empty_lists(rewritten) is rewritten


@pytest.mark.parametrize(("backend", "precision"), VARIANTS)
def test_runners_of_one_model_share_nothing_that_changes(backend, precision):
    model = make_model(Classifier(), SIZE)
    one, other = create(model, backend, precision), create(model, backend, precision)
    first = compute(one, make_image(1))[0]
    before = first.copy()
    second = compute(other, make_image(2))[0]
    np.testing.assert_array_equal(first, before)
    assert not np.array_equal(first, second)
    one.close()
    np.testing.assert_array_equal(compute(other, make_image(2))[0], second)


@pytest.mark.parametrize("backend", ["torch", "onnxruntime", "openvino"])
def test_two_threads_compute_the_same(backend):
    model = make_model(Classifier(), SIZE)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            runner = create(model, backend, "fp32", threads)
            results.append(compute(runner, make_image(0))[0].copy())
            if backend == "torch":
                assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(results[0], results[1], atol=1e-5)


class DamagedOrigin:
    def onnx_model(self):
        return b"no model"


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_network_that_the_library_refuses(backend):
    model = make_model(Classifier(), SIZE)
    object.__setattr__(model, "origin", DamagedOrigin())
    with pytest.raises(ModelError, match=f"cannot be loaded by {backend}"):
        create(model, backend, "fp32")


SIGNAL_AFTER_RUNNERS = """
import os, signal
from jetson_dnn_rt.backends.openvino import OpenVinoRunner, supports_bf16
from jetson_dnn_rt.models.sources.registry import load_model

supports_bf16()
part = load_model("builtin:detector")
first, second = (OpenVinoRunner(part, "fp32", 1) for _ in range(2))
first.close()
second.close()
del first, second
seen = []
signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
for _ in range(3):
    os.kill(os.getpid(), signal.SIGINT)
print(len(seen))
"""


def test_a_signal_after_closed_runners_is_handled():
    """Ctrl-C in `build`: it ends in order, and not with a segmentation fault."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    command = [sys.executable, "-c", SIGNAL_AFTER_RUNNERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
