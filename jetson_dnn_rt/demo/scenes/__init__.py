"""Procedural road drives with ground truth: the built-in camera and the training data."""

from jetson_dnn_rt.demo.scenes.classes import DETECTOR_CLASSES, SEGMENTER_CLASSES
from jetson_dnn_rt.demo.scenes.generator import Scene, SceneGenerator
from jetson_dnn_rt.demo.scenes.seeds import (
    held_out_seed,
    random_scene,
    scene_stream,
    training_seed,
)

__all__ = [
    "DETECTOR_CLASSES",
    "SEGMENTER_CLASSES",
    "Scene",
    "SceneGenerator",
    "held_out_seed",
    "random_scene",
    "scene_stream",
    "training_seed",
]
