# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""OpenCV's DNN module, on which many robots run their networks: for comparison, not a back end."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, HostRunner
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.model import Part
from jetson_dnn_rt.safety.children import CHILD_FOLDER, child_environment, python_command

_MODEL, _INPUTS, _OUTPUTS = "model.onnx", "inputs.npy", "outputs.npz"


def list_engines() -> dict[str, int]:
    """List OpenCV 5's own two engines by name; one without a name before OpenCV 5."""
    found = {name: getattr(cv2.dnn, f"ENGINE_{name.upper()}", None) for name in ("classic", "new")}
    return {name: value for name, value in found.items() if value is not None} or {"": 0}


class OpenCvRunner(HostRunner):
    """``cv2.dnn`` on the CPU; `ModelError` when it cannot read the part.

    The number of threads is a setting of the whole process in OpenCV: the runner created last
    decides for all.
    """

    backend = "opencv"
    precision = "fp32"

    def __init__(self, part: Part, engine: str, threads: int) -> None:
        self.version = str(cv2.__version__)
        cv2.setNumThreads(threads)
        try:
            self._net: Any = _read(part.onnx_model(), engine)
            self._names = _order_outputs(part.onnx_model(), self._net)
        except cv2.error as error:
            raise ModelError(f"{part.name} cannot be read by cv2.dnn: {_first(error)}") from error
        super().__init__(part)

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        try:
            self._net.setInput(self._place(0, values[0]))
            return tuple(self._net.forward(self._names))
        except cv2.error as error:
            raise ModelError(f"{self.name} cannot be run by cv2.dnn: {_first(error)}") from error

    def _close(self) -> None:
        super()._close()
        self._net = None


def check_engine(
    part: Part, engine: str, threads: int, images: Sequence[npt.NDArray[np.float32]]
) -> list[HostArrays]:
    """Run a network once on each image in a process of its own; the outputs of each.

    OpenCV crashes on some networks, and on others it reads uninitialised memory, so that its
    result is correct only by chance. In this process, such memory is filled with garbage.

    `ModelError` when the network cannot be read or run, or the process dies.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, _MODEL).write_bytes(part.onnx_model())
        np.save(Path(folder, _INPUTS), np.stack(images))
        done = subprocess.run(
            python_command(__name__, folder, engine, str(threads)),
            capture_output=True,
            text=True,
            check=False,
            cwd=CHILD_FOLDER,
            env={**child_environment(), "MALLOC_PERTURB_": "165"},
        )
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise ModelError(f"{part.name} ends cv2.dnn by {name}")
        if done.returncode > 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise ModelError(f"{part.name} fails in cv2.dnn: {reason}")
        with np.load(Path(folder, _OUTPUTS)) as arrays:
            flat = [arrays[name] for name in arrays.files]
    count = len(flat) // len(images)
    return [tuple(flat[i * count : (i + 1) * count]) for i in range(len(images))]


def main(argv: Sequence[str]) -> int:
    """Read and run a network, for `check_engine`; 0, or 1 with the reason on stderr."""
    folder, engine, threads = argv
    cv2.setNumThreads(int(threads))
    outputs: list[npt.NDArray[Any]] = []
    try:
        data = Path(folder, _MODEL).read_bytes()
        net = _read(data, engine)
        names = _order_outputs(data, net)
        for image in np.load(Path(folder, _INPUTS)):
            net.setInput(image)
            # Copies: the next image may be computed into the same memory.
            outputs += [np.array(output) for output in net.forward(names)]
    except cv2.error as error:
        print(_first(error), file=sys.stderr)
        return 1
    np.savez(Path(folder, _OUTPUTS), *outputs)
    return 0


def _read(data: bytes, engine: str) -> Any:
    arguments = (list_engines()[engine],) if engine else ()
    return cv2.dnn.readNetFromONNX(np.frombuffer(data, np.uint8), *arguments)


def _order_outputs(data: bytes, net: Any) -> list[str]:
    """Sort the outputs into the order of the ONNX file, which OpenCV does not keep."""
    import onnx

    wanted = [output.name for output in onnx.load_model_from_string(data).graph.output]
    names = net.getUnconnectedOutLayersNames()
    return wanted if set(wanted) == set(names) else list(names)


def _first(error: cv2.error) -> str:
    """Message of OpenCV, without its version and the place in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or ["no reason given"])[0].split("error: ")[-1][:160]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
