"""The same networks on every back end, whole and cut into stages, and on OpenCV's DNN module.

All runs of a model take turns, round by round, in one process with as many threads each. Times are
of the network alone, without preprocessing and decoding. The error is the largest deviation from
torch eager relative to the largest value of that output; agreement is mAP@0.5, mIoU or top-1
against torch's results on the same frames, and all that is said of lists of boxes. ``torch-eager``
is what one writes first: fp32, torch's own settings; the other rows are this package's back ends.
Networks of torchvision have random weights (see `plausible_weights`), the others trained ones.

Passes when for every model the fastest back end takes at most half the time of torch eager and at
most half that of OpenCV DNN, where its result is right, and stages cost torch-fp32 2 % at most.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.chain import Chain, EagerRunner, Shown, report_figures
from benchmarks.opencv_dnn import OpenCvRunner, check_engine, list_engines
from benchmarks.rounds import (
    Times,
    find_overhead_percent,
    measure_rounds,
    quantile_ms,
)
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.cli.text import format_figure, format_rows
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.safety.children import code_command
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.running.network import Network, Piece
from jetson_dnn_rt.variants.spec import FULL

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"
VIDEO, YOLOX = "video/dashcam_white_right.mp4", "models/yolox_nano.onnx"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME",
        help=f"of {', '.join(MODELS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), metavar="NAME",
        help=f"of {', '.join(BACKENDS)} (default: all); {REFERENCE} is always there",
    )  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--threads", type=int, default=cores, metavar="N",
        help=f"threads of one run (default: the cores there are, {cores})",
    )  # fmt: skip
    parser.add_argument(
        "--stages", type=int, default=STAGES, metavar="K",
        help=f"into which the networks are cut (default {STAGES}; 1: only whole)",
    )  # fmt: skip
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N",
        help="programs that compute without end beside the measurement (default 0)",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR",
        help=f"folder with {VIDEO} and {YOLOX} (default: ../shared/data beside the checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="of measuring for one model (default 30)"
    )
    parser.add_argument("--quick", action="store_true", help="2 s for one model, fewer frames")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure all models.

    Returns
    -------
    dict
        ``models``: for each its rows, one for a back end, or why it was left out; ``passed``.

    Raises
    ------
    ConfigurationError
        When an argument is out of range.
    """
    for name, least in (("threads", 1), ("stages", 1), ("busy", 0)):
        if getattr(args, name) < least:
            raise ConfigurationError(f"--{name} must be at least {least}: {getattr(args, name)}")
    seconds = args.seconds or (2.0 if args.quick else 30.0)
    backends = [name for name in BACKENDS if name == REFERENCE or name in args.backends]
    models: dict[str, dict[str, object]] = {}
    with compete(args.busy):
        for name in args.models:
            print(f"backends: {name}", file=sys.stderr, flush=True)
            try:
                model, frames = load(name, args.data)
            except JetsonDnnRtError as error:
                models[name] = {"skipped": str(error)}
                continue
            shown = frames[:_QUICK_FRAMES] if args.quick else frames
            models[name] = measure_model(
                model, shown, backends, args.threads, args.stages, seconds
            )
    return {
        "models": models,
        "threads": args.threads,
        "busy": args.busy,
        "bars": {
            "times_faster_than_torch": SPEEDUP_BAR,
            "times_faster_than_opencv": SPEEDUP_BAR,
            "staging_overhead_percent": STAGING_BAR_PERCENT,
        },
        "passed": all("skipped" in found or found["passed"] for found in models.values()),
    }


