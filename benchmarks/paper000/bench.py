"""The table and the figures of the WCET project on Jetson Nano, with runs enough to tell a tail.

"WCET analysis of Deep Neural Networks on NVIDIA Jetson Nano" profiles YOLOv5, ResNet, GoogLeNet
and DeepLabv3 layer by layer and reports best and worst execution times, YOLOv5's from twelve runs
with a profiler attached. Here each network, and the built-in ones, runs --runs real frames without
a profiler: best case, high-water mark, and a bound of the tail with its verdict, which may well be
that there is none. Layers are timed on other frames in between. ResNet, GoogLeNet and DeepLabv3
are torchvision's with random weights, which take the same time; YOLOv5 is what --yolov5 names,
else YOLOX-nano takes its place, as the table notes. Passes when every network has its 1,000 runs
and its verdict, and its layers add up to the network within 15 %.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.options import BESIDE, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.tables import Report, flatten, say, tabulate
from benchmarks.harness.tasks import configure, load_task
from benchmarks.paper000 import figures
from benchmarks.paper000.hub_checkout import export_yolov5
from jetson_dnn_rt.clock import SteadyClock
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec, start_cold
from jetson_dnn_rt.lab.profile.layer_chain import make_layer_chain, run_layers
from jetson_dnn_rt.lab.profile.report import describe_times
from jetson_dnn_rt.lab.wcet.evt import judge
from jetson_dnn_rt.lab.wcet.statement import Campaign
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames
from jetson_dnn_rt.variants.measuring.timing import TimedRun, run_in_turn

LEAST_RUNS = 1000
SUM_BAR = 0.15
FRAMES_LIMIT = 100
CHUNK = 50
EXCEEDANCES = (1e-3, 1e-4)
VARIANT = "full@torch-fp32"
FIGURES = Path("demo_output/paper000")

Measure = Callable[[Sequence[Frame], int], list[TimedRun]]

PAPER = {
    "yolov5": "319.7 to 589.3 ms in 12 runs, on a desktop",
    "resnet50": "first run 240 ms on the CPU (171 on CUDA), then about 155 (133), on a desktop",
}
"""What the paper reports in figures; of the other two it reports none."""


@dataclass(frozen=True)
class Network:
    """A network of the table: its `source` as `load_model` takes it, and a remark on it."""

    name: str
    source: str
    input_size: tuple[int, int] | None = None
    note: str = ""


NAMES = ("yolov5", "resnet50", "googlenet", "deeplabv3", "detector", "segmenter")


def add_arguments(add: Options) -> None:
    """Options of the benchmark."""
    add("--models", list(NAMES), "default all", choices=NAMES)
    add("--runs", LEAST_RUNS, "timed frames of each network", least=1)
    add("--layer-runs", 100, "frames layer by layer", least=1)
    add("--cold", 1, "fresh processes for the first frame", least=1)
    add(
        "--threads", len(os.sched_getaffinity(0)), "of one inference (default: all cores)", least=1
    )
    add(
        "--deeplab-side", 128, "sides of DeepLabv3's input; its own 520 take seconds a frame",
        least=1, metavar="PX",
    )  # fmt: skip
    add(
        "--yolov5", None,
        "an ONNX export, or a checkout of the hub repository (its code is run)",
        kind=Path, metavar="PATH",
    )  # fmt: skip
    add(
        "--frames", None, "as of `profile` (default the dashcam video of --data)", metavar="SOURCE"
    )
    add("--data", DATA, BESIDE, metavar="DIR")
    add("--figures", FIGURES, "folder for the figures", metavar="DIR")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all networks, one after the other."""
    figures.check_matplotlib()
    frames = list(open_frames(args.frames or f"video:{args.data / VIDEO}", FRAMES_LIMIT))
    if not frames:
        raise ConfigurationError(f"--frames {args.frames}: there is not one frame")
    platform = describe_gpu() or describe_cpu()
    with ExitStack() as stack:
        networks = [_find_network(name, args, stack) for name in dict.fromkeys(args.models)]
        found = {network.name: _measure(network, frames, args, platform) for network in networks}
    drawn = figures.draw(found, args.figures, runs=args.runs, machine=platform)
    for entry in found.values():
        del entry["samples_ms"]
    enough = args.runs >= LEAST_RUNS
    passed = all(_is_sound(entry) for entry in found.values()) if enough else None
    return {
        **echo(args, "runs threads"),
        "frames": len(frames),
        "models": found,
        "figures": [str(path) for path in drawn],
        "bars": {"runs": LEAST_RUNS, "layers_off_percent": 100.0 * SUM_BAR},
        "passed": passed,
    }


