# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Numbers that networks compute: weights as if they were trained, and errors of outputs.

With torchvision's random weights activations vanish within a few layers: all outputs are the
same, every box passes the threshold of a detector, and agreement is meaningless.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.torch import TorchOrigin
from jetson_dnn_rt.models.sources.torchvision_modules import OneStageModule

_LOGIT_DEVIATION = 2.0
_PASSING = 0.005  # share of (anchor, class) pairs over the detector's own threshold


def make_plausible(model: Model, inputs: Sequence[npt.NDArray[np.float32]]) -> Model:
    """Set the statistics of normalisations, and the background bias of SSD's head.

    `model` is one of ``torchvision:`` with weights ``none``; `inputs` are two or more preprocessed
    frames, [1, 3, H, W].
    """
    module = model.torch_module()
    batch = torch.from_numpy(np.concatenate(inputs))
    measure_norms(module, batch)
    with torch.no_grad():
        if isinstance(module, OneStageModule):
            _shape_scores(module, batch[:1])
    return replace(model, origin=TorchOrigin.of_module(model.source, module, model.input_size))


@torch.no_grad()
def measure_norms(module: torch.nn.Module, batch: torch.Tensor) -> None:
    """Set the statistics of all batch normalisations to those of a batch."""
    norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        norm.momentum = None  # a plain mean
        norm.reset_running_stats()
        norm.train()
    module(batch)
    module.eval()


def _shape_scores(module: OneStageModule, image: torch.Tensor) -> None:
    """Spread the scores, and let few boxes pass, as after training."""
    last = [block[-1] for block in module.head.classification_head.module_list]

    def find_logits() -> torch.Tensor:
        logits: torch.Tensor = module.head(list(module.backbone(image).values()))["cls_logits"][0]
        return logits

    scale = _LOGIT_DEVIATION / float(find_logits().std())
    for layer in last:
        layer.weight.mul_(scale)
    logits = find_logits()
    margins = (logits[:, 1:] - logits[:, :1]).flatten()
    shift = float(margins.quantile(1.0 - _PASSING)) - math.log(module.suppression.score_threshold)
    for layer in last:
        layer.bias.view(-1, logits.shape[1])[:, 0] += shift


def find_error(
    outputs: Sequence[npt.NDArray[Any]], reference: Sequence[npt.NDArray[Any]]
) -> float:
    """Find the largest difference, relative to the output's largest value.

    Infinite if shapes differ, or a value is not finite.
    """
    worst = 0.0
    for found, wanted in zip(outputs, reference, strict=True):
        if found.shape != wanted.shape or not np.isfinite(found).all():
            return math.inf
        gap = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
        worst = max(worst, float(gap / max(np.abs(wanted).max(), np.finfo(np.float32).tiny)))
    return worst
