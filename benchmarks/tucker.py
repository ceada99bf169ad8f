# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Tucker-2 under a budget, on the networks and with the reductions of a published comparison.

VGG16, ResNet-152, Inception v3 and RegNetY-32GF (torchvision, random weights) are decomposed so
that 81 / 38.6 / 62.8 / 35.8 % of the multiply-accumulates are removed, as in "Multi-DNN
Acceleration Techniques for Embedded Systems with Tucker Decomposition and Hidden-layer-based
Parallel Processing" (JKICE 26(6), 2022). The budget is spent by an optimisation over layers; the
baseline is one equal ratio of ranks, with no fewer operations. Times are medians of
interleaved runs, of the whole network with batch norms folded on both sides. Passes when every
reduction is met within 0.5 points and the mean error per layer is below that of the equal ratio.
"""

from __future__ import annotations

import argparse
import copy
import gc
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from benchmarks.harness.networks import time_parts
from benchmarks.harness.options import Options
from benchmarks.harness.tables import Report, flatten, say, say_bars, tabulate
from benchmarks.harness.timing import quantile_ms
from benchmarks.multi_dnn.networks import REDUCTIONS
from jetson_dnn_rt.backends.registry import BACKENDS, inspect_backend
from jetson_dnn_rt.lab.compress.decomposition import Plan
from jetson_dnn_rt.lab.compress.factorisation import LayerAnalysis
from jetson_dnn_rt.models.graph.layers import copy_folded, replace_module
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.model import make_probe_input
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.variants.decomposition import Ranks
from jetson_dnn_rt.variants.spec import DecompositionSpec

TOLERANCE = 0.5  # points

_SIZES = {"inception_v3": (299, 299)}
_QUICK = ["inception_v3"]


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", [], "default all", choices=REDUCTIONS)
    add("--quick", False, f"{', '.join(_QUICK)} only")
    add("--seconds", 8.0, "of timed runs per network and back end", above=0, metavar="S")
    add("--threads", None, "of a run (default all cores)", kind=int, metavar="N")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Decompose and measure each network: shares, errors, ranks and times."""
    names = args.models or (_QUICK if args.quick else list(REDUCTIONS))
    threads = args.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    backends = _choose_backends()
    models: dict[str, dict[str, Any]] = {}
    for name in names:
        started_ns = time.perf_counter_ns()
        models[name] = _measure(name, backends, threads, args.seconds)
        models[name]["seconds"] = round((time.perf_counter_ns() - started_ns) * 1e-9, 1)
        gc.collect()  # graphs have reference cycles; the next network needs the memory
    return {
        "models": models,
        "threads": threads,
        "tolerance_points": TOLERANCE,
        "passed": all(model["passed"] for model in models.values()),
    }


def report(result: Mapping[str, Any]) -> Report:
    """Make a table of reductions and errors, then of times."""
    models = flatten(result["models"])
    times = [
        {"name": model["name"], "backend": backend, **times}
        for model in models
        for backend, times in model["times"].items()
    ]
    return [
        "mean relative error of the weights per layer, budget spent over layers against one ratio",
        tabulate(
            models,
            "network=name",
            ("GMACs", lambda row: f"{row['macs_before'] * 1e-9:.2f}"),
            "reduced %=reduction:.1f, asked %=asked:.1f, params=parameters_kept:.2f",
            "error=mean_error:.4f, one ratio=equal_ratio.mean_error:.4f",
            ("better", lambda row: f"{row['layers_better']}/{row['layers']}"),
        ),
        tabulate(
            times,
            "median ms=name, back end=backend, full=full_ms:.1f, reduced=reduced_ms:.1f",
            ("ratio", lambda row: f"{row['reduced_ms'] / row['full_ms']:.2f}"),
        ),
        say_bars(
            f"reduced within {result['tolerance_points']:g} points of what was asked, error below "
            "that of one ratio",
            result["passed"],
        ),
    ]