def _find_network(name: str, args: argparse.Namespace, stack: ExitStack) -> Network:
    side = (args.deeplab_side, args.deeplab_side)
    plain = {
        "resnet50": Network(name, "torchvision:resnet50"),
        "googlenet": Network(name, "torchvision:googlenet"),
        "deeplabv3": Network(
            name, "torchvision:deeplabv3_resnet50", side, f"{side[0]}x{side[1]} in place of 520"
        ),
        "detector": Network(name, "builtin:detector"),
        "segmenter": Network(name, "builtin:segmenter"),
    }
    if name in plain:
        return plain[name]
    if args.yolov5 is None:
        source = f"onnx:{args.data / YOLOX}"
        return Network("yolox_nano", source, None, "in place of YOLOv5, which --yolov5 names")
    if args.yolov5.is_dir():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yolov5-")))
        return Network(name, f"onnx:{export_yolov5(args.yolov5, folder)}", None, "hub checkout")
    return Network(name, f"onnx:{args.yolov5}", None, "ONNX export")


def _measure(
    network: Network, frames: Sequence[Frame], args: argparse.Namespace, platform: str
) -> dict[str, Any]:
    clock = SteadyClock()
    weights = "none" if network.source.startswith("torchvision:") else "DEFAULT"
    spec = ColdSpec(
        network.source, VARIANT, args.threads, 1, weights=weights, input_size=network.input_size
    )
    say(f"paper000: {network.name}: {args.cold} fresh processes")
    cold = [start_cold(spec, frames) for _ in range(args.cold)]
    config = configure(
        network.name, network.source, [VARIANT], weights=weights,
        input_size=network.input_size or (),
    )  # fmt: skip
    with ExitStack() as stack:
        variants = load_task(stack, config, threads=args.threads).variants
        stages = variants.pipelines[VARIANT].stages
        chain = make_layer_chain(variants, VARIANT, threads=args.threads, clock=clock)
        whole, layered = _in_chunks(
            network.name, frames, args.runs, args.layer_runs,
            lambda chosen, count: run_in_turn([stages], chosen, count, clock)[0],
            lambda chosen, count: run_layers(chain, variants, chosen, count, clock),
        )  # fmt: skip
    times_ns = np.array([run.times_ns for part in whole for run in part], np.int64)
    layers_ns = np.array([run.times_ns[1:-1] for part in layered for run in part], np.int64)
    total_ns = times_ns.sum(axis=1)
    campaign = judge(
        total_ns, title=f"{network.name}, {VARIANT}", exceedances=EXCEEDANCES, platform=platform
    )
    pairs_ns = [
        (
            np.median([run.times_ns[1] for run in one]),
            np.median([sum(run.times_ns[1:-1]) for run in other]),
        )
        for one, other in zip(whole, layered, strict=True)
    ]
    share = layers_ns.mean(axis=0) / layers_ns.sum(axis=1).mean()
    return {
        "source": network.source,
        "note": network.note,
        "paper": PAPER.get(network.name, ""),
        "input": list(variants.model.input_size),
        "variant": VARIANT,
        "time_ms": describe_times(total_ns / 1e6),
        "spread": float(total_ns.max() / total_ns.min()),
        "stages": {
            stage.name: describe_times(column / 1e6)
            for stage, column in zip(stages, times_ns.T, strict=True)
        },
        "cold_ms": {name: max(c.phases_ms[name] for c in cold) for name in cold[0].phases_ms},
        "pwcet": _describe(campaign),
        "layers": [
            {
                "name": layer.name,
                "operators": layer.operators,
                "share": float(part),
                "time_ms": describe_times(column / 1e6),
            }
            for layer, part, column in zip(chain.layers, share, layers_ns.T, strict=True)
        ],
        "network_ms": float(np.median([one for one, _ in pairs_ns])) / 1e6,
        "layers_ms": float(np.median([other for _, other in pairs_ns])) / 1e6,
        # Pair by pair, so that a machine that is busier for a while is so in both.
        "layers_off": float(np.median([other / one for one, other in pairs_ns])) - 1.0,
        "samples_ms": (total_ns / 1e6).tolist(),
    }


