"""The rows of one network in the table of paper 003: TVM in four ways, and the other back ends."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.accuracy import METRICS, compare_accuracy
from benchmarks.backends.bench import add_opencv, make_runner
from benchmarks.harness.networks import Chain, Lineup, Shown, describe_error, report_figures
from benchmarks.harness.tables import say
from benchmarks.harness.timing import Times, quantile_ms
from benchmarks.paper003.report import AMP, BOTH, DEFAULT, OPENCV, TUNED, TVM_ROWS
from benchmarks.paper003.tuning import DatabaseFolder, Job
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.onnxruntime import OnnxRuntimeRunner
from jetson_dnn_rt.demo import builtin
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.mixed_precision import convert_to_fp16
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.compile import compile_module, schedule
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.runner import TvmRunner
from jetson_dnn_rt.tvm.target import TvmTarget
from jetson_dnn_rt.tvm.tuning import TuningState, count_tuned
from jetson_dnn_rt.variants.measuring.sample_frames import prepare_inputs
from jetson_dnn_rt.variants.progress import Progress, ignore_progress
from jetson_dnn_rt.variants.running.network import Network
from jetson_dnn_rt.variants.spec import FULL

REFERENCE = "torch-eager"
OTHERS = ("onnxruntime-fp32", "openvino-fp32", "openvino-bf16", "tensorrt-fp32", "tensorrt-fp16")
ROWS = (REFERENCE, *TVM_ROWS, *OTHERS, OPENCV)
SHORT_TYPES = (AMP, BOTH, "openvino-bf16", "tensorrt-fp16")
"""Rows that round, and are compared by agreement."""

SLOW_MS = 1000.0
AGREEMENT_BAR = 0.9
"""Below it a row in a short type is called faulty; random weights are less sure than trained."""


class Compiler:
    """Makes runners of a network for TVM; `databases` by precision, where the schedules are."""

    def __init__(
        self, target: TvmTarget, databases: Mapping[str, tuple[Job, DatabaseFolder]]
    ) -> None:
        self._target, self._databases = target, databases

    def compile_default(self, part: Part, precision: str) -> TvmRunner:
        """As it comes: TVM's own layout, kernels without schedules."""
        module = lower(part, precision, self._target, layout="NCHW")
        return self._compile(part, precision, schedule(module, self._target, None))

    def compile_tuned(self, part: Part, precision: str) -> tuple[TvmRunner, TuningState]:
        """With the best schedules so far; `ModelError` when no kernel has one."""
        job, folder = self._databases[precision]
        database = folder.load(job)
        module = lower(part, precision, self._target)
        state = count_tuned(module, self._target, database)
        if not state.tuned:
            raise ModelError(f"none of its {state.kernels} kernels is tuned")
        scheduled = schedule(module, self._target, database)
        return self._compile(part, precision, scheduled), state

    def _compile(self, part: Part, precision: str, module: Any) -> TvmRunner:
        executable = compile_module(module, self._target)
        return TvmRunner(part, precision, executable, self._target)


