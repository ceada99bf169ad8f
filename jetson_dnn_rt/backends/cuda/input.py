# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The fused input pass on a CUDA device, which turns frames into the network's input there.

On an integrated GPU the kernel reads the frame in place; a discrete one first fetches it from
page-locked memory. Either way the pixels are read once, and no CPU core touches them.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.device import Cuda, CudaError, address_of, count_bytes
from jetson_dnn_rt.backends.cuda.driver import CudaDriver, Kernel
from jetson_dnn_rt.backends.cuda.nvrtc import compile_with_any
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import Encoding, check_frame
from jetson_dnn_rt.models.input.plans import Plans
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing

SOURCE = Path(__file__).with_name("input_pass.cu")
NAME = "input_pass"

BLOCK = (32, 8, 1)
_KINDS = {"packed": 0, "semi_planar": 1, "paired": 1, "bayer": 2}
_COEFFICIENT = np.float32(2048)
"""cv2.resize keeps weights in 11 bits (INTER_RESIZE_COEF_BITS)."""


class Component(ctypes.Structure):
    """``Component`` of input_pass.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("columns", "rows")),
        *((name, ctypes.c_int) for name in ("offset", "row_step", "pixel_step", "unused")),
        *((name, ctypes.c_float) for name in ("shift_x", "shift_y")),
    )


class Pass(ctypes.Structure):
    """``Pass`` of input_pass.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("frame", "input")),
        *((name, ctypes.c_longlong) for name in ("channel_step", "row_step", "column_step")),
        *((name, ctypes.c_int) for name in ("height", "width", "top", "left")),
        *((name, ctypes.c_int) for name in ("resized_height", "resized_width", "kind")),
        ("order", ctypes.c_int * 3),
        *((name, ctypes.c_float * 3) for name in ("factor", "offset", "padding")),
        ("component", Component * 4),
    )


def make_taps(source: int, target: int, *, columns: bool) -> npt.NDArray[np.int32]:
    """Neighbours and weights of `cv2.resize` (INTER_LINEAR, uint8) along one axis.

    ``Tap`` of input_pass.cu for each of `target` pixels: two indices, two weights, int32
    [target, 4]. At the edges cv2 gives the outer pixel all the weight horizontally (`columns`);
    vertically it reads that pixel twice.
    """
    places = ((np.arange(target) + 0.5) * (1.0 / (target / source)) - 0.5).astype(np.float32)
    first = np.floor(places).astype(np.int32)
    share = places - first.astype(np.float32)
    if columns:
        outside = (first < 0) | (first >= source - 1)
        share[outside] = 0.0
    last = source - 1
    indices = (np.clip(first, 0, last), np.clip(first + 1, 0, last))
    weights = (np.rint((np.float32(1) - share) * _COEFFICIENT), np.rint(share * _COEFFICIENT))
    return np.stack((*indices, *weights), axis=-1).astype(np.int32)


@functools.cache
def load_kernel() -> Kernel:
    """Compile and load the kernel for the device, once in a process.

    `BackendUnavailableError` where there is no NVRTC, or the driver loads nothing that it
    compiled.
    """
    driver = CudaDriver()
    reasons: list[str] = []
    source = SOURCE.read_text(encoding="utf-8")
    for image in compile_with_any(source, SOURCE.name, driver.properties().capability):
        try:
            return driver.load_kernel(image, NAME)
        except CudaError as error:  # NVRTC newer than the driver: the next may be older
            reasons.append(str(error))
    raise BackendUnavailableError(f"the driver does not load {SOURCE.name}: {'; '.join(reasons)}")