def _in_chunks(
    name: str,
    frames: Sequence[Frame],
    runs: int,
    layer_runs: int,
    measure: Measure,
    measure_layers: Measure,
) -> tuple[list[list[TimedRun]], list[list[TimedRun]]]:
    """Some runs in one piece, some layer by layer, and so on; without the cold ones of each."""
    found: tuple[list[list[TimedRun]], list[list[TimedRun]]] = ([], [])
    for first in range(0, runs, CHUNK):
        say(f"paper000: {name}: {first} of {runs}")
        at = first % len(frames)
        chosen = [*frames[at:], *frames[:at]]
        count = min(CHUNK, runs - first)
        of_layers = -(-layer_runs * count // runs)
        for kept, taken in zip(
            found, (measure(chosen, count), measure_layers(chosen, of_layers)), strict=True
        ):
            kept.append([run for run in taken if not run.cold])
    return found


def _describe(campaign: Campaign) -> dict[str, Any]:
    return {
        "support": campaign.support.value,
        "bounds": [
            {
                "exceedance": bound.exceedance,
                "support": bound.support.value,
                "upper_ms": None if np.isnan(bound.upper_ns) else bound.upper_ns / 1e6,
                "method": bound.method,
            }
            for bound in campaign.bounds
        ],
        "failed": [test.name for test in campaign.tests if not test.passed],
        "longest_burst": campaign.longest_burst,
        "statement": campaign.statement,
    }


def _is_sound(entry: Mapping[str, Any]) -> bool:
    return (
        entry["time_ms"]["count"] >= LEAST_RUNS
        and bool(entry["pwcet"]["statement"])
        and abs(entry["layers_off"]) <= SUM_BAR
    )


def report(result: Mapping[str, Any]) -> Report:
    """The paper's table, and what it could not say."""
    bounds = [(f"pWCET {p:.0e}", partial(_show_bound, i)) for i, p in enumerate(EXCEEDANCES)]
    verdict = {True: "passed", False: "a bar was not met", None: "too few runs to tell"}
    return [
        tabulate(
            flatten(result["models"], "network"),
            "network",
            ("input", lambda entry: "x".join(map(str, entry["input"]))),
            "first=cold_ms.first_frame:.1f, BCET=time_ms.best:.2f, p50=time_ms.p50:.2f",
            "p99=time_ms.p99:.2f, HWM ms=time_ms.max:.2f, HWM/BCET=spread:.2f",
            *bounds,
        ),
        "\n".join(
            line for name, found in result["models"].items() for line in _explain(name, found)
        ),
        f"figures: {', '.join(result['figures'])}\n"
        f"{result['runs']} runs of each: {verdict[result['passed']]}",
    ]


def _show_bound(index: int, entry: Mapping[str, Any]) -> str:
    bound = entry["pwcet"]["bounds"][index]
    if bound["upper_ms"] is None:
        return str(bound["support"])
    return f"{bound['upper_ms']:.2f} {bound['support']}"


def _explain(name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    longest = sorted(entry["layers"], key=lambda layer: -float(layer["share"]))[:3]
    shares = ", ".join(f"{layer['name']} {100.0 * layer['share']:.0f} %" for layer in longest)
    yield (
        f"{name}{f' ({note})' if (note := entry['note']) else ''}: {len(entry['layers'])} layers, "
        f"{entry['layers_ms']:.2f} ms together against {entry['network_ms']:.2f} in one piece; "
        f"longest {shares}"
    )
    yield f"  {entry['pwcet']['statement']}"
    if entry["paper"]:
        yield f"  paper: {entry['paper']}"