def measure_network(
    title: str,
    network: Network,
    frames: Sequence[Frame],
    compiler: Compiler,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Measure all rows of a network in turn; a row that fails says why.

    `ModelError` when torch cannot run the network: there is nothing to compare with.
    """
    images = prepare_inputs(network.model, frames)
    pieces = network.pieces(FULL, 1)
    with ExitStack() as stack:
        # TVM's errors have no class in common.
        lineup = Lineup(network.model, frames, stack, Exception)
        makers: dict[str, Callable[[Part], Runner]] = {
            REFERENCE: partial(make_runner, REFERENCE, args.threads),
            DEFAULT: lambda part: compiler.compile_default(part, "fp32"),
            AMP: lambda part: compiler.compile_default(part, "fp16"),
            TUNED: partial(_compile_tuned, compiler, "fp32", TUNED, lineup.notes),
            BOTH: partial(_compile_tuned, compiler, "fp16", BOTH, lineup.notes),
            **{name: partial(make_runner, name, args.threads) for name in OTHERS},
        }
        for number, (name, make) in enumerate(makers.items(), 1):
            say(f"paper003: {title}: {name} (row {number} of {len(ROWS)})")
            lineup.add(name, partial(Chain, pieces, make))
        if REFERENCE not in lineup.chains:
            raise ModelError(f"{network.model.source} on torch: {lineup.notes[REFERENCE]}")
        say(f"paper003: {title}: {OPENCV} (row {len(ROWS)} of {len(ROWS)})")
        try:
            add_opencv(lineup, network, args.threads, images)
        except Exception as error:  # its check is a process, which may not end well
            lineup.notes[OPENCV] = describe_error(error)
        say(f"paper003: {title}: {len(lineup.chains)} rows in turn, {args.runs} rounds")
        times = _measure(lineup, images[0], args.runs, args.slow_runs)
        rows = describe_rows(times, lineup.shown, lineup.notes)
    return {"source": network.model.source, "input": list(network.model.input_shape), "rows": rows}


def _compile_tuned(
    compiler: Compiler, precision: str, row: str, notes: dict[str, str], part: Part
) -> Runner:
    runner, state = compiler.compile_tuned(part, precision)
    notes[row] = f"{state.trials} trials"
    if not state.complete:
        notes[row] += f", only {state.tuned} of {state.kernels} kernels tuned"
    return runner


def _measure(
    lineup: Lineup, image: npt.NDArray[np.float32], runs: int, slow_runs: int
) -> dict[str, Times]:
    """All in turn; the slow ones end early, for they would take most of an hour."""
    first = min(runs, slow_runs)
    # All have run before, on the frames.
    times = lineup.measure(image, budget_s=0.0, least=first, most=first, warm_up=1)
    fast = [name for name, taken in times.items() if quantile_ms(taken, 0.5) <= SLOW_MS]
    left = runs - first
    if left and fast:
        more = lineup.measure(image, fast, budget_s=0.0, least=left, most=left, warm_up=0)
        times |= {name: np.concatenate([times[name], taken]) for name, taken in more.items()}
    return times


def describe_rows(
    times: Mapping[str, Times], shown: Mapping[str, Shown], notes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row for each of `ROWS`; one that failed has no times."""
    rows = []
    for name in ROWS:
        row: dict[str, Any] = {"row": name, "note": notes.get(name, ""), "fault": ""}
        if name in times:
            row["mean_ms"] = round(float(times[name].mean()) * 1e-6, 3)
            row["runs"] = len(times[name])
            row |= report_figures(times[name], shown[name], shown[REFERENCE], 3)
            row["fault"] = _find_fault(name, row, shown)
            for key, other in (("default", DEFAULT), ("opencv", OPENCV)):
                row[f"times_faster_than_{key}"] = _compare(times, other, name)
        rows.append(row)
    return rows


def _find_fault(name: str, row: Mapping[str, Any], shown: Mapping[str, Shown]) -> str:
    if name not in SHORT_TYPES:
        return shown[name].find_fault(shown[REFERENCE])
    if not all(np.isfinite(array).all() for found in shown[name].outputs for array in found):
        return "a value is not finite"
    agreement = float(row["agreement"])
    return "" if agreement >= AGREEMENT_BAR else f"agreement {agreement:.3f}"


def _compare(times: Mapping[str, Times], other: str, name: str) -> float | None:
    """How many times faster a row is than another, in the median."""
    if other not in times:
        return None
    return round(quantile_ms(times[other], 0.5) / quantile_ms(times[name], 0.5), 3)


# -- accuracy ------------------------------------------------------------------------------------


def measure_amp(
    name: builtin.BuiltinName,
    part: Part,
    compiler: Compiler,
    threads: int,
    scenes: int,
    progress: Progress = ignore_progress,
) -> dict[str, Any]:
    """Compare a built-in network in FP32 (torch) and in AMP against ground truth.

    AMP is computed by TVM with the tuned kernels; where there are none, by ONNX Runtime on the
    same coloured graph, which gives the same rounding to FP16; ``computed_by`` names it.

    Returns
    -------
    dict
        ``fp32`` and ``amp``, mAP@0.5 or mIoU in [0, 1], and ``points_lost``, in hundredths; or
        ``note``: why not.
    """
    result: dict[str, Any] = {"metric": METRICS[name], "scenes": scenes}
    runner: Runner | None = None
    try:
        runner, result["computed_by"] = _open_amp(part, compiler, threads)
        networks = {"fp32": builtin.load(name), "amp": _RunnerModule(runner)}
        figures = compare_accuracy(
            name, networks, scenes, lambda done, total: progress("accuracy of AMP", done, total)
        )
    except Exception as error:  # TVM's errors have no class in common
        return {**result, "note": f"{type(error).__name__}: {error}"[:300]}
    finally:
        if runner is not None:
            runner.close()
    lost = 100.0 * (figures["fp32"] - figures["amp"])
    result |= {key: round(value, 5) for key, value in figures.items()}
    return {**result, "points_lost": round(lost, 3)}


def _open_amp(part: Part, compiler: Compiler, threads: int) -> tuple[Runner, str]:
    try:
        runner, state = compiler.compile_tuned(part, "fp16")
    except ModelError as error:
        mixed = _MixedPart(part, convert_to_fp16(part.onnx_model()).onnx)
        return OnnxRuntimeRunner(mixed, threads), f"onnxruntime on the graph of AMP ({error})"
    return runner, f"tvm, {state.tuned} of {state.kernels} kernels tuned"


class _RunnerModule(torch.nn.Module):
    """A runner in the place of the network, for the evaluation that calls torch."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One run; the outputs are copies."""
        outputs = self._runner.to_host(self._runner.run([image.numpy()]))
        return tuple(torch.from_numpy(array.copy()) for array in outputs)


class _MixedPart:
    """A part with its graph in mixed precision."""

    def __init__(self, part: Part, onnx: bytes) -> None:
        self._part, self._onnx = part, onnx
        self.name, self.input_shapes = f"{part.name} (AMP)", part.input_shapes
        self.graph_hash = part.graph_hash

    def torch_module(self) -> torch.nn.Module:
        return self._part.torch_module()

    def onnx_model(self) -> bytes:
        return self._onnx
