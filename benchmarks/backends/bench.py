# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The same networks on every back end, whole and cut into stages, and on OpenCV's DNN module.

Beside a number of stages runs the choice of ``stages: auto``, which cuts only where it is free.

The back ends of a model take turns, round by round, in one process with as many threads each;
then each back end's whole network, its stages and its choice take turns without the others, so
that a ratio of a few per cent is of runs that are near in time and follow the same back end:
``whole`` is the p50 of these runs, beside that of the stages.
Times are of the network alone, without preprocessing and decoding. The error is the largest
deviation from torch eager relative to the largest value of that output; agreement is mAP@0.5,
mIoU or top-1 against torch's results on the same frames, and the only measure for lists of boxes.
``torch-eager`` is the obvious first version: fp32, torch's own settings; the other rows are this
package's back ends. Networks of torchvision have random weights (see `make_plausible`), the
others trained ones.

INT8 is calibrated on other frames of the same source, as `build` does it: layers stay in fp32
until it agrees 0.98 with fp32, but for random weights, whose results are noise. What the built-in
networks lose of their mAP@0.5 or mIoU is measured on held-out scenes with their truth.

Passes if for every model the fastest back end takes at most half the time of torch eager and at
most half that of OpenCV DNN, if its result is correct, and stages cost torch-fp32 at most 2 %; on
a CPU with VNNI, if a back end runs the built-in networks in INT8 at least 1.5 times as fast as in
fp32 and loses at most one point. The choice of ``stages: auto`` must cost at most as much as it
promises, where it cuts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.accuracy import compare_accuracy
from benchmarks.backends.opencv import OpenCvRunner, check_engine, list_engines
from benchmarks.harness.networks import (
    Chain,
    EagerRunner,
    Lineup,
    describe_error,
    describe_model,
    load_plausible,
    report_models,
)
from benchmarks.harness.options import BESIDE, CORES, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.processes import busy_cores
from benchmarks.harness.tables import Report, Verdict, judge_all, say, say_verdict
from benchmarks.harness.timing import (
    Times,
    find_overhead_bounds,
    find_overhead_percent,
    quantile_ms,
)
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.quantize.quantization import DEFAULT_AGREEMENT, quantize
from jetson_dnn_rt.models.graph.quantized_part import has_vnni
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.variants.free_cuts import FREE, IMBALANCE, FreeCuts, find_free_cuts
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.quantized import MODEL_FILE, Quantization, read_quantization
from jetson_dnn_rt.variants.spec import FULL, VariantSpec

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
    REFERENCE, STAGED, "torch-bf16", "onnxruntime-fp32", "onnxruntime-int8",
    "openvino-fp32", "openvino-bf16", "openvino-int8", OPENCV,
)  # fmt: skip
STAGES = 8
SPEEDUP_BAR = 2.0
STAGING_BAR_PERCENT = 2.0
INT8_BAR = 1.5
POINTS_BAR = 1.0
BARS = ("torch", "OpenCV", "stages", "auto", "int8")
_FRAMES, _QUICK_FRAMES = 8, 2
_CALIBRATED, _QUICK_CALIBRATED = 120, 8
_SCENES, _QUICK_SCENES = 200, 4
_WRONG = "its result is not that of the other back ends"


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(MODELS), "default: all", choices=MODELS)
    add("--backends", list(BACKENDS), f"default: all; {REFERENCE} always runs", choices=BACKENDS)
    add("--threads", CORES, "of one run (default: all cores)", least=1)
    add("--stages", STAGES, "into which the networks are cut; 1: only whole", least=1)
    add("--busy", 0, "busy programs beside the measurement", least=0)
    add("--data", DATA, f"folder with {VIDEO} and {YOLOX} ({BESIDE})", metavar="DIR")
    add(
        "--seconds",
        None,
        "of measuring for one model, and again for stages (default 30)",
        kind=float,
        above=0,
    )
    add("--quick", False, "2 s for one model, fewer frames")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models; one that cannot be loaded is left out, with the reason."""
    args.seconds = args.seconds or (2.0 if args.quick else 30.0)
    models: dict[str, dict[str, Any]] = {}
    with busy_cores(args.busy):
        for name in args.models:
            say(f"backends: {name}")
            try:
                model, frames, source = load(name, args.data)
            except JetsonDnnRtError as error:
                models[name] = {"skipped": str(error)}
            else:
                shown = frames[:_QUICK_FRAMES] if args.quick else frames
                models[name] = measure_model(name, model, shown, source, args)
    result = {
        "models": models,
        **echo(args, "threads busy"),
        "bars": {
            "times_faster_than_torch": SPEEDUP_BAR,
            "times_faster_than_opencv": SPEEDUP_BAR,
            "staging_overhead_percent": STAGING_BAR_PERCENT,
            "auto_overhead_percent": 100 * FREE,
            "int8_times_faster_than_fp32": INT8_BAR,
            "int8_points_lost": POINTS_BAR,
        },
        "vnni": has_vnni(),
    }
    return {**result, "passed": rejudge(result)}


def find_source(name: str, data: Path) -> str:
    """Find where a model of `MODELS` is loaded from; `ModelError` when its file is missing."""
    source = MODELS[name]
    if source != f"onnx:{YOLOX}":
        return source
    if not (data / YOLOX).is_file():
        raise ModelError(f"{data / YOLOX} is not there; fix: give --data")
    return f"onnx:{data / YOLOX}"


def load(name: str, data: Path) -> tuple[Model, list[Frame], str]:
    """Load a model of `MODELS`, frames for it, and their source.

    `JetsonDnnRtError` when the model cannot be loaded here.
    """
    source = find_source(name, data)
    road = (data / VIDEO).is_file() and not source.startswith("builtin:")
    origin = f"video:{data / VIDEO}" if road else "synthetic"
    frames = list(open_frames(origin, _FRAMES))
    return load_plausible(source, frames), frames, origin


def measure_model(
    name: str, model: Model, frames: Sequence[Frame], source: str, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure one model on the back ends; plain torch is the reference."""
    backends = [name for name in BACKENDS if name == REFERENCE or name in args.backends]
    images = prepare_inputs(model, frames)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # Exported stages are shared by the back ends that read ONNX.
        library = Library(Path(folder))
        network = Network(model, args.stages, library)
        candidates = Network(model, args.stages, library, imbalance=IMBALANCE)
        lineup = Lineup(model, frames, stack)
        kept: dict[str, Quantization] = {}
        free: dict[str, FreeCuts] = {}
        for backend in backends:
            if backend == OPENCV:
                add_opencv(lineup, network, args.threads, images)
                continue
            form = FULL
            if backend.endswith("-int8"):
                try:
                    form, kept[backend] = add_quantized(
                        backend, (network, candidates),
                        list_calibration(source, frames, quick=args.quick), library, args.threads,
                    )  # fmt: skip
                except JetsonDnnRtError as error:
                    lineup.notes[backend] = describe_error(error)
                    continue
            make = partial(make_runner, backend, args.threads)
            lineup.add(backend, partial(Chain, network.pieces(form, 1), make))
            if network.stages > 1 and backend != REFERENCE:
                lineup.add(f"{backend} staged", partial(Chain, network.pieces(form), make))
                add_free(lineup, backend, candidates, form, make, free)
        ready = [key for key in backends if key in lineup.chains]
        times = lineup.measure(images[0], ready, budget_s=args.seconds, least=3)
        turns = {}
        for backend in ready:
            keys = [key for key in lineup.chains if key.startswith(backend)]
            if len(keys) > 1:
                seconds = args.seconds / len(ready)
                turns[backend] = lineup.measure(images[0], keys, budget_s=seconds, least=12)
        scores: dict[str, float] = {}
        if name in builtin.NAMES:
            chains = {key: lineup.chains[key] for key in backends if key in lineup.chains}
            scenes = _QUICK_SCENES if args.quick else _SCENES
            scores = measure_accuracy(name, chains, scenes)
        return _summarize(
            model, network.stages, backends, times, turns, lineup, kept, scores, free
        )


