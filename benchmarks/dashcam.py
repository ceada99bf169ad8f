# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Check a real motorway drive: YOLOX-nano and the built-in segmenter, 40 ms for each at 25 fps.

For every back end and precision of this machine, `jetson-dnn-rt run` plays the video twice: at its
own rate, where every frame must be accounted for; and slowly enough for all frames to be processed
(--slow-rate), where every box of score 0.4 or more that a plain ONNX Runtime run finds must be
found (same class, IoU at least 0.9; bf16 0.75). At least 98 % of the detector's frames must be met
by the first variant in the list, which is the default; the others have no bar.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.harness.options import BESIDE, DATA, VIDEO, YOLOX, Options
from benchmarks.harness.processes import run_command
from benchmarks.harness.tables import Report, flatten, say, say_verdict, tabulate
from jetson_dnn_rt.backends.registry import list_backends
from jetson_dnn_rt.errors import ConfigurationError

DEADLINE_MS = 40.0
MET_BAR = 0.98
SCORE = 0.4
CONFIDENCE = 0.3
IOU_BARS = {"fp32": 0.9, "bf16": 0.75}
RUN_LIMIT_S = 300.0

_SIZE, _STRIDES, _NMS_IOU = 416, (8, 16, 32), 0.45

Boxes = npt.NDArray[np.float32]
"""Rows of x1, y1, x2, y2, score, class; [N, 6]."""


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--data", DATA, f"folder with {VIDEO} and {YOLOX} ({BESIDE})", metavar="DIR")
    add("--variants", [], "of the detector (default: all there are)", metavar="NAME")
    add("--slow-rate", 5.0, "of the runs in which the boxes are checked", above=0, metavar="HZ")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run and check every variant; `ConfigurationError` when the data are missing."""
    video, model = args.data / VIDEO, args.data / YOLOX
    for file in (video, model):
        if not file.is_file():
            raise ConfigurationError(f"{file} is not there; fix: give the folder with --data")
    reference = YoloxReference(model)
    expected = [reference(image, SCORE) for image in read_video(video)]
    variants = {
        variant: _check_variant(variant, video, model, expected, args.slow_rate)
        for variant in args.variants or list_variants()
    }
    first = next(iter(variants.values()))
    return {
        "video": VIDEO,
        "model": YOLOX,
        "frames": len(expected),
        "boxes": sum(map(len, expected)),
        "deadline_ms": DEADLINE_MS,
        "bars": {"met_ratio": MET_BAR, "iou": IOU_BARS},
        "variants": variants,
        "passed": all(figures["passed"] for figures in variants.values())
        and first["met_ratio"] >= MET_BAR,
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a line for each variant."""
    return [
        tabulate(
            flatten(result["variants"]),
            "variant=name",
            ("frames", lambda row: f"{row['released']} of {result['frames']}"),
            "met=met_ratio:.1%, p50 ms=response_ms.p50:.1f, p99 ms=response_ms.p99:.1f",
            "checked=boxes_checked, missing=boxes_missing, worst IoU=worst_iou:.2f, passed",
        ),
        f"bar: {MET_BAR:.0%} met by the first, no box missing: {say_verdict(result['passed'])}",
    ]


def list_variants() -> list[str]:
    """List every back end and precision of this machine that runs networks."""
    return [
        f"full@{info.name}-{precision}"
        for info in list_backends()
        # TVM's kernels would have to be tuned for an hour first.
        if info.available and info.name not in ("null", "tvm")
        for precision in info.precisions
        if precision in IOU_BARS
    ]


def _check_variant(
    variant: str, video: Path, model: Path, expected: list[Boxes], slow_rate_hz: float
) -> dict[str, Any]:
    say(f"dashcam: {variant}")
    detector = _run(variant, video, model, ["--deadline", f"detector={DEADLINE_MS}"])
    with tempfile.TemporaryDirectory(prefix="dashcam-") as name:
        results = Path(name) / "results.jsonl"
        slow = ["--rate", f"{slow_rate_hz}", "--deadline", f"detector={1e3 / slow_rate_hz}"]
        say(f"dashcam: {variant}: boxes, at {slow_rate_hz:g} Hz")
        _run(variant, video, model, [*slow, "--results", str(results)])
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    found = {
        line["frame"]: line["boxes"]
        for line in lines
        if line["task"] == "detector" and line["outcome"] in ("met", "late")
    }
    bar = IOU_BARS[variant.rpartition("-")[2]]
    best = [
        best_iou(box, found.get(frame, ()))
        for frame, boxes in enumerate(expected)
        for box in boxes
    ]
    missing = sum(value < bar for value in best)
    accounted = detector["released"] == sum(detector["outcomes"].values()) == len(expected)
    return {
        **detector,
        "met_ratio": detector["outcomes"]["met"] / len(expected),
        "frames_checked": len(found),
        "boxes_checked": len(best),
        "boxes_missing": missing,
        "worst_iou": min(best, default=None),
        "iou_bar": bar,
        "passed": accounted and missing == 0 and len(best) > 0,
    }


