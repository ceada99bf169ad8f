"""Check a real motorway drive: YOLOX-nano and the built-in segmenter, 40 ms for each at 25 fps.

For every back end and precision there is here, `jetson-dnn-rt run` on the video twice: at its own
rate, where every frame must be accounted for; and slowly enough for all frames to be processed
(--slow-rate), where every box of score 0.4 or more that a plain ONNX Runtime run finds must be
there (same class, IoU at least 0.9; bf16 0.75). At least 98 % of the detector's frames must be met
by the variant that is listed first, which is the default; the others show what they reach.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.protocol import BenchmarkError
from benchmarks.yolox_reference import Boxes, YoloxReference, iou, read_video
from jetson_dnn_rt.backends.registry import list_backends
from jetson_dnn_rt.cli.text import format_rows
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.children import child_environment, python_command

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
VIDEO, MODEL = "video/dashcam_white_right.mp4", "models/yolox_nano.onnx"
DEADLINE_MS = 40.0
MET_BAR = 0.98
SCORE = 0.4
CONFIDENCE = 0.3
IOU_BARS = {"fp32": 0.9, "bf16": 0.75}
RUN_LIMIT_S = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR",
        help=f"folder with {VIDEO} and {MODEL} (default: ../shared/data beside the checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--variants", nargs="+", metavar="NAME", help="of the detector (default: all there are)"
    )
    parser.add_argument(
        "--slow-rate", type=float, default=5.0, metavar="HZ",
        help="of the runs in which the boxes are checked (default 5)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> dict[str, object]:
    """Run and check every variant.

    Raises
    ------
    ConfigurationError
        When the data are not there.
    BenchmarkError
        When a run fails.
    """
    video, model = args.data / VIDEO, args.data / MODEL
    for file in (video, model):
        if not file.is_file():
            raise ConfigurationError(f"{file} is not there: give the folder with --data")
    reference = YoloxReference(model)
    expected = [reference(image, SCORE) for image in read_video(video)]
    variants = {
        variant: _check_variant(variant, video, model, expected, args.slow_rate)
        for variant in args.variants or list_variants()
    }
    return {
        "video": VIDEO,
        "model": MODEL,
        "frames": len(expected),
        "boxes": sum(map(len, expected)),
        "deadline_ms": DEADLINE_MS,
        "bars": {"met_ratio": MET_BAR, "iou": IOU_BARS},
        "variants": variants,
        "passed": all(figures["passed"] for figures in variants.values())
        and next(iter(variants.values()))["met_ratio"] >= MET_BAR,
    }


def format_table(result: dict[str, Any]) -> str:
    """The result for people."""
    header = ["variant", "frames", "met %", "p50 ms", "p99 ms", "checked", "missing", "worst IoU"]
    rows = [
        [
            name,
            f"{figures['released']} of {result['frames']}",
            100.0 * figures["met_ratio"],
            figures["response_ms"]["p50"],
            figures["response_ms"]["p99"],
            figures["boxes_checked"],
            figures["boxes_missing"],
            figures["worst_iou"],
            figures["passed"],
        ]
        for name, figures in result["variants"].items()
    ]
    return format_rows([*header, "passed"], rows)


def list_variants() -> list[str]:
    """Every back end and precision of this machine that runs networks."""
    return [
        f"full@{info.name}-{precision}"
        for info in list_backends()
        # Kernels of TVM are tuned for an hour first.
        if info.available and info.name not in ("null", "tvm")
        for precision in info.precisions
        if precision in IOU_BARS
    ]


def _check_variant(
    variant: str, video: Path, model: Path, expected: list[Boxes], slow_rate_hz: float
) -> dict[str, Any]:
    _say(variant)
    detector = _run(variant, video, model, ["--deadline", f"detector={DEADLINE_MS}"])
    with tempfile.TemporaryDirectory(prefix="dashcam-") as name:
        results = Path(name) / "results.jsonl"
        slow = ["--rate", f"{slow_rate_hz}", "--deadline", f"detector={1e3 / slow_rate_hz}"]
        _say(f"{variant}: boxes, at {slow_rate_hz:g} Hz")
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


def _say(text: str) -> None:
    print(f"dashcam: {text}", file=sys.stderr, flush=True)


def best_iou(box: Iterable[float], found: Iterable[Mapping[str, Any]]) -> float:
    """Largest IoU of a reference box with the boxes of its class that were found."""
    *corners, _, class_id = box
    same = (other for other in found if other["class_id"] == str(int(class_id)))
    return max((iou(corners, other["xyxy"]) for other in same), default=0.0)


def _run(variant: str, video: Path, model: Path, options: list[str]) -> dict[str, Any]:
    """The detector's part of the JSON of one run."""
    command = [
        *python_command("jetson_dnn_rt.cli.main", "run", "--json"),
        *("--source", f"video:{video}", "--variant", f"detector={variant}"),
        *("--detector", f"onnx:{model}", "--segmenter", "builtin:segmenter"),
        *("--set", f"detector.confidence_threshold={CONFIDENCE}"),
        *("--deadline", f"segmenter={DEADLINE_MS}", *options),
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=RUN_LIMIT_S, env=child_environment()
    )
    if done.returncode != 0:
        raise BenchmarkError(f"{variant}: run ended with {done.returncode} (see above)")
    detector: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["tasks"]["detector"]
    return detector