def add_free(
    lineup: Lineup,
    backend: str,
    network: Network,
    form: str,
    make: Callable[[Part], Runner],
    free: dict[str, FreeCuts],
) -> None:
    """Add a back end's choice of free cuts; one that cuts nowhere is the whole network."""
    say(f"backends: {network.model.source} {backend}: free cuts")
    try:
        found = free[backend] = find_free_cuts(network, make, form)
    except JetsonDnnRtError as error:
        lineup.notes[f"{backend} auto"] = describe_error(error)
        return
    if found.cuts:
        places = [network.cuts.index(cut) + 1 for cut in found.cuts]
        pieces = network.cover(form, (0, *places, network.stages))
        lineup.add(f"{backend} auto", partial(Chain, pieces, make))


def list_calibration(source: str, frames: Sequence[Frame], *, quick: bool) -> list[Frame]:
    """Frames of a source that are not among those on which results are compared."""
    count = _QUICK_CALIBRATED if quick else _CALIBRATED
    if source == "synthetic":
        return list(open_frames("synthetic:2", count))
    shown = {frame.sequence for frame in frames}
    return [f for f in open_frames(source, count + len(frames)) if f.sequence not in shown]


def add_quantized(
    backend: str,
    networks: Sequence[Network],
    frames: Sequence[Frame],
    library: Library,
    threads: int,
) -> tuple[str, Quantization]:
    """Quantize a network for a back end; the name of its form, and how it was quantized.

    `networks` are those of the same model that get it.
    """
    model, staged = networks[0].model, networks[0].stages > 1
    spec = VariantSpec.parse(f"{FULL}@{backend}")
    say(f"backends: {model.source} {spec}: quantized")
    entry = quantize(
        model, spec, frames=frames, library=library, threads=threads, staged=staged,
        agreement=0.0 if model.source.startswith("torchvision:") else DEFAULT_AGREEMENT,
    )  # fmt: skip
    for network in networks:
        network.add_quantized(spec.network, entry.files[MODEL_FILE])
    return spec.network, read_quantization(entry)


