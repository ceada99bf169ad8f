# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Table and figures of the WCET project on Jetson Nano, with enough runs to judge the tail.

"WCET analysis of Deep Neural Networks on NVIDIA Jetson Nano" profiles YOLOv5, ResNet, GoogLeNet
and DeepLabv3 layer by layer and reports best and worst execution times, YOLOv5's from twelve runs
with a profiler attached. Here each network, and the built-in ones, runs --runs real frames without
a profiler: best case, high-water mark, and a bound of the tail with its verdict, which may be that
there is none. Layers are timed on other frames in between. The paper's way is repeated beside it,
on the CPU and on a CUDA device where there is one: twelve runs of the network, the first one
included, under the profiler of torch, and twelve without it. ResNet, GoogLeNet and DeepLabv3 are
torchvision's with random weights, which take the same time; YOLOv5 comes from --yolov5, else
YOLOX-nano replaces it, as the table notes. Passes if every network has its 1,000 runs and a
bound at 1e-3 (not only the verdict that there is none), and its layers add up to the network
within 15 %.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.networks import EagerRunner
from benchmarks.harness.options import BESIDE, CORES, DATA, VIDEO, YOLOX, Options, echo
from benchmarks.harness.tables import Report, flatten, say, say_bars, tabulate
from benchmarks.harness.tasks import configure, load_task
from benchmarks.harness.timing import rotate
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.torch import choose_device
from jetson_dnn_rt.clock import Clock, SteadyClock
from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.lab.profile.cold_start import ColdSpec, start_cold
from jetson_dnn_rt.lab.profile.layer_chain import make_layer_chain, run_layers
from jetson_dnn_rt.lab.profile.report import describe_times
from jetson_dnn_rt.lab.wcet.evt import judge
from jetson_dnn_rt.lab.wcet.statement import Campaign
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.sources.torch import export_onnx
from jetson_dnn_rt.platforms.machine import describe_cpu, describe_gpu
from jetson_dnn_rt.variants.measuring.sample_frames import open_frames, prepare_inputs
from jetson_dnn_rt.variants.measuring.timing import TimedRun, run_in_turn

LEAST_RUNS = 1000
SUM_BAR = 0.15
PAPER_RUNS = 12
FRAMES_LIMIT = 100
CHUNK = 50
EXCEEDANCES = (1e-3, 1e-4)
VARIANT = "full@torch-fp32"
FIGURES = Path("demo_output/paper000")
ENTRY, SIDE = "yolov5s", 640
LAYERS_SHOWN = 12
BINS = 60
_COLUMNS = 2
_BAR, _TAIL, _BEST = "#4c78a8", "#e45756", "#54a24b"

PAPER = {
    "yolov5": "319.7 to 589.3 ms in 12 runs, on a desktop",
    "resnet50": "first run 240 ms on the CPU (171 on CUDA), then about 155 (133), on a desktop",
}
"""Figures that the paper reports; it has none for the other two networks."""


@dataclass(frozen=True)
class Network:
    """Network of the table: its `source` for `load_model`, and a note."""

    name: str
    source: str
    input_size: tuple[int, int] | None = None
    note: str = ""


SOURCES = {
    "resnet50": "torchvision:resnet50",
    "googlenet": "torchvision:googlenet",
    "detector": "builtin:detector",
    "segmenter": "builtin:segmenter",
}
NAMES = ("yolov5", "resnet50", "googlenet", "deeplabv3", "detector", "segmenter")


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(NAMES), "default all", choices=NAMES)
    add("--runs", LEAST_RUNS, "timed frames of each network", least=1)
    add("--layer-runs", 100, "frames layer by layer", least=1)
    add("--cold", 1, "fresh processes for the first frame", least=1)
    add("--threads", CORES, "of one inference (default: all cores)", least=1)
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
    if importlib.util.find_spec("matplotlib") is None:  # before an hour of measuring, not after it
        raise ConfigurationError(
            "the figures need matplotlib, which is not installed: "
            "pip install 'jetson_dnn_rt[plots]'"
        )
    frames = list(open_frames(args.frames or f"video:{args.data / VIDEO}", FRAMES_LIMIT))
    if not frames:
        raise ConfigurationError(f"--frames {args.frames}: there is no frame")
    platform = describe_gpu() or describe_cpu()
    with ExitStack() as stack:
        networks = [_find_network(name, args, stack) for name in dict.fromkeys(args.models)]
        found = {network.name: _measure(network, frames, args, platform) for network in networks}
    drawn = draw(found, args.figures, runs=args.runs, machine=platform)
    for entry in found.values():
        del entry["samples_ms"]
    result = {
        **echo(args, "runs threads"),
        "frames": len(frames),
        "cuda_missing": "" if choose_device() == "cuda" else "torch sees no CUDA device",
        "models": found,
        "figures": [str(path) for path in drawn],
        "bars": {"runs": LEAST_RUNS, "layers_off_percent": 100.0 * SUM_BAR},
    }
    return {**result, "passed": rejudge(result)}


