"""The networks of `bench backends` on a CUDA GPU: torch as it comes, as graphs, and TensorRT.

All runs of a model take turns, round by round. A time begins with the input in page-locked host
memory and ends with the outputs on the host. ``torch-eager`` is what one writes first: fp32,
kernel by kernel, with torch's own settings. The others are this package's runners: CUDA graphs,
whole and cut into stages, each stage a graph or an engine of its own. Error and agreement
(mAP@0.5, mIoU or top-1) are against ONNX Runtime in fp32 on the CPU, without it against torch
there, on the same frames. Networks of torchvision have random weights: nothing is downloaded.

What is missing (TensorRT, a video) is named and left out; without a CUDA device nothing is run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from benchmarks.backends import DATA, MODELS, load
from benchmarks.chain import Chain, Shown, report_figures
from benchmarks.rounds import (
    Times,
    find_overhead_percent,
    measure_rounds,
    quantile_ms,
)
from jetson_dnn_rt.backends.base import Array, HostArrays, Runner
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.cli.text import format_figure, format_rows
from jetson_dnn_rt.errors import ConfigurationError, JetsonDnnRtError, ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.platforms.machine import describe_gpu
from jetson_dnn_rt.variants.library.library import Library
from jetson_dnn_rt.variants.running.network import Network
from jetson_dnn_rt.variants.spec import FULL

EAGER = "torch-eager"
ROWS = (EAGER, "torch-fp32", "torch-fp16", "tensorrt-fp16")
STAGES = 8
_MOST_ROUNDS = 3000
_THREADS = 4  # of the reference on the CPU


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the benchmark."""
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME",
        help=f"of {', '.join(MODELS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME",
        help=f"of {', '.join(ROWS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--stages", type=int, default=STAGES, metavar="K",
        help=f"into which the networks are cut (default {STAGES}; 1: only whole)",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, default=DATA, metavar="DIR",
        help="folder of the video and of YOLOX (default: ../shared/data beside the checkout)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="of measuring for one model (default 6)"
    )
    parser.add_argument(
        "--minutes", type=float, metavar="M",
        help="after which no further model or engine is begun (default 8)",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="1.5 s for a model, 2 minutes")


def run(args: argparse.Namespace) -> dict[str, object]:
    """Measure all models.

    Returns
    -------
    dict
        ``models``: for each its rows, or why it was left out; ``passed`` is None: no bar.

    Raises
    ------
    ConfigurationError
        When an argument is out of range.
    BackendUnavailableError
        When there is no CUDA device, with the fix.
    """
    seconds = args.seconds or (1.5 if args.quick else 6.0)
    minutes = args.minutes or (2.0 if args.quick else 8.0)
    if args.stages < 1 or seconds <= 0 or minutes <= 0:
        raise ConfigurationError("--stages must be >= 1, --seconds and --minutes > 0")
    cuda = open_cuda()
    cuda.close()
    state = _State(time.monotonic() + minutes * 60.0)
    models: dict[str, dict[str, object]] = {}
    for name in args.models:
        print(f"gpu: {name}", file=sys.stderr, flush=True)
        try:
            state.check_time()
            model, frames = load(name, args.data)
            models[name] = measure_model(model, frames, args.rows, args.stages, seconds, state)
        except JetsonDnnRtError as error:
            models[name] = {"skipped": str(error)}
    return {
        "models": models,
        "gpu": describe_gpu(),
        "memory": cuda.owner,
        "tensorrt": _describe_tensorrt(),
        "passed": None,
    }


def _describe_tensorrt() -> str:
    info = inspect_backend("tensorrt")
    return info.version if info.available else info.reason


class OutOfTimeError(JetsonDnnRtError):
    """The minutes of the benchmark are over."""


@dataclass
class _State:
    """What all models share."""

    end_s: float
    timing_cache: bytes = b""

    def check_time(self) -> None:
        if time.monotonic() >= self.end_s:
            raise OutOfTimeError("no time left: give --minutes, or fewer --models")


