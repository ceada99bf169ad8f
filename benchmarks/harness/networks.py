# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks on runners, alone: their times are those of inference, without scheduling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.harness.numerics import find_error, make_plausible
from benchmarks.harness.tables import Report, Table, tabulate
from benchmarks.harness.timing import Times, find_overhead_percent, measure_rounds, quantile_ms
from jetson_dnn_rt.backends.base import Array, HostArrays, Runner
from jetson_dnn_rt.backends.registry import create_runner
from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.models.sources.registry import load_model
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.measuring.agreement import compare
from jetson_dnn_rt.variants.measuring.sample_frames import prepare_inputs
from jetson_dnn_rt.variants.network import IMAGE, Piece, run_piece
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS, FrameProcessor

# Detectors with random weights are never confident: their boxes are compared nevertheless.
_SETTINGS = DecoderSettings(confidence=0.05, nms_iou=0.5, max_detections=100)
_ROUNDING = 1e-3


class Chain:
    """Pieces of a network on runners, one after the other."""

    def __init__(self, pieces: Sequence[Piece], make_runner: Callable[[Part], Runner]) -> None:
        self._steps: list[tuple[Piece, Runner]] = []
        try:
            for piece in pieces:
                self._steps.append((piece, make_runner(piece.part)))
        except BaseException:
            self.close()
            raise

    def run(self, image: npt.NDArray[np.float32]) -> HostArrays:
        """Run the network on an input, [1, 3, H, W]; the runners own the returned arrays."""
        values: dict[str, Any] = {IMAGE: image}
        for piece, runner in self._steps:
            given = run_piece(piece, runner, values)
            if not piece.outputs:  # the network as it came: what it returns has no names
                return runner.to_host(given)
        return runner.to_host([values[name] for name in piece.results])

    def close(self) -> None:
        """Close the runners."""
        for _, runner in self._steps:
            runner.close()