def rejudge(result: Mapping[str, Any]) -> bool | None:
    """Judge a result, also one that was written before; None with too few runs to tell."""
    if result["runs"] < LEAST_RUNS:
        return None
    return all(_is_sound(entry) for entry in result["models"].values())


def _find_network(name: str, args: argparse.Namespace, stack: ExitStack) -> Network:
    if name in SOURCES:
        return Network(name, SOURCES[name])
    if name == "deeplabv3":
        side = (args.deeplab_side, args.deeplab_side)
        note = f"{side[0]}x{side[1]} in place of 520"
        return Network(name, "torchvision:deeplabv3_resnet50", side, note)
    if args.yolov5 is None:
        note = "in place of YOLOv5, which --yolov5 names"
        return Network("yolox_nano", f"onnx:{args.data / YOLOX}", None, note)
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
        pipeline = variants.pipelines[VARIANT]
        stages = pipeline.stages
        device = pipeline.segments[0].runner.device
        as_paper = measure_as_paper(variants.model, frames[:1], args.threads, clock)
        chain = make_layer_chain(variants, VARIANT, threads=args.threads, clock=clock)
        whole: list[list[TimedRun]] = []
        layered: list[list[TimedRun]] = []
        # Some runs in one piece, some layer by layer, in turn; without the cold ones of each.
        for first in range(0, args.runs, CHUNK):
            say(f"paper000: {network.name}: {first} of {args.runs}")
            chosen = rotate(frames, first)
            count = min(CHUNK, args.runs - first)
            of_layers = -(-args.layer_runs * count // args.runs)
            runs = run_in_turn([stages], chosen, count, clock)[0]
            whole.append([run for run in runs if not run.cold])
            runs = run_layers(chain, variants, chosen, of_layers, clock)
            layered.append([run for run in runs if not run.cold])
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
        "device": device,
        "as_paper": as_paper,
        "twelve": describe_twelve(total_ns / 1e6),
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
        # Pair by pair, so that temporary load of the machine affects both.
        "layers_off": float(np.median([other / one for one, other in pairs_ns])) - 1.0,
        "samples_ms": (total_ns / 1e6).tolist(),
    }


def measure_as_paper(
    model: Model, frames: Sequence[Frame], threads: int, clock: Clock
) -> dict[str, dict[str, list[float]]]:
    """Run the network alone as the paper does, in plain torch, on the CPU and on a CUDA device.

    Returns by device the ms of each of `PAPER_RUNS`: ``profiled_ms`` under the profiler of torch,
    ``plain_ms`` without it, both from the first run of a network that was made anew.
    """
    from torch.profiler import ProfilerActivity, profile

    (image,) = prepare_inputs(model, frames)
    found: dict[str, dict[str, list[float]]] = {}
    for device in dict.fromkeys(("cpu", choose_device())):
        activities = [ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(ProfilerActivity.CUDA)

        def watch(activities: Any = activities) -> Any:
            return profile(activities=activities)

        found[device] = {}
        for key, attend in (("profiled_ms", watch), ("plain_ms", contextlib.nullcontext)):
            runner = EagerRunner(model, threads, device)
            try:
                found[device][key] = _time_first_runs(runner, image, attend, clock)
            finally:
                runner.close()
    return found


def _time_first_runs(
    runner: Runner, image: npt.NDArray[np.float32], attend: Any, clock: Clock
) -> list[float]:
    """Time `PAPER_RUNS` from the input to the outputs on the host, each within `attend`."""
    taken_ms = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from kineto, about its own set-up
        for _ in range(PAPER_RUNS):
            with attend():
                begin_ns = clock.now_ns()
                runner.to_host(runner.run([image]))
                taken_ms.append((clock.now_ns() - begin_ns) / 1e6)
    return taken_ms


def describe_twelve(times_ms: npt.NDArray[np.float64]) -> dict[str, Any] | None:
    """Describe what the longest of any `PAPER_RUNS` runs in a row says of all of a campaign.

    ``worst_ms``: the least and the largest of these; ``mean_exceeded_percent``: how many of all
    frames take longer, as the mean over them: of independent times one in 13. None for a campaign
    that is shorter.
    """
    if len(times_ms) < PAPER_RUNS:
        return None
    worst = np.lib.stride_tricks.sliding_window_view(times_ms, PAPER_RUNS).max(axis=1)
    beyond = len(times_ms) - np.searchsorted(np.sort(times_ms), worst, side="right")
    return {
        "worst_ms": [float(worst.min()), float(worst.max())],
        "mean_exceeded_percent": 100.0 * float(np.mean(beyond)) / len(times_ms),
    }


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
        and entry["pwcet"]["bounds"][0]["upper_ms"] is not None
        and abs(entry["layers_off"]) <= SUM_BAR
    )


