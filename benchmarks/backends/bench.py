# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The same networks on every back end, whole and cut into stages, and on OpenCV's DNN module.

All runs of a model take turns, round by round, in one process with as many threads each. Times are
of the network alone, without preprocessing and decoding. The error is the largest deviation from
torch eager relative to the largest value of that output; agreement is mAP@0.5, mIoU or top-1
against torch's results on the same frames, and the only measure for lists of boxes.
``torch-eager`` is the obvious first version: fp32, torch's own settings; the other rows are this
package's back ends. Networks of torchvision have random weights (see `make_plausible`), the
others trained ones.

Passes if for every model the fastest back end takes at most half the time of torch eager and at
most half that of OpenCV DNN, if its result is correct, and stages cost torch-fp32 at most 2 %.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.backends.opencv import OpenCvRunner, check_engine, list_engines
from benchmarks.harness.networks import (
    Chain,
    EagerRunner,
    Lineup,
    describe_model,
    load_plausible,
    report_models,
)
from benchmarks.harness.options import BESIDE, CORES, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.processes import busy_cores
from benchmarks.harness.tables import Report, say, say_verdict
from benchmarks.harness.timing import Times, quantile_ms
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.spec import FULL

MODELS = {
    "resnet50": "torchvision:resnet50",
    "mobilenet_v3_large": "torchvision:mobilenet_v3_large",
    "ssdlite320": "torchvision:ssdlite320_mobilenet_v3_large",
    "deeplabv3": "torchvision:deeplabv3_mobilenet_v3_large",
    "yolox_nano": f"onnx:{YOLOX}",
    "detector": "builtin:detector",
    "segmenter": "builtin:segmenter",
}
REFERENCE = "torch-eager"
STAGED = "torch-fp32"
OPENCV = "opencv-fp32"
BACKENDS = (
    REFERENCE, STAGED, "torch-bf16", "onnxruntime-fp32", "openvino-fp32", "openvino-bf16", OPENCV
)  # fmt: skip
STAGES = 8
SPEEDUP_BAR = 2.0
STAGING_BAR_PERCENT = 2.0
_FRAMES, _QUICK_FRAMES = 8, 2
_WRONG = "its result is not that of the other back ends"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(MODELS), "default: all", choices=MODELS)
    add("--backends", list(BACKENDS), f"default: all; {REFERENCE} always runs", choices=BACKENDS)
    add("--threads", CORES, "of one run (default: all cores)", least=1)
    add("--stages", STAGES, "into which the networks are cut; 1: only whole", least=1)
    add("--busy", 0, "busy programs beside the measurement", least=0)
    add("--data", DATA, f"folder with {VIDEO} and {YOLOX} ({BESIDE})", metavar="DIR")
    add("--seconds", None, "of measuring for one model (default 30)", kind=float, above=0)
    add("--quick", False, "2 s for one model, fewer frames")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models; one that cannot be loaded is left out, with the reason."""
    args.seconds = args.seconds or (2.0 if args.quick else 30.0)
    models: dict[str, dict[str, Any]] = {}
    with busy_cores(args.busy):
        for name in args.models:
            say(f"backends: {name}")
            try:
                model, frames = load(name, args.data)
            except JetsonDnnRtError as error:
                models[name] = {"skipped": str(error)}
            else:
                shown = frames[:_QUICK_FRAMES] if args.quick else frames
                models[name] = measure_model(model, shown, args)
    return {
        "models": models,
        **echo(args, "threads busy"),
        "bars": {
            "times_faster_than_torch": SPEEDUP_BAR,
            "times_faster_than_opencv": SPEEDUP_BAR,
            "staging_overhead_percent": STAGING_BAR_PERCENT,
        },
        "passed": all("skipped" in found or found["passed"] for found in models.values()),
    }


def load(name: str, data: Path) -> tuple[Model, list[Frame]]:
    """Load a model of `MODELS`, and frames for it.

    `JetsonDnnRtError` when the model cannot be loaded here.
    """
    source = MODELS[name]
    if source == f"onnx:{YOLOX}":
        if not (data / YOLOX).is_file():
            raise ModelError(f"{data / YOLOX} is not there; fix: give --data")
        source = f"onnx:{data / YOLOX}"
    road = (data / VIDEO).is_file() and not source.startswith("builtin:")
    frames = list(open_frames(f"video:{data / VIDEO}" if road else "synthetic", _FRAMES))
    return load_plausible(source, frames), frames


def measure_model(
    model: Model, frames: Sequence[Frame], args: argparse.Namespace
) -> dict[str, Any]:
    """Measure one model on the back ends; plain torch is the reference."""
    backends = [name for name in BACKENDS if name == REFERENCE or name in args.backends]
    images = prepare_inputs(model, frames)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # Exported stages are shared by the back ends that read ONNX.
        network = Network(model, args.stages, Library(Path(folder)))
        lineup = Lineup(model, frames, stack)
        for name in backends:
            if name == OPENCV:
                add_opencv(lineup, network, args.threads, images)
                continue
            make = partial(make_runner, name, args.threads)
            lineup.add(name, partial(Chain, network.pieces(FULL, 1), make))
            if network.stages > 1 and name != REFERENCE:
                lineup.add(f"{name} staged", partial(Chain, network.pieces(FULL), make))
        times = lineup.measure(images[0], budget_s=args.seconds, least=3)
        return _summarize(model, network.stages, backends, times, lineup)


def make_runner(name: str, threads: int, part: Part) -> Runner:
    """Make a runner of one of `BACKENDS` except OpenCV."""
    if name == REFERENCE:
        return EagerRunner(part, threads)
    backend, precision = name.split("-")
    return create_runner(part, backend, precision, threads=threads)


def add_opencv(
    lineup: Lineup, network: Network, threads: int, images: Sequence[npt.NDArray[np.float32]]
) -> None:
    """Add OpenCV's fastest engine with the same outputs as ONNX Runtime."""
    (piece,) = network.pieces(FULL, 1)
    reference = "onnxruntime-fp32" if "onnxruntime-fp32" in lineup.shown else REFERENCE
    expected = lineup.shown[reference]
    medians: dict[str, float] = {}
    chains: dict[str, Chain] = {}
    keys = {engine: f"{OPENCV} {engine}" for engine in list_engines()}

    def open_engine(engine: str) -> Chain:
        outputs = check_engine(piece.part, engine, threads, images)
        if fault := replace(expected, outputs=outputs).find_fault(expected):
            raise ModelError(f"{_WRONG}: {fault}")
        return Chain([piece], partial(OpenCvRunner, engine=engine, threads=threads))

    for engine, key in keys.items():
        lineup.add(key, partial(open_engine, engine))
        if key not in lineup.chains:
            continue
        if fault := lineup.shown[key].find_fault(expected):
            lineup.notes[key] = f"{_WRONG}: {fault}"
        else:
            times = lineup.measure(images[0], [key], budget_s=0.0, least=3)
            medians[engine] = quantile_ms(times[key], 0.5)
        chains[engine] = lineup.chains.pop(key)
    if not medians:
        reasons = [lineup.notes[key] for key in keys.values()]
        lineup.notes[OPENCV] = "; ".join(dict.fromkeys(reasons))
        return
    best = min(medians, key=medians.__getitem__)
    lineup.chains[OPENCV], lineup.shown[OPENCV] = chains[best], lineup.shown[keys[best]]
    lineup.notes[OPENCV] = f"engine {best}" if best else ""