def _measure(name: str, backends: list[str], threads: int, seconds: float) -> dict[str, Any]:
    say(f"tucker: {name}: random weights")
    model = load_model(f"torchvision:{name}", weights="none", input_size=_SIZES.get(name))
    whole = split(model, 1)
    folded = copy_folded(whole.graph)
    full, shape = whole.replace_graph(folded), model.input_shape
    del model, whole  # each has all weights; so the reduced network shares those it can
    spec = DecompositionSpec("tucker", "macs", round(1.0 - REDUCTIONS[name] / 100.0, 2))
    say(f"tucker: {name}: {spec}")
    made = Plan(folded, shape, spec)
    made.choose({})
    analyses, costs = made.analyses, made.costs
    reduced = fx.GraphModule(folded, copy.deepcopy(folded.graph))
    errors = {}
    for layer, ranks in made.ranks.items():
        built, errors[layer] = analyses[layer].factorise(ranks)
        replace_module(reduced, layer, built)
    saved = _count_saved(analyses, made.ranks)
    say(f"tucker: {name}: one ratio")
    ratio, equal = _find_ratio(analyses, saved)
    equal_errors = {layer: analyses[layer].factorise(r)[1] for layer, r in equal.items()}
    parameters = [sum(p.numel() for p in graph.parameters()) for graph in (folded, reduced)]
    reduction = 100.0 * saved / costs.macs
    ours = np.array([errors.get(layer, 0.0) for layer in analyses])
    theirs = np.array([equal_errors.get(layer, 0.0) for layer in analyses])
    result: dict[str, Any] = {
        "asked": REDUCTIONS[name],
        "spec": str(spec),
        "reduction": round(reduction, 2),
        "macs_before": costs.macs,
        "macs_after": costs.macs - saved,
        "parameters_kept": round(parameters[1] / parameters[0], 4),
        "layers": len(analyses),
        "layers_decomposed": len(made.ranks),
        "layers_better": int((ours < theirs).sum()),
        "layers_worse": int((ours > theirs).sum()),
        **_describe_errors(ours),
        "equal_ratio": {
            "ratio": round(ratio, 4),
            "reduction": round(100.0 * _count_saved(analyses, equal) / costs.macs, 2),
            **_describe_errors(theirs),
        },
        "passed": abs(reduction - REDUCTIONS[name]) <= TOLERANCE
        and bool(ours.mean() < theirs.mean()),
    }
    analyses.clear()
    result["times"] = {}
    parts = {"full_ms": full.part(0), "reduced_ms": full.replace_graph(reduced).part(0)}
    for backend in backends:
        say(f"tucker: {name}: times on {backend}")
        image = make_probe_input(*shape[2:])
        times = time_parts(parts, backend, threads, image, budget_s=seconds, least=3, warm_up=1)
        result["times"][backend] = {
            key: round(quantile_ms(taken, 0.5), 2) for key, taken in times.items()
        }
    return result


def _describe_errors(errors: npt.NDArray[np.float64]) -> dict[str, float]:
    return {
        "mean_error": round(float(errors.mean()), 4),
        "rms_error": round(float(np.sqrt(np.square(errors).mean())), 4),
    }


def _count_saved(analyses: Mapping[str, LayerAnalysis], ranks: Mapping[str, Ranks]) -> int:
    return sum(
        analyses[layer].cost.macs - analyses[layer].macs(pair) for layer, pair in ranks.items()
    )


def _find_ratio(
    analyses: Mapping[str, LayerAnalysis], saved: int
) -> tuple[float, dict[str, Ranks]]:
    """Find the smallest ratio that keeps at least as many operations.

    Its ranks are not multiples of 8, which would be too coarse to come near the budget.
    """

    def apply(ratio: float) -> dict[str, Ranks]:
        chosen = {name: one.apply_ratio(ratio, multiple=1) for name, one in analyses.items()}
        return {name: ranks for name, ranks in chosen.items() if ranks}

    low, high = 0.0, 1.0
    for _ in range(24):
        middle = 0.5 * (low + high)
        enough = _count_saved(analyses, apply(middle)) > saved
        low, high = (middle, high) if enough else (low, middle)
    return high, apply(high)


def _choose_backends() -> list[str]:
    """Choose torch, and the default back end of this machine."""
    default = next(name for name in BACKENDS if inspect_backend(name).available)
    return list(dict.fromkeys(("torch", default)))