def report(result: Mapping[str, Any]) -> Report:
    """Make the paper's table with bounds of the tails, which the paper lacks, and the layers."""
    bounds = [(f"pWCET {p:.0e}", partial(_show_bound, i)) for i, p in enumerate(EXCEEDANCES)]
    return [
        tabulate(
            flatten(result["models"], "network"),
            "network",
            ("input", lambda entry: "x".join(map(str, entry["input"]))),
            "device",
            "first=cold_ms.first_frame:.1f, BCET=time_ms.best:.2f, p50=time_ms.p50:.2f",
            "p99=time_ms.p99:.2f, HWM ms=time_ms.max:.2f, HWM/BCET=spread:.2f",
            *bounds,
        ),
        "\n".join(
            line for name, found in result["models"].items() for line in _explain(name, found)
        ),
        *_report_as_paper(result),
        f"figures: {', '.join(result['figures'])}",
        say_bars(
            f"{LEAST_RUNS} runs, layers within {SUM_BAR:.0%} of the whole, a bound at "
            f"{EXCEEDANCES[0]:.0e} for each network",
            result["passed"],
        ),
    ]


def _report_as_paper(result: Mapping[str, Any]) -> Report:
    """Report the paper's way, with its twelve runs, beside the campaign."""
    rows = [
        {
            "network": name,
            "device": device,
            **{
                f"{key}_{figure}": value
                for key in ("profiled", "plain")
                for figure, value in _summarize_runs(runs[f"{key}_ms"]).items()
            },
            "twelve": entry["twelve"] if device == entry["device"] else None,
            "paper": entry["paper"],
        }
        for name, entry in result["models"].items()
        for device, runs in entry.get("as_paper", {}).items()
    ]
    if not rows:
        return []
    missing = result["cuda_missing"]
    # Results that were written before have the median in place of the mean.
    medians = any("exceeded_percent" in (row["twelve"] or {}) for row in rows)
    key, of_all = ("", "in the median") if medians else ("mean_", "on average")
    return [
        f"as in the paper: {PAPER_RUNS} runs of the network alone in plain torch, the first one "
        "included, under the profiler and without it. Beyond: frames of the campaign that take "
        f"longer than the worst of {PAPER_RUNS} in a row, {of_all}"
        + (f"\nno column of CUDA: {missing}" if missing else ""),
        tabulate(
            rows,
            "network, device, first ms=profiled_first:.1f, BCET=profiled_best:.1f",
            "WCET=profiled_worst:.1f, WCET/BCET=profiled_spread:.2f",
            "no profiler: first=plain_first:.1f, BCET=plain_best:.1f, WCET=plain_worst:.1f",
            f"WCET/BCET=plain_spread:.2f, beyond %=twelve.{key}exceeded_percent:.1f, paper",
        ),
    ]


def _summarize_runs(times_ms: Sequence[float]) -> dict[str, float]:
    best, worst = min(times_ms), max(times_ms)
    return {"first": times_ms[0], "best": best, "worst": worst, "spread": worst / best}


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


# -- figures -------------------------------------------------------------------------------------


