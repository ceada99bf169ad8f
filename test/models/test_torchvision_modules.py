# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""torchvision's networks as they are run here: the same bits, and most of them traceable."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from networks import calibrate
from torchvision.models import get_model

from jetson_dnn_rt.models.graph.tracing import TraceError, trace
from jetson_dnn_rt.models.sources.torch import export_onnx, run_onnx
from jetson_dnn_rt.models.sources.torchvision_modules import (
    OneStageModule,
    SegmentationModule,
    TwoStageModule,
    wrap,
)

DETECTORS = {
    "ssdlite320_mobilenet_v3_large": (320, 320),
    "retinanet_resnet50_fpn": (128, 192),
    "fcos_resnet50_fpn": (128, 192),
}


def build(name):
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        return get_model(name, weights=None, weights_backbone=None).eval()


def make_image(size):
    return torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(5))


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("name", "size"), DETECTORS.items())
def test_one_stage_detectors_are_bit_for_bit_torchvisions(name, size):
    network = build(name)
    network.score_thresh = 1e-3  # random weights are sure of nothing
    original = TwoStageModule(copy.deepcopy(network))  # torchvision's own forward
    module = wrap(network, "detection", size)
    assert isinstance(module, OneStageModule)
    image = make_image(size)
    with torch.inference_mode():
        expected = original(image)
        assert len(expected[0]) > 10
        assert_same(module(image), expected)
        graph = trace(module)
        assert_same(graph(image), expected)
        assert_same(copy.deepcopy(graph)(image), expected)
    leaves = [n for n in graph.graph.nodes if n.op == "call_module" and n.target == "suppression"]
    assert len(leaves) == 1


def test_the_last_step_of_a_detector_does_not_hold_its_weights():
    module = wrap(build("ssdlite320_mobilenet_v3_large"), "detection", (320, 320))
    suppression = module.get_submodule("suppression")
    assert [name for name, _ in suppression.named_buffers()] == ["anchors"]
    assert not list(suppression.parameters())
    shell = suppression._rules[0]
    assert not list(shell.parameters())
    assert not list(shell.children())
    assert "SSD, size=(320, 320), score_thresh=0.001, nms_thresh=0.55" in repr(suppression)


def test_boxes_are_computed_in_fp32_whatever_the_network_gives():
    module = wrap(build("ssdlite320_mobilenet_v3_large"), "detection", (320, 320))
    suppression = module.get_submodule("suppression")
    anchors = suppression.anchors
    boxes = torch.zeros(1, len(anchors), 4, dtype=torch.bfloat16)
    logits = torch.zeros(1, len(anchors), 91, dtype=torch.bfloat16)
    logits[0, 700, 3] = 8.0
    found, labels, scores = suppression(boxes, logits)
    best = int(scores.argmax())
    assert int(labels[best]) == 3
    torch.testing.assert_close(found[best], anchors[700].clamp(0, 320), rtol=0, atol=1e-4)


def test_two_stage_detectors_run_whole():
    network = build("fasterrcnn_mobilenet_v3_large_320_fpn")
    module = wrap(network, "detection", (128, 192))
    assert isinstance(module, TwoStageModule)
    with torch.inference_mode():
        boxes, labels, scores = module(make_image((128, 192)))
    assert boxes.shape == (len(scores), 4)
    assert len(labels) == len(scores)
    with pytest.raises(TraceError, match="symbolic"):
        trace(module)


@pytest.mark.parametrize("name", ["deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"])
def test_segmentation_is_bit_for_bit_torchvisions(name):
    network = build(name)
    original = copy.deepcopy(network)
    module = SegmentationModule(network, (96, 128))
    image = make_image((96, 128))
    with torch.inference_mode():
        expected = original(image)["out"]
        assert torch.equal(module(image), expected)
        assert torch.equal(trace(module)(image), expected)


def test_inception_with_its_own_normalisation_is_traced():
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        network = get_model("inception_v3", weights=None, init_weights=False).eval()
    network.transform_input = True
    image = make_image((299, 299))
    with torch.inference_mode():
        expected = network(image)
        assert isinstance(expected, torch.Tensor)
        assert torch.equal(trace(network)(image), expected)


def test_an_exported_detector_finds_the_same_boxes():
    network = calibrate(build("ssdlite320_mobilenet_v3_large"), (320, 320), as_list=True)
    module = wrap(network, "detection", (320, 320)).eval()
    image = make_image((320, 320))
    with torch.inference_mode():
        expected = [output.numpy() for output in module(image)]
    assert len(set(expected[2].tolist())) > 100  # not all the same
    data = export_onnx(module, ((1, 3, 320, 320),), "ssdlite")
    found = run_onnx(data, [image.numpy()], "ssdlite")
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-4)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], atol=0.01)
