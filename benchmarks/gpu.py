# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The networks of `backends` on a CUDA GPU: plain torch, graphs, and TensorRT.

All runs of a model take turns, round by round. A time begins with the input in page-locked host
memory and ends with the outputs on the host. ``torch-eager`` is the obvious first version: fp32,
kernel by kernel, with torch's own settings. The others are this package's runners: CUDA graphs,
whole and cut into stages, each stage a graph or an engine of its own. Error and agreement
(mAP@0.5, mIoU or top-1) are against ONNX Runtime in fp32 on the CPU, without it against torch
there, on the same frames. Networks of torchvision have random weights: nothing is downloaded.

Missing parts (TensorRT, a video) are named and left out; without a CUDA device nothing is run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.backends.bench import MODELS, STAGES, join_notes, load
from benchmarks.harness.networks import (
    Chain,
    EagerRunner,
    Lineup,
    Shown,
    describe_model,
    report_models,
)
from benchmarks.harness.options import BESIDE, DATA, Options
from benchmarks.harness.tables import Report, say
from benchmarks.harness.timing import quantile_ms
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.cuda.owners import TorchCuda, open_cuda
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.backends.torch import TorchCudaRunner, TorchRunner
from jetson_dnn_rt.errors import JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.platforms.machine import describe_gpu
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.network import Network
from jetson_dnn_rt.variants.spec import FULL

EAGER = "torch-eager"
ROWS = (EAGER, "torch-fp32", "torch-fp16", "tensorrt-fp16")
_MOST_ROUNDS = 3000
_THREADS = 4  # of the reference on the CPU


def add_arguments(add: Options) -> None:
    """Add the options of the benchmark."""
    add("--models", list(MODELS), "default: all", choices=MODELS)
    add("--rows", list(ROWS), "default: all", choices=ROWS)
    add("--stages", STAGES, "into which the networks are cut; 1: only whole", least=1)
    add("--data", DATA, f"folder of the video and of YOLOX ({BESIDE})", metavar="DIR")
    add("--seconds", None, "of measuring for one model (default 6)", kind=float, above=0)
    add(
        "--minutes", None, "after which no further model or engine is begun (default 8)",
        kind=float, above=0,
    )  # fmt: skip
    add("--quick", False, "1.5 s for a model, 2 minutes")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models; ``passed`` is None: no bar.

    `BackendUnavailableError` when there is no CUDA device, with the fix.
    """
    args.seconds = args.seconds or (1.5 if args.quick else 6.0)
    minutes = args.minutes or (2.0 if args.quick else 8.0)
    cuda = open_cuda()
    cuda.close()
    state = _State(time.monotonic() + minutes * 60.0)
    models: dict[str, dict[str, Any]] = {}
    for name in args.models:
        say(f"gpu: {name}")
        try:
            state.check_time()
            model, frames, _ = load(name, args.data)
            models[name] = _measure(model, frames, args, state)
        except JetsonDnnRtError as error:
            models[name] = {"skipped": str(error)}
    tensorrt = inspect_backend("tensorrt")
    return {
        "models": models,
        "gpu": describe_gpu(),
        "memory": cuda.owner,
        "tensorrt": tensorrt.version if tensorrt.available else tensorrt.reason,
        "passed": None,
    }


@dataclass
class _State:
    """State that all models share."""

    end_s: float
    timing_cache: bytes = b""

    def check_time(self) -> None:
        if time.monotonic() >= self.end_s:
            raise JetsonDnnRtError("no time left: give --minutes, or fewer --models")


def _measure(
    model: Model, frames: Sequence[Frame], args: argparse.Namespace, state: _State
) -> dict[str, Any]:
    """Measure one model, whole and cut into stages."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        network = Network(model, args.stages, Library(Path(folder)))
        reference, expected = _find_reference(model, network, frames)
        lineup = Lineup(model, frames, stack)
        built: dict[str, list[_Built]] = {}

        def add(key: str, name: str, count: int) -> None:
            made = built[key] = []

            def make_runner(part: Part) -> Runner:
                made.append(_make_runner(name, state, part))
                return made[-1].runner

            lineup.add(key, partial(Chain, network.pieces(FULL, count), make_runner))

        for name in args.rows:
            add(name, name, 1)
            if network.stages > 1 and name in lineup.chains and name not in (EAGER, "torch-fp32"):
                add(f"{name} staged", name, network.stages)
        if not lineup.chains:
            return {"skipped": "; ".join(dict.fromkeys(lineup.notes.values()))}
        image = _pin(np.random.default_rng(0).random(model.input_shape, np.float32), stack)
        times = lineup.measure(image, budget_s=args.seconds, most=_MOST_ROUNDS, warm_up=10)
        medians = {key: quantile_ms(taken, 0.5) for key, taken in times.items()}

        def describe_engines(key: str) -> dict[str, object]:
            graphs = [one.cuda_graph for one in built[key] if one.cuda_graph is not None]
            sizes = [one.size for one in built[key] if one.size]
            figures: dict[str, object] = {"cuda_graph": all(graphs)} if graphs else {}
            if sizes:
                figures["build_s"] = round(sum(one.build_ms for one in built[key]) / 1e3, 1)
                figures["engine_mib"] = round(sum(sizes) / 2**20, 1)
            return figures

        def describe(name: str) -> dict[str, Any]:
            row = {"row": name, **lineup.describe(name, times, expected, 4, describe_engines)}
            if {name, EAGER} <= times.keys():
                row["times_faster_than_eager"] = round(medians[EAGER] / medians[name], 2)
            return row

        return {
            **describe_model(model, network.stages, times),
            "reference": reference,
            "rows": [describe(name) for name in args.rows],
        }