def _summarize(
    model: Model, stages: int, backends: Sequence[str], times: Mapping[str, Times], lineup: Lineup
) -> dict[str, Any]:
    medians = {key: quantile_ms(taken, 0.5) for key, taken in times.items()}

    def compare(name: str) -> dict[str, float | None]:
        return {
            f"times_faster_than_{key}": round(medians[other] / medians[name], 2)
            if other in medians
            else None
            for key, other in (("torch", REFERENCE), ("opencv", OPENCV))
        }

    rows = []
    for name in backends:
        row = {"backend": name, **lineup.describe(name, times, lineup.shown[REFERENCE], 3)}
        rows.append({**row, **compare(name)} if name in times else row)
    own = [name for name in backends if name in medians and name != OPENCV]
    fastest = min(own, key=medians.__getitem__)
    ratios = compare(fastest)
    staged: dict[str, Any] = next(
        (row["staged"] for row in rows if row["backend"] == STAGED and "staged" in row), {}
    )
    staging = staged.get("overhead_percent")
    return {
        **describe_model(model, stages, times),
        "fastest": fastest,
        **ratios,
        "torch_staging_overhead_percent": staging,
        "rows": rows,
        "passed": all(ratio is None or ratio >= SPEEDUP_BAR for ratio in ratios.values())
        and (staging is None or staging <= STAGING_BAR_PERCENT),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each model."""
    busy = f", {result['busy']} programs beside" if result["busy"] else ""
    return [
        *report_models(
            result["models"],
            lambda found: (
                f", {result['threads']} threads, {found['stages']} stages, "
                f"{found['rounds']} rounds: fastest {found['fastest']}"
            ),
            "back end=backend, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f",
            "x torch=times_faster_than_torch:.2f, x OpenCV=times_faster_than_opencv:.2f",
            "error=relative_error:.0e, agreement:.3f, staged p50=staged.p50_ms:.2f",
            "staged p99=staged.p99_ms:.2f, overhead %=staged.overhead_percent:.1f",
            ("", join_notes),
        ),
        f"bars: >= {SPEEDUP_BAR:g} x torch and OpenCV, stages <= {STAGING_BAR_PERCENT:g} % on "
        f"torch{busy}: {say_verdict(result['passed'])}",
    ]


def join_notes(row: Mapping[str, Any]) -> str:
    """Join the notes of a row and of its stages."""
    return "; ".join(filter(None, (row["note"], row.get("staged", {}).get("note", ""))))
