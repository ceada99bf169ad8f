"""The rows of one network in the table of paper 003: TVM in four ways, and the other back ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.backends import add_opencv
from benchmarks.chain import Chain, EagerRunner, Shown, report_figures
from benchmarks.paper003_report import AMP, BOTH, DEFAULT, OPENCV, TUNED, TVM_ROWS
from benchmarks.paper003_tuning import DatabaseFolder, Job
from benchmarks.rounds import Times, measure_rounds, quantile_ms
from jetson_dnn_rt.backends.base import Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.tvm.compile import compile_module, schedule
from jetson_dnn_rt.tvm.lowering import lower
from jetson_dnn_rt.tvm.runner import TvmRunner
from jetson_dnn_rt.tvm.target import TvmTarget
from jetson_dnn_rt.tvm.tuning import TuningState, count_tuned
from jetson_dnn_rt.variants.measuring.sample_frames import prepare_inputs
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
    """Makes runners of a network for TVM.

    Parameters
    ----------
    target : TvmTarget
        This machine.
    databases : mapping of str to (Job, DatabaseFolder)
        By precision, where the schedules are.
    """

    def __init__(
        self, target: TvmTarget, databases: Mapping[str, tuple[Job, DatabaseFolder]]
    ) -> None:
        self._target, self._databases = target, databases

    def compile_default(self, part: Part, precision: str) -> TvmRunner:
        """As it comes: TVM's own layout, kernels without schedules."""
        module = lower(part, precision, self._target, layout="NCHW")
        return self._compile(part, precision, schedule(module, self._target, None))

    def compile_tuned(self, part: Part, precision: str) -> tuple[TvmRunner, TuningState]:
        """With the best schedules so far, and how many kernels have one.

        Raises
        ------
        ModelError
            When no kernel has one.
        """
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
    network: Network,
    frames: Sequence[Frame],
    compiler: Compiler,
    *,
    threads: int,
    runs: int,
    slow_runs: int,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure all rows of a network in turn; a row that fails says why.

    Parameters
    ----------
    network : Network
        In one stage.
    frames : sequence of Frame
        On which results are compared; the first is what is timed.
    compiler : Compiler
        With the databases of this network.
    threads : int
        Of one run, >= 1.
    runs, slow_runs : int
        Timed runs, and those of rows that take more than `SLOW_MS`.
    say : callable
        Told what is done now.

    Raises
    ------
    ModelError
        When torch cannot run the network: there is nothing to compare with.
    """
    images = prepare_inputs(network.model, frames)
    pieces = network.pieces(FULL, 1)
    with ExitStack() as stack:
        chains: dict[str, Chain] = {}
        shown: dict[str, Shown] = {}
        notes: dict[str, str] = {}

        def add(key: str, make: Callable[[], Chain]) -> None:
            try:
                chain = make()
                stack.callback(chain.close)
                shown[key] = Shown.of(chain, network.model, frames)
                chains[key] = chain
            except Exception as error:  # one row less; TVM's errors have no class in common
                notes[key] = _say_error(error)

        makers: dict[str, Callable[[Part], Runner]] = {
            REFERENCE: lambda part: EagerRunner(part, threads),
            DEFAULT: lambda part: compiler.compile_default(part, "fp32"),
            AMP: lambda part: compiler.compile_default(part, "fp16"),
            TUNED: partial(_compile_tuned, compiler, "fp32", TUNED, notes),
            BOTH: partial(_compile_tuned, compiler, "fp16", BOTH, notes),
        }
        for name in OTHERS:
            backend, precision = name.split("-")
            makers[name] = partial(
                create_runner, backend=backend, precision=precision, threads=threads
            )
        for number, (name, make) in enumerate(makers.items(), 1):
            say(f"{name} (row {number} of {len(ROWS)})")
            add(name, partial(Chain, pieces, make))
        if REFERENCE not in chains:
            raise ModelError(f"{network.model.source} on torch: {notes[REFERENCE]}")
        say(f"{OPENCV} (row {len(ROWS)} of {len(ROWS)})")
        try:
            add_opencv(add, network, threads, images, chains, shown, notes)
        except Exception as error:  # its check is a process, which may not come to an end well
            notes[OPENCV] = _say_error(error)
        say(f"{len(chains)} rows in turn, {runs} rounds")
        times = _measure(chains, images[0], runs, slow_runs)
        rows = report_rows(times, shown, notes)
    return {
        "source": network.model.source,
        "input": list(network.model.input_shape),
        "rows": rows,
    }


def _compile_tuned(
    compiler: Compiler, precision: str, row: str, notes: dict[str, str], part: Part
) -> Runner:
    runner, state = compiler.compile_tuned(part, precision)
    notes[row] = f"{state.trials} trials"
    if not state.complete:
        notes[row] += f", only {state.tuned} of {state.kernels} kernels tuned"
    return runner


def _measure(
    chains: Mapping[str, Chain], image: npt.NDArray[np.float32], runs: int, slow_runs: int
) -> dict[str, Times]:
    """All in turn; the slow ones end early, for they would take most of an hour."""
    calls: dict[str, Callable[[], object]] = {
        name: partial(chain.run, image) for name, chain in chains.items()
    }
    first = min(runs, slow_runs)
    # All have run before, on the frames.
    times = measure_rounds(calls, budget_s=0.0, least=first, most=first, warm_up=1)
    fast = {name: call for name, call in calls.items() if quantile_ms(times[name], 0.5) <= SLOW_MS}
    if runs > first and fast:
        left = runs - first
        rest = measure_rounds(fast, budget_s=0.0, least=left, most=left, warm_up=0)
        times |= {name: np.concatenate([times[name], more]) for name, more in rest.items()}
    return times


def report_rows(
    times: Mapping[str, Times], shown: Mapping[str, Shown], notes: Mapping[str, str]
) -> list[dict[str, Any]]:
    """A row for each of `ROWS`.

    Parameters
    ----------
    times : mapping of str to ndarray of int64, [runs]
        Nanoseconds by row; a row that failed is not there.
    shown : mapping of str to Shown
        What each said of the frames.
    notes : mapping of str to str
        By row.
    """
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


def _say_error(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:160]