@dataclass
class _Engines:
    """What the engines of one row took."""

    build_ms: float = 0.0
    sizes: list[int] = field(default_factory=list)
    graphs: list[bool] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        figures: dict[str, object] = {"cuda_graph": all(self.graphs)} if self.graphs else {}
        if self.sizes:
            figures["build_s"] = round(self.build_ms / 1e3, 1)
            figures["engine_mib"] = round(sum(self.sizes) / 2**20, 1)
        return figures


class EagerRunner(Runner):
    """torch as one uses it first: fp32, kernel by kernel, default settings."""

    backend, precision, device = "torch", "fp32", "cuda"

    def __init__(self, part: Part) -> None:
        import torch

        super().__init__(part)
        self.version = str(torch.__version__)
        self._module: Any = part.torch_module().to("cuda")

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        import torch

        with torch.inference_mode():
            outputs = self._module(*[torch.as_tensor(value).to("cuda") for value in values])
        return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Copy, which also waits for the device."""
        return tuple(value.cpu().numpy() for value in values)

    def _close(self) -> None:
        self._module = None


def measure_model(
    model: Model,
    frames: Sequence[Frame],
    rows: Sequence[str],
    stages: int,
    seconds: float,
    state: _State,
) -> dict[str, object]:
    """Measure one model, whole and cut into stages."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        network = Network(model, stages, Library(Path(folder)))
        reference, expected = _find_reference(model, network, frames)
        chains: dict[str, Chain] = {}
        shown: dict[str, Shown] = {}
        engines: dict[str, _Engines] = {}
        notes: dict[str, str] = {}

        def add(key: str, name: str, count: int) -> None:
            engines[key] = _Engines()
            try:
                make_runner = partial(_make_runner, name, state, engines[key])
                chain = Chain(network.pieces(FULL, count), make_runner)
                stack.callback(chain.close)
                shown[key] = Shown.of(chain, model, frames)
                chains[key] = chain
            except JetsonDnnRtError as error:
                notes[key] = str(error)

        for name in rows:
            add(name, name, 1)
            if network.stages > 1 and name in chains and name not in (EAGER, "torch-fp32"):
                add(f"{name} staged", name, network.stages)
        if not chains:
            return {"skipped": "; ".join(dict.fromkeys(notes.values()))}
        image = _pin(np.random.default_rng(0).random(model.input_shape, np.float32), stack)
        runs = {key: partial(chain.run, image) for key, chain in chains.items()}
        times = measure_rounds(runs, budget_s=seconds, most=_MOST_ROUNDS, warm_up=10)
        return {
            "source": model.source.rsplit("/", 1)[-1],
            "input": list(model.input_shape),
            "stages": network.stages,
            "rounds": len(next(iter(times.values()))),
            "reference": reference,
            "rows": [_report(n, times, shown, engines, notes, expected) for n in rows],
        }


def _find_reference(model: Model, network: Network, frames: Sequence[Frame]) -> tuple[str, Shown]:
    """What the network says in fp32 on the CPU, and who computed it."""
    from jetson_dnn_rt.backends.torch import TorchRunner

    makers: dict[str, Callable[[Part], Runner]] = {
        "onnxruntime": lambda part: create_runner(part, "onnxruntime", "fp32", threads=_THREADS),
        "torch": lambda part: TorchRunner(part, "fp32", _THREADS),
    }
    reasons = []
    for name, make_runner in makers.items():
        try:
            chain = Chain(network.pieces(FULL, 1), make_runner)
        except JetsonDnnRtError as error:
            reasons.append(str(error))
            continue
        try:
            return f"{name} fp32 on the CPU", Shown.of(chain, model, frames)
        finally:
            chain.close()
    raise ModelError(f"nothing to compare with: {'; '.join(reasons)}")


def _pin(image: npt.NDArray[np.float32], stack: ExitStack) -> npt.NDArray[np.float32]:
    """The image in page-locked memory, as `Runner.allocate_input` gives it."""
    cuda = open_cuda()
    stack.callback(cuda.close)
    pinned: npt.NDArray[np.float32] = cuda.allocate_host(image.shape, np.float32)
    np.copyto(pinned, image)
    return pinned