class EagerRunner(Runner):
    """torch in its obvious first version: fp32, kernel by kernel, torch's own settings.

    `threads`, of a run on the CPU, is a setting of the whole process; 0 leaves it.
    """

    backend, precision = "torch", "fp32"

    def __init__(self, part: Part, threads: int = 0, device: str = "cpu") -> None:
        super().__init__(part)
        self.device = device
        self.version = str(torch.__version__)
        if threads:
            torch.set_num_threads(threads)
        self._module: Any = part.torch_module().to(device)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        with torch.inference_mode():
            outputs = self._module(*[torch.as_tensor(value).to(self.device) for value in values])
        return (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Copy outputs to the host, which also waits for the device."""
        return tuple(value.cpu().numpy() for value in values)

    def _close(self) -> None:
        self._module = None


def time_parts(
    parts: Mapping[str, Part],
    backend: str,
    threads: int,
    image: npt.NDArray[np.float32],
    **rounds: Any,
) -> dict[str, Times]:
    """Time networks in fp32 on a back end, in turn; `rounds` are those of `measure_rounds`."""

    def run_once(runner: Runner, buffer: npt.NDArray[np.float32]) -> object:
        return runner.run([buffer])  # a new list each time, since a runner may empty it

    runs: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        for name, part in parts.items():
            runner = create_runner(part, backend, "fp32", threads=threads)
            stack.callback(runner.close)
            buffer = runner.allocate_input()
            np.copyto(buffer, image)
            runs[name] = partial(run_once, runner, buffer)
        return measure_rounds(runs, **rounds)


@dataclass(frozen=True)
class Shown:
    """Outputs and results of a network, frame by frame.

    `listed` if its outputs are lists of boxes, whose order depends on rounding.
    """

    kind: str
    listed: bool
    outputs: list[HostArrays]
    results: list[Result]

    @staticmethod
    def of(chain: Chain, model: Model, frames: Sequence[Frame]) -> Shown:
        """Run a network, with preprocessing and decoding, on each frame."""
        image = np.empty(model.input_shape, np.float32)
        processor = FrameProcessor(model, _SETTINGS, image)
        shown = Shown(model.kind, model.head.name == "torchvision", [], [])
        for frame in frames:
            work = Work(frame)
            processor.preprocess(work)
            found = tuple(np.array(array) for array in chain.run(image))
            work.scratch[OUTPUTS] = found
            processor.decode(work)
            assert work.result is not None
            shown.outputs.append(found)
            shown.results.append(work.result)
        return shown

    def find_error(self, expected: Shown) -> float | None:
        """Find the largest error of all frames, see `find_error`; None for lists."""
        if self.listed:
            return None
        return max(map(find_error, self.outputs, expected.outputs))

    def find_agreement(self, expected: Shown) -> float | None:
        """Compute mAP@0.5, mIoU or top-1 against other results, in [0, 1]; None = unknown."""
        return compare(self.kind, expected.results, self.results, "full").value

    def find_fault(self, expected: Shown) -> str:
        """Describe a difference of the outputs beyond rounding; empty if there is none."""
        error = self.find_error(expected)
        if error is not None:
            return "" if error <= _ROUNDING else f"off by {error:.2g} of the largest value"
        value = self.find_agreement(expected)
        sound = value is None or value >= 1.0 - _ROUNDING
        return "" if sound else f"agreement {value:.3f}"


class Lineup:
    """Chains of one network under comparison, run on `frames`; a chain that fails has a note.

    `stack` closes the chains. An error that is `caught` leaves one chain out; any other one stops
    the benchmark.
    """

    def __init__(
        self,
        model: Model,
        frames: Sequence[Frame],
        stack: ExitStack,
        caught: type[Exception] = JetsonDnnRtError,
    ) -> None:
        self._model, self._frames, self._stack, self._caught = model, frames, stack, caught
        self.chains: dict[str, Chain] = {}
        self.shown: dict[str, Shown] = {}
        self.notes: dict[str, str] = {}

    def add(self, key: str, make: Callable[[], Chain]) -> None:
        """Make a chain, and run it on the frames."""
        try:
            chain = make()
            self._stack.callback(chain.close)
            self.shown[key] = Shown.of(chain, self._model, self._frames)
            self.chains[key] = chain
        except self._caught as error:
            self.notes[key] = describe_error(error)

    def measure(
        self, image: npt.NDArray[np.float32], keys: Sequence[str] | None = None, **rounds: Any
    ) -> dict[str, Times]:
        """Time the chains in turn; `rounds` are the options of `measure_rounds`."""
        runs = {key: partial(self.chains[key].run, image) for key in keys or self.chains}
        return measure_rounds(runs, **rounds)

    def describe(
        self,
        name: str,
        times: Mapping[str, Times],
        expected: Shown,
        digits: int,
        find_more: Callable[[str], Mapping[str, object]] = lambda key: {},
        turns: Mapping[str, Times] | None = None,
    ) -> dict[str, Any]:
        """Describe a chain by its figures, and under ``staged`` the chain ``NAME staged``.

        `find_more` adds figures that a benchmark has of a chain; one that did not run has a note.
        `turns` has the times of both where they took turns without the other chains; ``staged``
        has the median of the whole one in these turns, too.
        """

        def find_figures(key: str, taken: Times) -> dict[str, Any]:
            figures = report_figures(taken, self.shown[key], expected, digits)
            return {**figures, **find_more(key)}

        turns = times if turns is None else turns
        row: dict[str, Any] = {"note": self.notes.get(name, "")}
        if name in times:
            row |= find_figures(name, times[name])
        key = f"{name} staged"
        if key in turns:
            row["staged"] = {
                **find_figures(key, turns[key]),
                "whole_p50_ms": round(quantile_ms(turns[name], 0.5), digits),
                "overhead_percent": find_overhead_percent(turns[name], turns[key]),
            }
        elif key in self.notes:
            row["staged"] = {"note": self.notes[key]}
        return row


def load_plausible(
    source: str, frames: Sequence[Frame], size: tuple[int, int] | None = None
) -> Model:
    """Load a model; one of torchvision gets random weights that compute like trained ones."""
    model = load_model(source, weights="none", input_size=size)
    if not source.startswith("torchvision:"):
        return model
    return make_plausible(model, prepare_inputs(model, frames[:4]))


def report_models(
    models: Mapping[str, Mapping[str, Any]], describe: Callable[[Any], str], *columns: Any
) -> Report:
    """Report each network: its name, input, the text of `describe`, and a table of its rows."""
    parts: list[str | Table] = []
    for name, found in models.items():
        if "skipped" in found:
            parts.append(f"{name}: left out, {found['skipped']}")
            continue
        size = "x".join(map(str, found["input"][2:]))
        parts += [f"{name} ({size}){describe(found)}", tabulate(found["rows"], *columns)]
    return parts


def describe_model(model: Model, stages: int, times: Mapping[str, Times]) -> dict[str, Any]:
    """Describe the network and the measurement, above its rows."""
    return {
        "source": model.source.rsplit("/", 1)[-1],
        "input": list(model.input_shape),
        "stages": stages,
        "rounds": len(next(iter(times.values()))),
    }


def describe_error(error: Exception) -> str:
    """Describe an error in one line, with the name of its class if it is not ours."""
    if isinstance(error, JetsonDnnRtError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"[:160]


def report_figures(times: Times, shown: Shown, expected: Shown, digits: int) -> dict[str, object]:
    """Report median and p99 of a chain, and the error of its results."""
    error, agreement = shown.find_error(expected), shown.find_agreement(expected)
    return {
        "p50_ms": round(quantile_ms(times, 0.5), digits),
        "p99_ms": round(quantile_ms(times, 0.99), digits),
        "relative_error": None if error in (None, math.inf) else float(f"{error:.2e}"),
        "agreement": None if agreement is None else round(agreement, 4),
    }
