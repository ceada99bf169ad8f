# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Accuracy of the built-in models on held-out procedural road scenes.

Runs builtin:detector and builtin:segmenter (torch, fp32) through the package's own preprocessing
and decoding on scenes that no training run can have seen, and prints mAP@0.5 (all-point
interpolation) and mIoU at the size of the frame. Passes when both reach the bar.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.options import Options, read_size
from benchmarks.harness.tables import Report, Table, say, say_bars
from benchmarks.harness.tasks import SIZE
from jetson_dnn_rt.cli.text import format_figure
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.box_lists import decode_boxes_scores
from jetson_dnn_rt.models.heads.logits import MaskDecoder
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.metrics import DetectionMetric, SegmentationMetric
from jetson_dnn_rt.results import Detections, Segmentation

BAR = 0.85
METRICS = {"detector": "mAP@0.5", "segmenter": "mIoU"}
# Average precision needs the whole curve, so nearly every score counts.
_SETTINGS = DecoderSettings(confidence=0.02, nms_iou=0.55, max_detections=100)

Network = Callable[[torch.Tensor], Any]


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--scenes", 500, "held-out scenes", metavar="N", least=1)
    add(
        "--size", SIZE, "of the frames in pixels (default 640x480)", kind=_read_frame_size,
        metavar="WIDTHxHEIGHT",
    )  # fmt: skip


def _read_frame_size(text: str) -> tuple[int, int]:
    size = read_size(text)
    if min(size) < 64:
        raise argparse.ArgumentTypeError(f"must be at least 64x64 pixels: {text}")
    return size


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure both models; a figure is None if no scene has the class."""
    started_ns = time.perf_counter_ns()
    boxes, pixels = (
        _measure(name, {name: builtin.load(name)}, args.scenes, args.size, _say_progress)[name]
        for name in builtin.NAMES
    )
    map50, miou = boxes.mean(), pixels.mean()
    result = {
        "scenes": args.scenes,
        "size": f"{args.size[1]}x{args.size[0]}",
        "map50": _figure(map50),
        "miou": _figure(miou),
        "ap50": _by_class(builtin.DETECTOR_CLASSES, boxes.average_precisions()),
        "iou": _by_class(builtin.SEGMENTER_CLASSES, pixels.ious()),
        "boxes": dict(zip(builtin.DETECTOR_CLASSES, map(int, boxes.truths), strict=True)),
        "bar": BAR,
        "seconds": round((time.perf_counter_ns() - started_ns) * 1e-9, 1),
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool:
    """Judge a result, also one that was written before."""
    return all((result[name] or 0.0) >= BAR for name in ("map50", "miou"))


def _say_progress(done: int, total: int) -> None:
    if done % 50 == 0:
        say(f"accuracy: {done} of {total} scenes")


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each model, by class."""
    ap50 = [
        [label, format_figure(value, 3), result["boxes"][label]]
        for label, value in result["ap50"].items()
    ]
    ap50.append(["mAP@0.5", format_figure(result["map50"], 3), sum(result["boxes"].values())])
    iou = [[label, format_figure(value, 3)] for label, value in result["iou"].items()]
    iou.append(["mIoU", format_figure(result["miou"], 3)])
    return [
        f"{result['scenes']} held-out scenes of {result['size']}",
        Table(["builtin:detector", "AP@0.5", "boxes"], ap50),
        Table(["builtin:segmenter", "IoU"], iou),
        say_bars(f"mAP@0.5 and mIoU >= {result['bar']}", result["passed"]),
    ]


def compare_accuracy(
    name: builtin.BuiltinName,
    networks: Mapping[str, Network],
    scenes: int,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Measure mAP@0.5 or mIoU, in [0, 1], of networks instead of a built-in one; same scenes."""
    found = _measure(name, networks, scenes, SIZE, progress)
    return {key: metric.mean() for key, metric in found.items()}


def _measure(
    name: builtin.BuiltinName,
    networks: Mapping[str, Network],
    scenes: int,
    size: tuple[int, int],
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Measure networks that are, or replace, a built-in one."""
    height, width = builtin.INPUT_SIZE[name]
    buffer = np.empty((1, 3, height, width), np.float32)
    preprocessor = Preprocessor(Preprocessing(height, width), buffer)
    classes = len(builtin.labels(name))
    decode = decode_boxes_scores if name == "detector" else MaskDecoder((height, width))
    make = DetectionMetric if name == "detector" else SegmentationMetric
    metrics: dict[str, Any] = {key: make(classes) for key in networks}
    for index in range(scenes):
        scene = random_scene(held_out_seed(index), size)
        geometry = preprocessor.write(Frame(scene.image, "bgr8", 0, index))
        for key, network in networks.items():
            with torch.inference_mode():
                outputs = network(torch.from_numpy(buffer))
            tensors = outputs if isinstance(outputs, tuple) else (outputs,)
            found = decode([tensor.numpy() for tensor in tensors], geometry, _SETTINGS)
            if isinstance(found, Detections):
                truth = (scene.boxes, scene.class_ids)
                metrics[key].add(found.boxes, found.scores, found.class_ids, *truth)
            else:
                metrics[key].add(cast(Segmentation, found).mask, scene.mask)
        progress(index + 1, scenes)
    return metrics


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _by_class(labels: tuple[str, ...], values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    return {label: _figure(float(value)) for label, value in zip(labels, values, strict=True)}