def measure_accuracy(name: str, chains: Mapping[str, Chain], scenes: int) -> dict[str, float]:
    """Measure mAP@0.5 or mIoU of a built-in network on each back end, against the truth."""

    def wrap(chain: Chain) -> Callable[[torch.Tensor], Any]:
        def run(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(torch.from_numpy(np.array(array)) for array in chain.run(image.numpy()))

        return run

    say(f"backends: {name}: accuracy on {scenes} scenes")
    networks = {key: wrap(chain) for key, chain in chains.items()}
    return compare_accuracy(name, networks, scenes, lambda done, total: None)  # type: ignore[arg-type]


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
    model: Model,
    stages: int,
    backends: Sequence[str],
    times: Mapping[str, Times],
    turns: Mapping[str, Mapping[str, Times]],
    lineup: Lineup,
    kept: Mapping[str, Quantization] = MappingProxyType({}),
    scores: Mapping[str, float] = MappingProxyType({}),
    free: Mapping[str, FreeCuts] = MappingProxyType({}),
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
        own, expected = turns.get(name, {}), lineup.shown[REFERENCE]
        row = {"backend": name, **lineup.describe(name, times, expected, 3, turns=own)}
        if name in free and name in times:
            row["auto"] = _describe_free(name, free[name], own)
        if name in kept:
            facts = kept[name]
            row["kept_in_fp32"], row["products"] = len(facts.kept), facts.products
            fault = facts.refused or f"{len(facts.kept)} of {facts.products} products in fp32"
            row["note"] = "; ".join(filter(None, (row["note"], fault)))
        if name in scores:
            row["accuracy"] = round(scores[name], 4)
            row["points_lost"] = round(100 * (scores[REFERENCE] - scores[name]), 2)
        if name in times:
            full = f"{name.partition('-')[0]}-fp32"
            if full != name and full in medians:
                row["times_faster_than_fp32"] = round(medians[full] / medians[name], 2)
            row |= compare(name)
        rows.append(row)
    # Not one in INT8 that agrees too little, or whose agreement says nothing.
    useless = [name for name, facts in kept.items() if facts.refused or not facts.asked]
    ours = [n for n in backends if n in medians and n != OPENCV and n not in useless]
    fastest = min(ours, key=medians.__getitem__)
    ratios = compare(fastest)
    staged: dict[str, Any] = next(
        (row["staged"] for row in rows if row["backend"] == STAGED and "staged" in row), {}
    )
    staging = staged.get("overhead_percent")
    found = {
        **describe_model(model, stages, times),
        "fastest": fastest,
        **ratios,
        "torch_staging_overhead_percent": staging,
        "rows": rows,
    }
    return {**found, "passed": judge_all(judge_model(found, vnni=has_vnni()).values())}


def judge_model(found: Mapping[str, Any], *, vnni: bool) -> dict[str, Verdict]:
    """Judge each bar for one model; None where there is nothing to compare."""
    torch, opencv, staging = (
        found.get(key)
        for key in (
            "times_faster_than_torch",
            "times_faster_than_opencv",
            "torch_staging_overhead_percent",
        )
    )
    autos = [row["auto"] for row in found["rows"] if "auto" in row]
    costs = [auto["overhead_percent"] for auto in autos if auto["stages"] > 1]
    quick_enough = [
        row["times_faster_than_fp32"] >= INT8_BAR and row["points_lost"] <= POINTS_BAR
        for row in found["rows"]
        if {"products", "points_lost", "times_faster_than_fp32"} <= row.keys()
    ]
    verdicts: tuple[Verdict, ...] = (
        None if torch is None else torch >= SPEEDUP_BAR,
        None if opencv is None else opencv >= SPEEDUP_BAR,
        None if staging is None else staging <= STAGING_BAR_PERCENT,
        judge_all(None if cost is None else cost <= 100 * FREE for cost in costs),
        any(quick_enough) if quick_enough and vnni else None,
    )
    return dict(zip(BARS, verdicts, strict=True))


def rejudge(result: Mapping[str, Any]) -> Verdict:
    """Judge a result, also one that was written before; None where no model was measured."""
    return judge_all(
        verdict
        for found in result["models"].values()
        if "skipped" not in found
        for verdict in judge_model(found, vnni=result["vnni"]).values()
    )


def _describe_free(name: str, found: FreeCuts, turns: Mapping[str, Times]) -> dict[str, Any]:
    pair = [turns[name], turns[key]] if (key := f"{name} auto") in turns else None
    return {
        "stages": len(found.cuts) + 1,
        "cuts": list(found.cuts),
        "expected_percent": round(100 * found.cost, 2),
        # Nothing was measured where it is the whole network.
        "overhead_percent": find_overhead_percent(*pair) if pair else None,
        "overhead_bounds_percent": find_overhead_bounds(*pair) if pair else None,
        "longest_share": round(found.longest_ns / found.whole_ns, 3),
        "cut_percent": {cut: round(100 * cost, 2) for cut, cost in found.costs.items()},
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each model."""
    busy = f", {result['busy']} programs beside" if result["busy"] else ""
    measured = [found for found in result["models"].values() if "skipped" not in found]
    verdicts = [judge_model(found, vnni=result["vnni"]) for found in measured]
    missing = [bar for bar in BARS if all(one[bar] is None for one in verdicts)]
    unjudged = f"; not measured: {', '.join(missing)}" if missing else ""
    return [
        *report_models(
            result["models"],
            lambda found: (
                f", {result['threads']} threads, {found['stages']} stages, "
                f"{found['rounds']} rounds: fastest {found['fastest']}"
            ),
            "back end=backend, p50 ms=p50_ms:.2f, p99 ms=p99_ms:.2f",
            "x torch=times_faster_than_torch:.2f, x OpenCV=times_faster_than_opencv:.2f",
            "x fp32=times_faster_than_fp32:.2f, error=relative_error:.0e, agreement:.3f",
            "points lost=points_lost:.2f, whole p50=staged.whole_p50_ms:.2f",
            "staged p50=staged.p50_ms:.2f, staged p99=staged.p99_ms:.2f",
            "overhead %=staged.overhead_percent:.1f",
            "auto=auto.stages, auto overhead %=auto.overhead_percent:.1f",
            "auto longest=auto.longest_share:.2f",
            ("", join_notes),
        ),
        f"bars: >= {SPEEDUP_BAR:g} x torch and OpenCV, stages <= {STAGING_BAR_PERCENT:g} % on "
        f"torch, auto <= {100 * FREE:g} % on all, int8 >= {INT8_BAR:g} x fp32 with <= "
        f"{POINTS_BAR:g} point lost on a CPU with VNNI "
        f"({'this one has it' if result['vnni'] else 'this one has none'}){busy}{unjudged}: "
        f"{say_verdict(result['passed'])}",
    ]


def join_notes(row: Mapping[str, Any]) -> str:
    """Join the notes of a row and of its stages."""
    return "; ".join(filter(None, (row["note"], row.get("staged", {}).get("note", ""))))