def best_iou(box: Iterable[float], found: Iterable[Mapping[str, Any]]) -> float:
    """Find the largest IoU of a reference box with the detected boxes of its class."""
    *corners, _, class_id = box
    same = (other for other in found if other["class_id"] == str(int(class_id)))
    return max((iou(corners, other["xyxy"]) for other in same), default=0.0)


def _run(variant: str, video: Path, model: Path, options: list[str]) -> dict[str, Any]:
    """Run once; return the detector's part of the JSON."""
    answer = run_command(
        *("run", "--source", f"video:{video}", "--variant", f"detector={variant}"),
        *("--detector", f"onnx:{model}", "--segmenter", "builtin:segmenter"),
        *("--set", f"detector.confidence_threshold={CONFIDENCE}"),
        *("--deadline", f"segmenter={DEADLINE_MS}", *options),
        limit_s=RUN_LIMIT_S,
    )
    return dict(answer["tasks"]["detector"])


# -- the reference -------------------------------------------------------------------------------


class YoloxReference:
    """YOLOX by ONNX Runtime and numpy alone, on one image at a time.

    Written from the model's description (letterbox at the top left with 114, BGR, 0 to 255; raw
    offsets on strides 8, 16, 32); it shares no code with the package.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name
        grids, strides = [], []
        for stride in _STRIDES:
            cells = _SIZE // stride
            y, x = np.mgrid[0:cells, 0:cells]
            grids.append(np.stack([x, y], axis=-1).reshape(-1, 2))
            strides.append(np.full((cells * cells, 1), stride))
        self._grid, self._stride = np.concatenate(grids), np.concatenate(strides)

    def __call__(self, image: npt.NDArray[np.uint8], score: float) -> Boxes:
        """Find the boxes of at least this score, in pixels of the image."""
        height, width = image.shape[:2]
        ratio = min(_SIZE / height, _SIZE / width)
        size = (int(width * ratio), int(height * ratio))
        padded = np.full((_SIZE, _SIZE, 3), 114, np.float32)
        padded[: size[1], : size[0]] = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
        blob = np.ascontiguousarray(padded.transpose(2, 0, 1)[None])
        output: npt.NDArray[Any] = self._session.run(None, {self._input: blob})[0][0]
        centers = (output[:, :2] + self._grid) * self._stride
        sizes = np.exp(output[:, 2:4]) * self._stride
        scores = output[:, 4:5] * output[:, 5:]
        found = []
        for class_id in range(scores.shape[1]):
            keep = scores[:, class_id] >= score
            corners = np.hstack([centers[keep] - sizes[keep] / 2, centers[keep] + sizes[keep] / 2])
            rows = np.column_stack([corners / ratio, scores[keep, class_id]])
            kept: list[npt.NDArray[np.float64]] = []  # greedy suppression, best first
            for row in rows[np.argsort(-rows[:, 4])]:
                if all(iou(row, other) <= _NMS_IOU for other in kept):
                    kept.append(row)
            found += [[*row, class_id] for row in kept]
        boxes = np.array(found, np.float32).reshape(-1, 6)
        boxes[:, 0:4:2] = boxes[:, 0:4:2].clip(0, width)
        boxes[:, 1:4:2] = boxes[:, 1:4:2].clip(0, height)
        return boxes


def iou(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    a, b = np.asarray(first, float), np.asarray(second, float)
    sides = np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2])
    common = float(np.prod(sides.clip(0)))
    return common / float(np.prod(a[2:4] - a[:2]) + np.prod(b[2:4] - b[:2]) - common)


def read_video(path: Path) -> Iterator[npt.NDArray[np.uint8]]:
    """Frames of a video, BGR."""
    capture = cv2.VideoCapture(str(path))
    while True:
        done, image = capture.read()
        if not done:
            return
        yield np.asarray(image, np.uint8)
