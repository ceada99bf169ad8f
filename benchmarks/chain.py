"""A network on runners, alone: its times are those of inference, nothing schedules it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.rounds import Times, quantile_ms
from jetson_dnn_rt.backends.base import Array, HostArrays, Runner
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.model import Model, Part
from jetson_dnn_rt.results import Result
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.measuring.agreement import compare
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS, FrameProcessor
from jetson_dnn_rt.variants.running.network import IMAGE, Piece, run_piece

# Detectors with random weights are sure of nothing: their boxes are looked at nevertheless.
_SETTINGS = DecoderSettings(confidence=0.05, nms_iou=0.5, max_detections=100)
_ROUNDING = 1e-3


class Chain:
    """A network on runners, one after the other.

    Parameters
    ----------
    pieces : sequence of Piece
        Of the network, in order.
    make_runner : callable
        From a part to its runner.
    """

    def __init__(self, pieces: Sequence[Piece], make_runner: Callable[[Part], Runner]) -> None:
        self._steps: list[tuple[Piece, Runner]] = []
        try:
            for piece in pieces:
                self._steps.append((piece, make_runner(piece.part)))
        except BaseException:
            self.close()
            raise

    def run(self, image: npt.NDArray[np.float32]) -> HostArrays:
        """Run the network on an input, [1, 3, H, W]; the runners own what is returned."""
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
    """torch on the CPU as one uses it first: fp32, torch's own settings.

    Parameters
    ----------
    part : Part
        What it runs.
    threads : int
        Threads of one run, >= 1; a setting of the whole process.
    """

    backend, precision = "torch", "fp32"

    def __init__(self, part: Part, threads: int) -> None:
        super().__init__(part)
        self.version = str(torch.__version__)
        torch.set_num_threads(threads)
        self._module: torch.nn.Module | None = part.torch_module()

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        assert self._module is not None
        with torch.inference_mode():
            outputs = self._module(*map(torch.from_numpy, values))
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        return tuple(output.numpy() for output in outputs)

    def _close(self) -> None:
        self._module = None


@dataclass(frozen=True)
class Shown:
    """What a network said of the frames.

    Attributes
    ----------
    kind : str
        Its task.
    listed : bool
        Whether its outputs are lists of boxes: their order hangs on rounding.
    outputs : list of tuple of ndarray
        By frame.
    results : list of Result
        By frame.
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
        """The largest deviation relative to an output's largest value; None for lists.

        Infinite where shapes differ, or a value is not finite.
        """
        if self.listed:
            return None
        worst = 0.0
        for found, wanted in zip(self.outputs, expected.outputs, strict=True):
            for a, b in zip(found, wanted, strict=True):
                if a.shape != b.shape or not np.isfinite(a).all():
                    return float("inf")
                gap = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
                worst = max(worst, float(gap / max(np.abs(b).max(), np.finfo(np.float32).tiny)))
        return worst

    def find_agreement(self, expected: Shown) -> float:
        """mAP@0.5, mIoU or top-1 against other results, in [0, 1]."""
        return compare(self.kind, expected.results, self.results, "full").value

    def find_fault(self, expected: Shown) -> str:
        """Why these are not the same outputs but for rounding; empty where they are."""
        error = self.find_error(expected)
        if error is not None:
            return "" if error <= _ROUNDING else f"off by {error:.2g} of the largest value"
        value = self.find_agreement(expected)
        return "" if value >= 1.0 - _ROUNDING else f"agreement {value:.3f}"


def report_figures(times: Times, shown: Shown, expected: Shown, digits: int) -> dict[str, object]:
    """Median and p99 of a chain, and how far its results are from the expected ones."""
    error = shown.find_error(expected)
    return {
        "p50_ms": round(quantile_ms(times, 0.5), digits),
        "p99_ms": round(quantile_ms(times, 0.99), digits),
        "relative_error": None if error in (None, float("inf")) else float(f"{error:.2e}"),
        "agreement": round(shown.find_agreement(expected), 4),
    }
