# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The built-in networks: sizes, layers, weights, and that the weights can see."""

import sys

import numpy as np
import pytest
import torch

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import BackendUnavailableError, ModelError
from jetson_dnn_rt.models.sources.files import hash_state
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.models.sources.torch import run_onnx

OUTPUTS = {"detector": [(1, 1200, 4), (1, 1200, 5)], "segmenter": [(1, 8, 240, 320)]}

# They change with a training alone, not with the file's format or the exporter.
WEIGHTS = {
    "detector": "517de6a998a6af2ccfe7b86aafac04e81fc339d670c4d96ce2500cfe4e036293",
    "segmenter": "6a727a67197648926349629dfc1c444a717549a81d9ad2bb4835919e97d93b91",
}

OTHER = {"detector": "segmenter", "segmenter": "detector"}

pytestmark = pytest.mark.parametrize("name", builtin.NAMES)


def run(network, image):
    with torch.inference_mode():
        outputs = network(image)
    return outputs if isinstance(outputs, tuple) else (outputs,)


@pytest.fixture
def image(name):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(1, 3, *builtin.INPUT_SIZE[name], generator=generator)


def test_size_of_the_network(name, image):
    network = builtin.build(name).eval()
    macs = []
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(
                lambda layer, _, output: macs.append(output.numel() * layer.weight[0].numel())
            )
    run(network, image)
    assert sum(p.numel() for p in network.parameters()) <= 1_500_000
    assert sum(macs) <= 0.3e9


def test_layers_can_be_decomposed(name):
    """Ordinary convolutions of 3x3 or 1x1, with channels in multiples of 8."""
    layers = [m for m in builtin.build(name).modules() if isinstance(m, torch.nn.Conv2d)]
    spatial = [layer for layer in layers if layer.kernel_size == (3, 3)]
    assert len(spatial) >= 10
    assert all(layer.kernel_size in ((3, 3), (1, 1)) and layer.groups == 1 for layer in layers)
    assert all(layer.out_channels % 8 == 0 for layer in spatial)
    assert all(layer.in_channels % 8 == 0 or layer.in_channels == 3 for layer in spatial)


def test_outputs(name, image):
    outputs = run(builtin.load(name), image)
    assert [tuple(output.shape) for output in outputs] == OUTPUTS[name]
    assert all(output.dtype == torch.float32 for output in outputs)
    if name == "detector":
        boxes, scores = outputs
        assert (boxes[..., 2:] > boxes[..., :2]).all()
        assert ((scores >= 0) & (scores <= 1)).all()
        assert scores.shape[2] == len(builtin.labels(name))
    else:
        assert outputs[0].shape[1] == len(builtin.labels(name))


def test_fx_graph_computes_the_same(name, image):
    network = builtin.load(name)
    traced = torch.fx.symbolic_trace(network)
    for expected, found in zip(run(network, image), run(traced, image), strict=True):
        assert torch.equal(expected, found)


def test_build_has_no_trained_weights(name):
    torch.manual_seed(0)
    network = builtin.build(name)
    assert builtin.weights_path(name).stat().st_size <= 4 << 20
    stored = builtin.load(name).state_dict()
    assert all(torch.isfinite(value).all() for value in stored.values())
    assert network.training
    assert any(not torch.equal(v, stored[k]) for k, v in network.state_dict().items())


def test_torch_takes_its_weights_from_the_file_bit_for_bit(name):
    assert hash_state(builtin.load(name).state_dict(), f"builtin:{name}") == WEIGHTS[name]


def test_the_file_computes_what_torch_computes(name, image):
    found = run_onnx(builtin.read(name), [image.numpy()], name)
    for expected, output in zip(run(builtin.load(name), image), found, strict=True):
        np.testing.assert_allclose(output, expected.numpy(), rtol=1e-5, atol=1e-4)


def test_it_runs_without_torch_and_onnx(name, monkeypatch):
    for package in ("torch", "onnx"):
        monkeypatch.setitem(sys.modules, package, None)
    model = load_model(f"builtin:{name}")
    assert model.onnx_model() == builtin.weights_path(name).read_bytes()
    with pytest.raises(BackendUnavailableError, match=f"builtin:{name} as a torch module needs"):
        model.torch_module()


BAD_FILES = {
    "weights of builtin:{name} cannot be read": lambda data, name: None,
    "are damaged": lambda data, name: data[: 100 if name == "detector" else 100_000],
    "is of another network": lambda data, name: builtin.weights_path(OTHER[name]).read_bytes(),
    "bytes: not this network": lambda data, name: data + bytes(8 << 20),
}


@pytest.mark.parametrize("words", BAD_FILES)
def test_bad_files_are_refused(name, words, tmp_path):
    path = tmp_path / "weights.onnx"
    data = BAD_FILES[words](builtin.weights_path(name).read_bytes(), name)
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ModelError, match=words.format(name=name)):
        builtin.load(name, path)


def test_unknown_name(name):
    for function in (builtin.build, builtin.load, builtin.read, builtin.labels):
        with pytest.raises(ValueError, match="name must be one of detector, segmenter"):
            function(f"{name}s")


def test_a_batch_is_each_of_its_images(name, image):
    network = builtin.load(name)
    images = (image, image.flip(3))
    whole = run(network, torch.cat(images))
    for index, one in enumerate(images):
        for batch, alone in zip(whole, run(network, one), strict=True):
            np.testing.assert_allclose(batch[index], alone[0], rtol=1e-3, atol=1e-3)