def _make_runner(name: str, state: _State, engines: _Engines, part: Part) -> Runner:
    backend, precision = name.split("-")
    if name == EAGER:
        from jetson_dnn_rt.backends.cuda.owners import TorchCuda

        TorchCuda().close()  # says clearly what is missing
        return EagerRunner(part)
    if backend == "torch":
        from jetson_dnn_rt.backends.torch import TorchCudaRunner

        runner = TorchCudaRunner(part, precision)
        engines.graphs.append(runner.cuda_graph)
        return runner
    from jetson_dnn_rt.backends.tensorrt.build import BuildOptions, build_engine
    from jetson_dnn_rt.backends.tensorrt.runner import TensorRtRunner

    state.check_time()
    built = build_engine(part, precision, BuildOptions(timing_cache=state.timing_cache))
    state.timing_cache = built.timing_cache
    engines.build_ms += built.build_ms
    engines.sizes.append(len(built.engine))
    engine = TensorRtRunner(part, precision, engine=built.engine)
    engines.graphs.append(engine.cuda_graph)
    return engine


def _report(
    name: str,
    times: Mapping[str, Times],
    shown: Mapping[str, Shown],
    engines: Mapping[str, _Engines],
    notes: Mapping[str, str],
    expected: Shown,
) -> dict[str, object]:
    row: dict[str, object] = {"row": name, "note": notes.get(name, "")}
    if name not in times:
        return row
    row |= _figures(name, times, shown, engines, expected)
    if EAGER in times:
        row["times_faster_than_eager"] = round(
            quantile_ms(times[EAGER], 0.5) / quantile_ms(times[name], 0.5), 2
        )
    key = f"{name} staged"
    if key in times:
        row["staged"] = {
            **_figures(key, times, shown, engines, expected),
            "overhead_percent": find_overhead_percent(times[name], times[key]),
        }
    elif key in notes:
        row["staged"] = {"note": notes[key]}
    return row


def _figures(
    key: str,
    times: Mapping[str, Times],
    shown: Mapping[str, Shown],
    engines: Mapping[str, _Engines],
    expected: Shown,
) -> dict[str, object]:
    return report_figures(times[key], shown[key], expected, 4) | engines[key].to_dict()


def format_table(result: dict[str, object]) -> str:
    """Return the result as tables for people."""
    text = [
        f"{result['gpu']}, memory and streams by {result['memory']}, TensorRT: "
        f"{result['tensorrt']}\n"
    ]
    for name, found in cast("dict[str, dict[str, Any]]", result["models"]).items():
        if "skipped" in found:
            text.append(f"{name}: left out, {found['skipped']}\n")
        else:
            text.append(_format_model(name, found))
    return "\n".join(text)


def _format_model(name: str, found: Mapping[str, Any]) -> str:
    header = (
        "", "p50 ms", "p99 ms", "x eager", "error", "agreement", "graph", "build s", "MiB",
        "staged p50", "staged p99", "overhead %", "staged agreement", "",
    )  # fmt: skip
    rows = []
    for row in found["rows"]:
        staged = row.get("staged", {})
        error = row.get("relative_error")
        said = "; ".join(word for word in (row["note"], staged.get("note", "")) if word)
        graph = {None: "-", True: "yes", False: "no"}[row.get("cuda_graph")]
        rows.append(
            [
                row["row"],
                format_figure(row.get("p50_ms"), 3),
                format_figure(row.get("p99_ms"), 3),
                format_figure(row.get("times_faster_than_eager"), 2),
                "-" if error is None else f"{error:.0e}",
                format_figure(row.get("agreement"), 3),
                graph,
                format_figure(row.get("build_s"), 1),
                format_figure(row.get("engine_mib"), 1),
                format_figure(staged.get("p50_ms"), 3),
                format_figure(staged.get("p99_ms"), 3),
                format_figure(staged.get("overhead_percent"), 1),
                format_figure(staged.get("agreement"), 3),
                said,
            ]
        )
    size = "x".join(map(str, found["input"][2:]))
    head = (
        f"{name} ({size}), {found['stages']} stages, {found['rounds']} rounds, against "
        f"{found['reference']}"
    )
    return f"{head}\n\n{format_rows(header, rows)}\n"
