"""Accuracy of the built-in models on held-out procedural road scenes.

Runs builtin:detector and builtin:segmenter (torch, fp32) through the package's own
preprocessing and decoding on scenes that no training run can have seen, and prints mAP@0.5
(all-point interpolation) and mIoU at the size of the frame. Passes when both reach the bar.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.demo.scenes import held_out_seed, random_scene
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.registry import Head
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Preprocessing
from jetson_dnn_rt.models.metrics import DetectionMetric, SegmentationMetric
from jetson_dnn_rt.results import Detections, Result, Segmentation

if TYPE_CHECKING:
    import torch

__all__ = [
    "METRICS", "add_arguments", "compare_accuracy", "format_table", "main", "make_pipeline", "run",
]  # fmt: skip

BAR = 0.85
METRICS = {"detector": "mAP@0.5", "segmenter": "mIoU"}
_HEADS = {"detector": "boxes_scores", "segmenter": "segmentation"}
# Average precision needs the whole curve, so nearly every score counts.
_SETTINGS = DecoderSettings(confidence=0.02, nms_iou=0.55, max_detections=100)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    parser.add_argument(
        "--scenes", type=_positive, default=500, metavar="N", help="held-out scenes (default 500)"
    )
    parser.add_argument(
        "--size",
        type=_size,
        default=(480, 640),
        metavar="WIDTHxHEIGHT",
        help="size of the frames in pixels (default 640x480)",
    )


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure both models.

    Returns
    -------
    dict
        ``map50``, ``miou``, ``ap50`` and ``iou`` by class, ``boxes`` (true boxes by class),
        ``bar``, ``passed``; a figure is None where no scene holds the class.

    Raises
    ------
    ModelError
        The weights are missing or damaged.
    """
    detect, segment = (make_pipeline(name, builtin.load(name)) for name in builtin.NAMES)
    boxes = DetectionMetric(len(builtin.DETECTOR_CLASSES))
    pixels = SegmentationMetric(len(builtin.SEGMENTER_CLASSES))
    started_ns = time.perf_counter_ns()
    for index in range(args.scenes):
        scene = random_scene(held_out_seed(index), args.size)
        frame = Frame(scene.image, "bgr8", 0, index)
        found = cast(Detections, detect(frame))
        boxes.add(found.boxes, found.scores, found.class_ids, scene.boxes, scene.class_ids)
        pixels.add(cast(Segmentation, segment(frame)).mask, scene.mask)
        if (index + 1) % 50 == 0:
            print(f"accuracy: {index + 1} of {args.scenes} scenes", file=sys.stderr, flush=True)
    map50, miou = boxes.mean(), pixels.mean()
    return {
        "benchmark": "accuracy",
        "scenes": args.scenes,
        "size": f"{args.size[1]}x{args.size[0]}",
        "map50": _figure(map50),
        "miou": _figure(miou),
        "ap50": _by_class(builtin.DETECTOR_CLASSES, boxes.average_precisions()),
        "iou": _by_class(builtin.SEGMENTER_CLASSES, pixels.ious()),
        "boxes": dict(zip(builtin.DETECTOR_CLASSES, map(int, boxes.truths), strict=True)),
        "bar": BAR,
        "seconds": round((time.perf_counter_ns() - started_ns) * 1e-9, 1),
        "passed": bool(map50 >= BAR and miou >= BAR),
    }


def format_table(result: dict[str, object]) -> str:
    """Return the result as a table for people."""
    ap50 = cast("dict[str, float | None]", result["ap50"])
    iou = cast("dict[str, float | None]", result["iou"])
    truths = cast("dict[str, int]", result["boxes"])
    lines = [f"{result['scenes']} held-out scenes of {result['size']}, bar {result['bar']}", ""]
    lines.append(f"{'builtin:detector':<18}{'AP@0.5':>8}{'boxes':>8}")
    lines += [f"  {label:<16}{_text(ap50[label]):>8}{truths[label]:>8}" for label in ap50]
    mean = _text(cast("float | None", result["map50"]))
    lines += [f"  {'mAP@0.5':<16}{mean:>8}{sum(truths.values()):>8}", ""]
    lines.append(f"{'builtin:segmenter':<18}{'IoU':>8}")
    lines += [f"  {label:<16}{_text(iou[label]):>8}" for label in iou]
    lines.append(f"  {'mIoU':<16}{_text(cast('float | None', result['miou'])):>8}")
    lines += ["", "passed" if result["passed"] else "NOT passed"]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark alone; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="jetson-dnn-rt bench accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    args = parser.parse_args(argv)
    result = run(args)
    print(json.dumps(result) if args.json else format_table(result))
    return 0 if result["passed"] else 1


def make_pipeline(
    name: builtin.BuiltinName, network: torch.nn.Module
) -> Callable[[Frame], Result]:
    """Make a function from a frame to what a network says about it.

    Parameters
    ----------
    name : str
        The built-in network that it is, or stands for.
    network : torch.nn.Module
        In evaluation mode.
    """
    import torch

    height, width = builtin.INPUT_SIZE[name]
    buffer = np.empty((1, 3, height, width), np.float32)
    preprocessor = Preprocessor(Preprocessing(height, width), buffer)
    head = Head(_HEADS[name], len(builtin.labels(name)), "known")
    decode = head.create_decoder((height, width))

    def infer(frame: Frame) -> Result:
        geometry = preprocessor.write(frame)
        with torch.inference_mode():
            outputs = network(torch.from_numpy(buffer))
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        return decode([tensor.numpy() for tensor in tensors], geometry, _SETTINGS)

    return infer


def compare_accuracy(
    name: builtin.BuiltinName,
    networks: Mapping[str, torch.nn.Module],
    scenes: int,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Show networks the same held-out scenes, and measure each against the truth.

    Parameters
    ----------
    name : str
        The built-in network that they all stand for.
    networks : mapping of str to torch.nn.Module
        In evaluation mode.
    scenes : int
        How many.
    progress : callable
        Told after every scene how many are done, and how many there are.

    Returns
    -------
    dict of str to float
        mAP@0.5 or mIoU of each network, in [0, 1].
    """
    pipelines = {key: make_pipeline(name, network) for key, network in networks.items()}
    metrics = {key: _make_metric(name) for key in networks}
    for index in range(scenes):
        scene = random_scene(held_out_seed(index))
        frame = Frame(scene.image, "bgr8", 0, index)
        for key, infer in pipelines.items():
            found, metric = infer(frame), metrics[key]
            if isinstance(metric, DetectionMetric):
                boxes = cast(Detections, found)
                metric.add(
                    boxes.boxes, boxes.scores, boxes.class_ids, scene.boxes, scene.class_ids
                )
            else:
                metric.add(cast(Segmentation, found).mask, scene.mask)
        progress(index + 1, scenes)
    return {key: metric.mean() for key, metric in metrics.items()}


def _make_metric(name: builtin.BuiltinName) -> DetectionMetric | SegmentationMetric:
    classes = len(builtin.labels(name))
    return DetectionMetric(classes) if name == "detector" else SegmentationMetric(classes)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _size(text: str) -> tuple[int, int]:
    width, cross, height = text.partition("x")
    if not cross or not width.isdigit() or not height.isdigit():
        raise argparse.ArgumentTypeError(f"must be WIDTHxHEIGHT in pixels, got {text!r}")
    if min(int(width), int(height)) < 64:
        raise argparse.ArgumentTypeError(f"must be at least 64x64 pixels, got {text}")
    return int(height), int(width)


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _by_class(labels: tuple[str, ...], values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    return {label: _figure(float(value)) for label, value in zip(labels, values, strict=True)}


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
