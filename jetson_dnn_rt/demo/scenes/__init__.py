# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Procedural road drives with ground truth: the built-in camera and the training data."""

from jetson_dnn_rt.demo.scenes.generator import (
    Scene,
    SceneGenerator,
    held_out_seed,
    random_scene,
    training_seed,
)
from jetson_dnn_rt.demo.scenes.plan import DETECTOR_CLASSES, SEGMENTER_CLASSES

__all__ = [
    "DETECTOR_CLASSES", "SEGMENTER_CLASSES", "Scene", "SceneGenerator", "held_out_seed",
    "random_scene", "training_seed",
]  # fmt: skip
