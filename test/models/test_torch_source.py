# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Modules of torch, and their way to ONNX."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from networks import Classifier, make_model

from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.model import make_probe_input
from jetson_dnn_rt.models.sources.torch import TorchOrigin, run_onnx


def test_export_agrees_with_torch():
    model = make_model(Classifier(), (32, 48))
    image = np.random.default_rng(0).random((1, 3, 32, 48), np.float32)
    (found,) = run_onnx(model.onnx_model(), [image], "it")
    with torch.inference_mode():
        expected = model.torch_module()(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert model.onnx_model() is model.onnx_model()  # exported once


class Branching(torch.nn.Module):
    """Traced, it keeps the branch that grey takes."""

    def forward(self, image):
        if float(image.std()) > 0.01:
            return image.mean((2, 3))
        return image.amax((2, 3)) * 2.0


def test_export_that_differs_is_refused():
    with pytest.raises(ModelError, match="differs from torch by"):
        TorchOrigin.of_module("branching", Branching(), (8, 8)).onnx_model()


class Failing(torch.nn.Module):
    def forward(self, image):
        raise ValueError("only 7x7")


class Words(torch.nn.Module):
    def forward(self, image):
        return "no tensor"


@pytest.mark.parametrize(
    ("module", "words"), [(Failing(), "cannot be run on.*only 7x7"), (Words(), "returns str")]
)
def test_modules_that_do_not_run(module, words):
    with pytest.raises(ModelError, match=words):
        TorchOrigin.of_module("bad", module, (8, 8)).probe(make_probe_input(8, 8))