@contextmanager
def compete(count: int) -> Iterator[None]:
    """Let other programs compute beside what is measured."""
    programs = [subprocess.Popen(code_command("while True: pass")) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
        for program in programs:
            program.wait()


def load(name: str, data: Path) -> tuple[Model, list[Frame]]:
    """Load a model of `MODELS`, and frames that it is shown.

    Raises
    ------
    JetsonDnnRtError
        When the model cannot be had here.
    """
    source = MODELS[name]
    trained = not source.startswith("torchvision:")
    if source == f"onnx:{YOLOX}":
        if not (data / YOLOX).is_file():
            raise ModelError(f"{data / YOLOX} is not there: give --data")
        source = f"onnx:{data / YOLOX}"
    road = (data / VIDEO).is_file() and not source.startswith("builtin:")
    frames = list(open_frames(f"video:{data / VIDEO}" if road else "synthetic", _FRAMES))
    model = load_model(source, weights="none")
    if not trained:
        from benchmarks.plausible_weights import make_plausible

        model = make_plausible(model, prepare_inputs(model, frames[:4]))
    return model, frames


def measure_model(
    model: Model,
    frames: Sequence[Frame],
    backends: Sequence[str],
    threads: int,
    stages: int,
    seconds: float,
) -> dict[str, object]:
    """Measure one model on the back ends; the first is the reference."""
    images = prepare_inputs(model, frames)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # Exported stages are shared by the back ends that read ONNX.
        network = Network(model, stages, Library(Path(folder)))
        shown: dict[str, Shown] = {}
        chains: dict[str, Chain] = {}
        notes: dict[str, str] = {}

        def add(key: str, make: Callable[[], Chain]) -> None:
            try:
                chain = make()
                stack.callback(chain.close)
                shown[key] = Shown.of(chain, model, frames)
                chains[key] = chain
            except JetsonDnnRtError as error:
                notes[key] = str(error)

        for name in backends:
            if name == OPENCV:
                add_opencv(add, network, threads, images, chains, shown, notes)
                continue
            make_runner = partial(_make_runner, name, threads)
            add(name, partial(Chain, network.pieces(FULL, 1), make_runner))
            if network.stages > 1 and name != REFERENCE:
                add(f"{name} staged", partial(Chain, network.pieces(FULL), make_runner))
        runs = {key: partial(chain.run, images[0]) for key, chain in chains.items()}
        times = measure_rounds(runs, budget_s=seconds, least=3)
        return _report(model, network.stages, backends, times, shown, notes)


def _make_runner(name: str, threads: int, part: Part) -> Runner:
    if name == REFERENCE:
        return EagerRunner(part, threads)
    backend, precision = name.split("-")
    return create_runner(part, backend, precision, threads=threads)


def add_opencv(
    add: Callable[[str, Callable[[], Chain]], None],
    network: Network,
    threads: int,
    images: Sequence[npt.NDArray[np.float32]],
    chains: dict[str, Chain],
    shown: dict[str, Shown],
    notes: dict[str, str],
) -> None:
    """OpenCV's faster engine, of those whose outputs are those of ONNX Runtime."""
    pieces = network.pieces(FULL, 1)
    reference = "onnxruntime-fp32" if "onnxruntime-fp32" in shown else REFERENCE
    right: dict[str, float] = {}
    for engine in list_engines():
        key = f"{OPENCV} {engine}"
        add(key, partial(_open_opencv, pieces[0], engine, threads, images, shown[reference]))
        if key not in chains:
            continue
        fault = shown[key].find_fault(shown[reference])
        if fault:
            notes[key] = f"{_WRONG}: {fault}"
            del chains[key]
            continue
        times = measure_rounds({key: partial(chains[key].run, images[0])}, budget_s=0.0, least=3)
        right[key] = quantile_ms(times[key], 0.5)
    best = min(right, key=lambda key: right[key]) if right else None
    for engine in list_engines():
        key = f"{OPENCV} {engine}"
        chain = chains.pop(key, None)
        if key == best and chain is not None:
            chains[OPENCV], shown[OPENCV] = chain, shown[key]
            notes[OPENCV] = f"engine {engine}" if engine else ""
    if best is None:
        said = [notes[f"{OPENCV} {engine}"] for engine in list_engines()]
        notes[OPENCV] = "; ".join(dict.fromkeys(said))


def _open_opencv(
    piece: Piece,
    engine: str,
    threads: int,
    images: Sequence[npt.NDArray[np.float32]],
    expected: Shown,
) -> Chain:
    outputs = check_engine(piece.part, engine, threads, images)
    fault = replace(expected, outputs=outputs).find_fault(expected)
    if fault:
        raise ModelError(f"{_WRONG}: {fault}")
    return Chain([piece], partial(OpenCvRunner, engine=engine, threads=threads))


def _report(
    model: Model,
    stages: int,
    backends: Sequence[str],
    times: Mapping[str, Times],
    shown: Mapping[str, Shown],
    notes: Mapping[str, str],
) -> dict[str, object]:
    rows = []
    medians = {key: quantile_ms(taken, 0.5) for key, taken in times.items()}
    torch_ms, opencv_ms = medians.get(REFERENCE), medians.get(OPENCV)
    for name in backends:
        row: dict[str, object] = {"backend": name, "note": notes.get(name, "")}
        if name in times:
            row |= report_figures(times[name], shown[name], shown[REFERENCE], 3)
            row["times_faster_than_torch"] = _ratio(torch_ms, medians[name])
            row["times_faster_than_opencv"] = _ratio(opencv_ms, medians[name])
        key = f"{name} staged"
        if key in times:
            row["staged"] = {
                **report_figures(times[key], shown[key], shown[REFERENCE], 3),
                "overhead_percent": find_overhead_percent(times[name], times[key]),
            }
        elif key in notes:
            row["staged"] = {"note": notes[key]}
        rows.append(row)
    own = {name: medians[name] for name in backends if name in medians and name != OPENCV}
    fastest = min(own, key=lambda name: own[name])
    ratios: dict[str, float | None] = {
        "times_faster_than_torch": _ratio(torch_ms, own[fastest]),
        "times_faster_than_opencv": _ratio(opencv_ms, own[fastest]),
    }
    by_name = {cast(str, row["backend"]): row for row in rows}
    staged = cast("dict[str, float]", by_name.get(STAGED, {}).get("staged", {}))
    staging = staged.get("overhead_percent")
    return {
        "source": model.source.rsplit("/", 1)[-1],
        "input": list(model.input_shape),
        "stages": stages,
        "rounds": len(next(iter(times.values()))),
        "fastest": fastest,
        **ratios,
        "torch_staging_overhead_percent": staging,
        "rows": rows,
        "passed": all(ratio is None or ratio >= SPEEDUP_BAR for ratio in ratios.values())
        and (staging is None or staging <= STAGING_BAR_PERCENT),
    }


def _ratio(other_ms: float | None, own_ms: float) -> float | None:
    return None if other_ms is None else round(other_ms / own_ms, 2)


def format_table(result: dict[str, object]) -> str:
    """Return the result as tables for people."""
    text = []
    for name, found in cast("dict[str, dict[str, Any]]", result["models"]).items():
        if "skipped" in found:
            text.append(f"{name}: left out, {found['skipped']}\n")
            continue
        text.append(_format_model(name, found, cast(int, result["threads"])))
    busy = f", {result['busy']} programs beside" if result["busy"] else ""
    text.append(
        f"bars: >= {SPEEDUP_BAR:g} x torch and OpenCV, stages <= {STAGING_BAR_PERCENT:g} % on "
        f"torch{busy}: " + ("passed" if result["passed"] else "NOT passed")
    )
    return "\n".join(text)


def _format_model(name: str, found: Mapping[str, Any], threads: int) -> str:
    header = (
        "back end", "p50 ms", "p99 ms", "x torch", "x OpenCV", "error", "agreement",
        "staged p50", "staged p99", "overhead %", "",
    )  # fmt: skip
    rows = []
    for row in found["rows"]:
        staged = row.get("staged", {})
        said = [row["note"], staged.get("note", "")]
        error = row.get("relative_error")
        rows.append(
            [
                row["backend"],
                format_figure(row.get("p50_ms"), 2),
                format_figure(row.get("p99_ms"), 2),
                format_figure(row.get("times_faster_than_torch"), 2),
                format_figure(row.get("times_faster_than_opencv"), 2),
                "-" if error is None else f"{error:.0e}",
                format_figure(row.get("agreement"), 3),
                format_figure(staged.get("p50_ms"), 2),
                format_figure(staged.get("p99_ms"), 2),
                format_figure(staged.get("overhead_percent"), 1),
                "; ".join(word for word in said if word),
            ]
        )
    size = "x".join(map(str, found["input"][2:]))
    head = (
        f"{name} ({size}), {threads} threads, {found['stages']} stages, {found['rounds']} rounds"
        f": fastest {found['fastest']}"
    )
    return f"{head}\n\n{format_rows(header, rows)}\n"