class DevicePreprocessor:
    """Writes frames in memory that the device can read into an input buffer, like `Preprocessor`.

    Tables are made for each size and encoding, and kept for the last of them; else nothing is
    allocated.
    `destination` is a device array, float32 [1, 3, height, width], in any order of its axes.
    `close` also closes `cuda`. `fetched`: frames are copied to the device before they are read, as
    on a discrete GPU; else read in place.

    `written_bytes` counts, for the last frame, its copy to the device, if any, and the input.
    """

    def __init__(
        self,
        preprocessing: Preprocessing,
        destination: Array,
        cuda: Cuda,
        kernel: Kernel,
        *,
        fetched: bool,
    ) -> None:
        interface = destination.__cuda_array_interface__
        shape = (1, 3, preprocessing.height, preprocessing.width)
        if tuple(interface["shape"]) != shape or np.dtype(interface["typestr"]) != np.float32:
            raise ValueError(f"destination must be float32 {shape}: {interface}")
        self.destination = destination
        self.written_bytes = 0
        self._preprocessing = preprocessing
        self._cuda, self._kernel, self.fetched = cuda, kernel, fetched
        strides = interface.get("strides") or (0, 4 * shape[2] * shape[3], 4 * shape[3], 4)
        self._steps = [stride // 4 for stride in strides[1:]]
        self._prepared_for: tuple[object, ...] | None = None
        self._plans: Plans[_Plan] = Plans()
        # For the copy of a frame, if they are fetched: as large as the largest so far.
        self._room: Array | None = None
        self._grid = (
            math.ceil(preprocessing.width / BLOCK[0]),
            math.ceil(preprocessing.height / BLOCK[1]),
            1,
        )

    @property
    def planned(self) -> int:
        """Plans made so far: once for each size and encoding, while few of them alternate."""
        return self._plans.made

    def move(self, destination: Array) -> None:
        """Write into another input buffer of the same shape and order; tables are kept."""
        before = self.destination.__cuda_array_interface__
        after = destination.__cuda_array_interface__
        if (before["shape"], before.get("strides")) != (after["shape"], after.get("strides")):
            raise ValueError(f"the new input has another layout: {after}, before {before}")
        self.destination = destination
        if self._prepared_for is not None:
            self._pass.input = address_of(destination)

    def can_read(self, frame: Frame) -> bool:
        """Whether the device can read the frame's memory."""
        return frame.device_address != 0 and (not self.fetched or frame.image.flags.c_contiguous)

    def write(self, frame: Frame, urgency: int = 0) -> Geometry:
        """Fill the input from a frame that `can_read`; the input is complete on return.

        `urgency` is the deadline class of the task. `FrameError` where the frame cannot be read,
        see `check_frame`.
        """
        key = (frame.image.shape, frame.image.strides, frame.image.dtype, frame.encoding)
        if key != self._prepared_for:
            self._prepare(frame, self._plans.find(key, lambda: self._plan(frame)))
            self._prepared_for = key
        self._cuda.use_thread_stream(urgency)
        if self.fetched:
            self._cuda.copy(self._copy, frame.image)
        else:
            self._pass.frame = frame.device_address
        self._cuda.run(self._launch)
        self._cuda.synchronize()
        return self._geometry

    def _launch(self, stream: int) -> None:
        self._kernel.launch(self._grid, BLOCK, stream, self._pass)

    def close(self) -> None:
        """Release the stream."""
        self._cuda.close()

    def _prepare(self, frame: Frame, plan: _Plan) -> None:
        self._geometry, self._pass = plan.geometry, plan.call
        self._pass.input = address_of(self.destination)
        self.written_bytes = 4 * 3 * plan.call.height * plan.call.width
        if self._room is not None:
            self._pass.frame = address_of(self._room)
            self._copy = self._cuda.view(self._pass.frame, frame.image.shape, np.uint8)
            self.written_bytes += frame.image.nbytes

    def _plan(self, frame: Frame) -> _Plan:
        encoding = check_frame(frame)
        expected = self._preprocessing
        geometry = Geometry.of(expected, frame.height, frame.width)
        factors, offsets = expected.factors, expected.offsets
        padding = factors * np.float32(expected.pad_value) + offsets
        call = Pass()
        call.channel_step, call.row_step, call.column_step = self._steps
        call.height, call.width = expected.height, expected.width
        call.top, call.left = geometry.offset_y, geometry.offset_x
        call.resized_height, call.resized_width = geometry.resized_height, geometry.resized_width
        call.kind = _KINDS[encoding.layout]
        call.order[:] = (0, 1, 2) if expected.color == "rgb" else (2, 1, 0)
        call.factor[:], call.offset[:] = factors.tolist(), offsets.tolist()
        call.padding[:] = padding.tolist()
        self._cuda.use_own_stream()
        plan = _Plan(geometry, call, {})
        call.component[:] = self._list_components(frame, encoding, plan)
        size = frame.image.nbytes
        if self.fetched and (self._room is None or count_bytes(self._room) < size):
            self._room = self._cuda.allocate((size,), np.uint8)
        self._cuda.synchronize()  # allocations are zeroed before another stream uses them
        return plan

    def _list_components(
        self, frame: Frame, encoding: Encoding, plan: _Plan
    ) -> Sequence[Component]:
        geometry = plan.geometry
        height, width, step = frame.height, frame.width, frame.image.strides[0]
        size = encoding.pixel_bytes

        def component(at: int, row_step: int, pixel_step: int, grid: tuple[int, int]) -> Component:
            across, down = self._taps(*grid, plan)
            return Component(address_of(across), address_of(down), at, row_step, pixel_step)

        if encoding.layout == "packed":
            parts = [component(at, step, size, (height, width)) for at in encoding.order[::-1]]
        elif encoding.layout == "semi_planar":
            below, half = height * step, (height // 2, width // 2)
            parts = [component(0, step, 1, (height, width))]
            parts += [component(below + at, step, 2, half) for at in encoding.order]
        elif encoding.layout == "paired":
            luma, *chroma = encoding.order
            parts = [component(luma, step, 2, (height, width))]
            parts += [component(at, step, 4, (height, width // 2)) for at in chroma]
        else:
            red, blue = encoding.order
            greens = [at for at in range(4) if at not in encoding.order]
            parts = []
            for at in (red, *greens, blue):
                first = at // 2 * step + at % 2
                part = component(first, 2 * step, 2, (height // 2, width // 2))
                # Half the offset of the colour sample from the block's centre, over two pixels.
                part.shift_x = 0.25 * geometry.scale_x * (-1.0 if at % 2 else 1.0)
                part.shift_y = 0.25 * geometry.scale_y * (-1.0 if at // 2 else 1.0)
                parts.append(part)
        return [*parts, *[Component()] * (4 - len(parts))]

    def _taps(self, rows: int, columns: int, plan: _Plan) -> tuple[Array, Array]:
        """Tables of a grid on the device, columns and rows."""
        geometry = plan.geometry
        if (rows, columns) not in plan.tables:
            found = []
            for source, target, horizontal in (
                (columns, geometry.resized_width, True),
                (rows, geometry.resized_height, False),
            ):
                taps = make_taps(source, target, columns=horizontal)
                table = self._cuda.allocate(taps.shape, np.int32)
                self._cuda.copy(table, taps)
                self._cuda.synchronize()
                found.append(table)
            plan.tables[rows, columns] = (found[0], found[1])
        return plan.tables[rows, columns]


@dataclass(frozen=True, eq=False)
class _Plan:
    """The way of pictures of one size and encoding into the input."""

    geometry: Geometry
    call: Pass  # of the kernel, whose addresses of frame and input are of the latest launch
    tables: dict[tuple[int, int], tuple[Array, Array]]  # of each grid, which `call` points to
