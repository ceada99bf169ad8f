# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network whose kernels are tuned in seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from networks import make_model

from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.tvm.library import TvmVariant
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.running.engines import TuningOptions
from jetson_dnn_rt.variants.spec import VariantSpec

VARIANT = "full@tvm-fp32"
SIZE = (16, 16)
TRIALS = 2


class Tiny(torch.nn.Module):
    """Two convolutions, a mean and a matrix: with two stages there is one place to cut."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(11)
            self.layers = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, 2, 1),
                torch.nn.ReLU(),
                torch.nn.Conv2d(8, 8, 3, 1, 1),
                torch.nn.ReLU(),
                torch.nn.AdaptiveAvgPool2d(1),
                torch.nn.Flatten(),
                torch.nn.Linear(8, 5),
            )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.layers(image)


def make_tiny() -> Model:
    """The network as a model; a classifier of five."""
    return make_model(Tiny().eval(), SIZE)


def list_parts(model: Model, library: Library, stages: int) -> list[Part]:
    """The whole network, then each of its stages."""
    network = Network(model, stages, library)
    counts = (1,) if stages == 1 else (1, stages)
    return [piece.part for count in counts for piece in network.pieces("full", count)]


def open_variant(model: Model, library: Library, **options: object) -> TvmVariant:
    """The variant of this machine."""
    spec = VariantSpec.parse(VARIANT)
    return TvmVariant(model, spec, threads=1, library=library, **options)  # type: ignore[arg-type]


def tune(model: Model, library: Library, parts: Sequence[Part], trials: int = TRIALS) -> None:
    """Tune and compile parts."""
    open_variant(model, library, tuning=TuningOptions(trials)).prepare(parts)


def run(runner: object, shape: tuple[int, ...] = (1, 3, *SIZE)) -> np.ndarray:
    """The first output for one input."""
    image = np.random.default_rng(0).random(shape, np.float32)
    return runner.to_host(runner.run([image]))[0].copy()  # type: ignore[attr-defined]
