# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Loss of accuracy by decomposition of the built-in models, and its recovery.

Each network at half of its multiply-accumulates, three times: by its weights alone (plain), fitted
to frames (data-aware), and taught by the full network on the same frames (recovered). No labels
are used for any of them. Frames to fit are scenes of the generator that the benchmark of accuracy
never uses; accuracy is measured on held-out scenes, with their ground truth; times of the whole
network are measured in turn.

With --small a fourth one is a small network: the same layers with fewer channels, trained from the
beginning with labels, as the full one was (``tools/train_builtin.py --width 0.7``). So the table
says whether decomposing a large network is better than training a small one, as figure 4 of
"Multi-DNN Acceleration Techniques for Embedded Systems with Tucker Decomposition and
Hidden-layer-based Parallel Processing" (JKICE 26(6), 2022) says of classifiers.

A recovered network is stored in the library (--engine-cache) and reused by the next run with the
same frames and steps; making one takes some minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from benchmarks.accuracy import METRICS, compare_accuracy
from benchmarks.harness.networks import time_parts
from benchmarks.harness.options import Options, add_library, echo
from benchmarks.harness.tables import Report, Table, flatten, say_bars, tabulate
from benchmarks.harness.timing import quantile_ms
from jetson_dnn_rt.backends.registry import is_installed
from jetson_dnn_rt.cli.progress import PhaseProgress
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.compress.compression import compress, fit
from jetson_dnn_rt.lab.compress.recovery import RecoveryReport
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.graph.tracing import fold_shapes, trace
from jetson_dnn_rt.models.model import Model, Part, make_probe_input
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.decomposition import STEPS_FACT, load_reduced, weights_key
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.measuring.macs import count
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.spec import DecompositionSpec

SPEC = DecompositionSpec("tucker", "macs", 0.5)
FULL, PLAIN, AWARE, RECOVERED = VARIANTS = ("full", "plain", "data-aware", "recovered")
SMALL = "small"
"""Variant of --small."""
POINTS_LOST_BARS = {AWARE: 3.0, RECOVERED: 1.0}
"""Points of mAP@0.5 or mIoU, in hundredths."""
BACKENDS = ("openvino", "onnxruntime", "torch")
SOURCE = "synthetic"
STEPS = {"detector": 2400, "segmenter": 1200}
QUICK = {"scenes": 60, "fit_frames": 64, "steps": 60, "seconds": 1.0}


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(builtin.NAMES), "default both", choices=builtin.NAMES)
    add("--scenes", 500, "held-out scenes", least=1)
    add("--fit-frames", 800, "frames to fit to", least=1)
    add("--steps", None, f"of recovery (default {STEPS})", kind=int, least=1)
    add("--seconds", 6.0, "of timing on each back end")
    add("--threads", 1, "of one run", least=1)
    add(
        "--small", None, "folder with small networks of `tools/train_builtin.py --width`",
        kind=Path, metavar="DIR",
    )  # fmt: skip
    add_library(add)
    add("--quick", False, "few scenes and steps, to show that it runs; stores nothing")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the networks."""
    if args.quick:
        vars(args).update(QUICK)
    models = {}
    # Before minutes of recovery, not after them.
    small = {} if args.small is None else {n: load_small(n, args.small) for n in args.models}
    with tempfile.TemporaryDirectory() as folder, PhaseProgress() as progress:
        # A quick run must not leave its barely trained network where tasks look for one.
        library = Library(Path(folder) if args.quick else args.engine_cache)
        for item, name in enumerate(args.models, 1):
            progress.begin(f"builtin:{name}", item, len(args.models))
            models[name] = _measure(name, small.get(name), library, args, progress)
    return {
        "spec": str(SPEC),
        **echo(args, "scenes fit_frames threads"),
        "points_lost_bars": POINTS_LOST_BARS,
        "models": models,
        "quick": args.quick,
        # A quick run is too short to judge by.
        "passed": None if args.quick else all(m["passed"] for m in models.values()),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each network, with its recovery and the aims reached."""
    parts: list[str | Table] = [
        f"{result['spec']}: {result['fit_frames']} frames without labels, {result['scenes']} "
        f"held-out scenes, {result['threads']} thread(s)"
    ]
    for name, model in result["models"].items():
        times = [
            f"{backend} p50 ms=time_ms.{backend}.p50:.2f, {backend} p99=time_ms.{backend}.p99:.2f"
            for backend in model["variants"][FULL]["time_ms"]
        ]
        recovery = model["recovery"]
        reached = [f"{'yes' if done else 'NO ':4s}{aim}" for aim, done in model["reached"].items()]
        parts += [
            tabulate(
                flatten(model["variants"]),
                f"builtin:{name}=name",
                ("MACs M", lambda row: f"{row['macs'] / 1e6:.1f}"),
                ("change", lambda row: f"{-row['macs_reduction'] + 0.0:+.1%}"),
                f"{METRICS[name]}=accuracy:.4f, points lost=points_lost:.2f",
                ("bar", lambda row: POINTS_LOST_BARS.get(row["name"])),
                *times,
            ),
            f"recovery: {recovery['steps']} steps, {recovery['seconds'] / 60:.1f} min, made "
            f"{recovery['made']}; loss {recovery['loss_before']:.4f} -> "
            f"{recovery['loss_after']:.4f} on {recovery['held_out']} held-out frames\n"
            + "\n".join(reached),
        ]
    points = ", ".join(f"{name} <= {bar:g}" for name, bar in POINTS_LOST_BARS.items())
    bars = f"points lost: {points}; half of the MACs gone, faster on every back end"
    return [*parts, say_bars(bars, result["passed"])]