def draw(models: Mapping[str, Any], folder: Path, *, runs: int, machine: str) -> list[Path]:
    """Draw the figures as PNG files into a folder, which is created if missing.

    `models` are the measurements of each network, with ``samples_ms``.

    `ConfigurationError` when the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        layers = f"The {LAYERS_SHOWN} layers that take longest: median, and up to p99\n{machine}"
        times = f"Execution times of {runs} real frames, no profiler attached\n{machine}"
        first = f"The first {PAPER_RUNS} runs of the network alone, as in the paper\n{machine}"
        return [
            _save(models, folder / "layers.png", _draw_layers, layers),
            _save(models, folder / "distributions.png", _draw_distribution, times),
            _save(models, folder / "first_runs.png", _draw_first_runs, first),
        ]
    except OSError as error:
        raise ConfigurationError(f"cannot write {folder}: {error.strerror}") from error


def _save(models: Mapping[str, Any], path: Path, draw_one: Any, title: str) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(models) // _COLUMNS)
    figure: Any = Figure(figsize=(13, 0.6 + 3.6 * rows), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, _COLUMNS, squeeze=False)
    for axes, (name, entry) in zip(grid.flat, models.items(), strict=False):
        draw_one(axes, name, entry)
    for axes in list(grid.flat)[len(models) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=12)
    figure.savefig(path)
    return path


def _draw_layers(axes: Any, name: str, entry: Mapping[str, Any]) -> None:
    longest = sorted(entry["layers"], key=lambda layer: -float(layer["share"]))[:LAYERS_SHOWN]
    longest.reverse()  # bars go upwards
    medians = [layer["time_ms"]["p50"] for layer in longest]
    upper = [layer["time_ms"]["p99"] - layer["time_ms"]["p50"] for layer in longest]
    labels = [f"{_shorten(layer['name'])}  {100.0 * layer['share']:.0f} %" for layer in longest]
    axes.barh(
        range(len(longest)), medians, color=_BAR, xerr=[np.zeros(len(upper)), upper],
        error_kw={"ecolor": _TAIL, "capsize": 2, "linewidth": 1},
    )  # fmt: skip
    axes.set_yticks(range(len(longest)), labels, fontsize=8)
    axes.set_xlabel("ms")
    axes.set_title(f"{name}: {entry['layers_ms']:.1f} ms in {len(entry['layers'])} layers")


def _draw_distribution(axes: Any, name: str, entry: Mapping[str, Any]) -> None:
    times = entry["time_ms"]
    axes.hist(entry["samples_ms"], bins=BINS, color=_BAR)
    axes.set_yscale("log")
    lines = [("BCET", times["best"], _BEST, "-"), ("high-water mark", times["max"], _TAIL, "-")]
    for bound in entry["pwcet"]["bounds"]:
        if bound["upper_ms"] is not None:
            words = f"pWCET at {bound['exceedance']:.0e}, {bound['support']}"
            lines.append((words, bound["upper_ms"], "#b279a2", "--"))
    for words, value, colour, style in lines:
        axes.axvline(value, color=colour, linestyle=style, label=f"{words}: {value:.1f} ms")
    axes.set_xlabel("ms a frame")
    axes.set_ylabel("frames")
    axes.legend(fontsize=8, loc="upper right")
    without = "" if len(lines) > 2 else ": no bound, " + ", ".join(entry["pwcet"]["failed"][:3])
    axes.set_title(f"{name} ({entry['pwcet']['support']}{without})", fontsize=10)


def _draw_first_runs(axes: Any, name: str, entry: Mapping[str, Any]) -> None:
    numbers = range(1, PAPER_RUNS + 1)
    for device, runs in entry["as_paper"].items():
        colour = _BAR if device == "cpu" else _BEST
        axes.plot(numbers, runs["profiled_ms"], "o-", color=colour, label=f"{device}, profiler")
        axes.plot(numbers, runs["plain_ms"], "x--", color=colour, label=f"{device}, without it")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("run")
    axes.set_ylabel("ms")
    axes.legend(fontsize=8)
    axes.set_title(name)


def _shorten(name: str, length: int = 34) -> str:
    return name if len(name) <= length else f"...{name[3 - length :]}"


# -- YOLOv5 --------------------------------------------------------------------------------------


def export_yolov5(checkout: Path, folder: Path, *, side: int = SIDE) -> Path:
    """Make the small YOLOv5 of a checkout, with random weights, and export it into a folder.

    The checkout's own code is run: it must be one that you trust. `side` of the input is in
    pixels, a multiple of 32.

    `ConfigurationError` when it is not such a checkout; `ModelError` when its code fails, or the
    network cannot be exported.
    """
    hub = checkout / "hubconf.py"
    if not hub.is_file():
        raise ConfigurationError(f"--yolov5 {checkout}: a checkout has a file hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", hub)
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    # They would install missing packages into the environment of this package.
    os.environ["YOLOv5_AUTOINSTALL"] = "false"  # noqa: SIM112  as it is spelt there
    os.environ["YOLO_AUTOINSTALL"] = "false"
    sys.path.insert(0, str(checkout))  # its modules import each other by their names
    try:
        with contextlib.redirect_stdout(sys.stderr):  # ours is for the result
            spec.loader.exec_module(code)
            module = getattr(code, ENTRY)(pretrained=False, autoshape=False, device="cpu")
    except Exception as error:  # foreign code may raise anything
        raise ModelError(
            f"--yolov5 {checkout}: {ENTRY} cannot be made ({type(error).__name__}: {error}): "
            "install what its requirements.txt names, or give an ONNX export"
        ) from error
    finally:
        sys.path.remove(str(checkout))
    path = folder / f"{ENTRY}.onnx"
    network = _First(module.float()).eval()
    path.write_bytes(export_onnx(network, ((1, 3, side, side),), ENTRY))
    return path


class _First(torch.nn.Module):
    """Network reduced to its first output: YOLOv5 returns its feature maps after the boxes."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        outputs = self.network(image)
        first: torch.Tensor = outputs if torch.is_tensor(outputs) else outputs[0]
        return first