def _find_reference(model: Model, network: Network, frames: Sequence[Frame]) -> tuple[str, Shown]:
    """Run the network in fp32 on the CPU; return the back end and the results."""
    makers: dict[str, Callable[[Part], Runner]] = {
        "onnxruntime": lambda part: create_runner(part, "onnxruntime", "fp32", threads=_THREADS),
        "torch": lambda part: TorchRunner(part, "fp32", _THREADS),
    }
    with ExitStack() as stack:
        lineup = Lineup(model, frames, stack)
        for name, make_runner in makers.items():
            lineup.add(name, partial(Chain, network.pieces(FULL, 1), make_runner))
            if name in lineup.shown:
                return f"{name} fp32 on the CPU", lineup.shown[name]
    raise ModelError(f"nothing to compare with: {'; '.join(lineup.notes.values())}")


def _pin(image: npt.NDArray[np.float32], stack: ExitStack) -> npt.NDArray[np.float32]:
    """Copy the image into page-locked memory, as from `Runner.allocate_input`."""
    cuda = open_cuda()
    stack.callback(cuda.close)
    pinned: npt.NDArray[np.float32] = cuda.allocate_host(image.shape, np.float32)
    np.copyto(pinned, image)
    return pinned


class _Built(NamedTuple):
    """Runner, with the build time and size of its engine if it has one."""

    runner: Runner
    cuda_graph: bool | None = None
    build_ms: float = 0.0
    size: int = 0


def _make_runner(name: str, state: _State, part: Part) -> _Built:
    backend, precision = name.split("-")
    if name == EAGER:
        TorchCuda().close()  # raises an error that names the missing part
        return _Built(EagerRunner(part, device="cuda"))
    if backend == "torch":
        runner = TorchCudaRunner(part, precision)
        return _Built(runner, runner.cuda_graph)
    from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine
    from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner

    state.check_time()
    built = build_engine(part, precision, BuildOptions(timing_cache=state.timing_cache))
    state.timing_cache = built.timing_cache
    engine = TensorRtRunner(part, precision, engine=built.engine)
    return _Built(engine, engine.cuda_graph, built.build_ms, len(built.engine))


def report(result: Mapping[str, Any]) -> Report:
    """Make a table for each model."""
    return [
        f"{result['gpu']}, memory and streams by {result['memory']}, TensorRT: "
        f"{result['tensorrt']}",
        *report_models(
            result["models"],
            lambda found: (
                f", {found['stages']} stages, {found['rounds']} rounds, "
                f"against {found['reference']}"
            ),
            "row, p50 ms=p50_ms:.3f, p99 ms=p99_ms:.3f, x eager=times_faster_than_eager:.2f",
            "error=relative_error:.0e, agreement:.3f, graph=cuda_graph, build s=build_s:.1f",
            "MiB=engine_mib:.1f, staged p50=staged.p50_ms:.3f, staged p99=staged.p99_ms:.3f",
            "overhead %=staged.overhead_percent:.1f, staged agreement=staged.agreement:.3f",
            ("", join_notes),
        ),
    ]