def judge(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """Judge which of the aims one model reached; its figures are by `VARIANTS`."""
    reached = {
        f"{variant} loses at most {bar:.0f} points": variants[variant]["points_lost"] <= bar
        for variant, bar in POINTS_LOST_BARS.items()
    }
    recovered, full = variants[RECOVERED], variants[FULL]
    reached["half of the MACs are gone"] = recovered["macs_reduction"] >= 0.5
    reached["faster on every back end"] = all(
        recovered["time_ms"][backend]["p50"] < times["p50"]
        for backend, times in full["time_ms"].items()
    )
    return reached


def _measure(
    name: builtin.BuiltinName, small: fx.GraphModule | None, library: Library,
    args: argparse.Namespace, progress: PhaseProgress,
) -> dict[str, Any]:  # fmt: skip
    model = load_model(f"builtin:{name}")
    whole = split(model, 1)
    frames = list(open_frames(SOURCE, args.fit_frames))
    inputs = prepare_inputs(model, frames)
    graphs = {FULL: whole.graph}
    for variant in (PLAIN, AWARE):
        graphs[variant] = fit(
            whole.graph, model.input_shape, SPEC, inputs, data_aware=variant == AWARE,
            progress=progress,
        ).graph  # fmt: skip
    steps = args.steps or STEPS[name]
    graphs[RECOVERED], recovery = _recover(model, frames, library, steps, progress)
    if small is not None:
        graphs[SMALL] = small
    accuracies = compare_accuracy(
        name, graphs, args.scenes, lambda done, total: progress("accuracy", done, total)
    )
    parts = {
        variant: model if variant == FULL else whole.replace_graph(graph).part(0)
        for variant, graph in graphs.items()
    }
    times = _measure_times(parts, inputs[0], args, progress)
    costs = {variant: count(graph, model.input_shape) for variant, graph in graphs.items()}
    variants = {
        variant: {
            "macs": costs[variant].macs,
            "macs_reduction": 1.0 - costs[variant].macs / costs[FULL].macs,
            "parameters": costs[variant].parameters,
            "accuracy": accuracies[variant],
            "points_lost": 100.0 * (accuracies[FULL] - accuracies[variant]),
            "time_ms": times[variant],
        }
        for variant in graphs
    }
    reached = judge(variants)
    return {
        "metric": METRICS[name],
        "variants": variants,
        "fastest_backend_of_full": min(times[FULL], key=lambda one: times[FULL][one]["p50"]),
        "recovery": recovery,
        "reached": reached,
        "passed": all(reached.values()),
    }


def load_small(name: builtin.BuiltinName, folder: Path) -> fx.GraphModule:
    """Load a small network; `ModelError` when the folder lacks it."""
    path = folder / builtin.weights_path(name).name
    graph = trace(builtin.load(name, path))
    fold_shapes(graph, torch.from_numpy(make_probe_input(*builtin.INPUT_SIZE[name])))
    return graph


def _recover(
    model: Model, frames: list[Frame], library: Library, steps: int, progress: PhaseProgress
) -> tuple[fx.GraphModule, dict[str, Any]]:
    """Return the recovered network and its report, from the library if it is of these frames."""
    entry = library.load(weights_key(model, SPEC))
    wanted = {STEPS_FACT: steps, "frames": SOURCE, "frame_count": len(frames)}
    if entry is not None and all(entry.facts.get(key) == wanted[key] for key in wanted):
        known = cast(fx.GraphModule, load_reduced(model, SPEC, library))
        return known, {**entry.facts["recovery"], "made": "before"}
    made = compress(
        model, SPEC, frames=frames, source=SOURCE, recover_steps=steps, library=library,
        # The time of the whole network is measured here, not that of single layers.
        keep_slower=True, progress=progress,
    )  # fmt: skip
    report = cast(RecoveryReport, made.fit.recovery)
    return made.fit.graph, {**asdict(report), "made": "in this run"}


def _measure_times(
    parts: Mapping[str, Part],
    image: npt.NDArray[np.float32],
    args: argparse.Namespace,
    progress: PhaseProgress,
) -> dict[str, dict[str, dict[str, float]]]:
    """Measure p50 and p99 in ms by variant and back end, all variants of a back end in turn."""
    times: dict[str, dict[str, dict[str, float]]] = {variant: {} for variant in parts}
    backends = [backend for backend in BACKENDS if is_installed(backend)]
    for done, backend in enumerate(backends):
        progress(f"timing on {backend}", done, len(backends))
        taken = time_parts(
            parts, backend, args.threads, image,
            budget_s=args.seconds, least=20, most=2000, warm_up=5,
        )  # fmt: skip
        for variant, found in taken.items():
            p50, p99 = quantile_ms(found, 0.5), quantile_ms(found, 0.99)
            times[variant][backend] = {"p50": p50, "p99": p99, "runs": len(found)}
    return times
