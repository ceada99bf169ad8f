# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network that TVM tunes in seconds, and tuning that can be followed."""

from __future__ import annotations

from typing import Any

import torch
from networks import make_model

from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.tvm.database import TuningDatabase
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.tuning import TuningState, tune

SIZE = (16, 24)


class Small(torch.nn.Module):
    """What a detector is made of: a stem, a depthwise pair with ReLU6, an addition, a head."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.stem = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)
            self.norm = torch.nn.BatchNorm2d(8)
            self.depthwise = torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8)
            self.pointwise = torch.nn.Conv2d(8, 8, 1)
            self.head = torch.nn.Linear(8, 5)
            self.norm.running_mean.uniform_(-0.2, 0.2)
            self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.stem(image)).relu()
        x = x + self.pointwise(torch.nn.functional.relu6(self.depthwise(x)))
        return self.head(x.mean((2, 3)))


def make_small() -> Model:
    """The network as a model."""
    return make_model(Small().eval(), SIZE)


def tune_model(
    model: Model, database: TuningDatabase, *, trials: int = 2, **options: Any
) -> TuningState:
    """Lower and tune the whole of a model."""
    return tune(lower(model, "fp32", database.target), database, trials, **options)
