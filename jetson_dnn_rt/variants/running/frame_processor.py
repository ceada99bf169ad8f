# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Parts that all variants of a task share: the input buffer, preprocessing, decoding.

On a CUDA device the input may lie in mapped memory, and the device may convert the frames.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, as_host
from jetson_dnn_rt.backends.cuda.device import regions
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor, load_kernel
from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.errors import BackendUnavailableError, FrameError, NotANumberError
from jetson_dnn_rt.frames import Allocate, Image
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.output_check import OutputCheck
from jetson_dnn_rt.models.tracking import Tracker
from jetson_dnn_rt.results import Detections
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.network import IMAGE, Segment

logger = logging.getLogger(__name__)

# Keys in `Work.scratch`.
VALUES = "values"
"""The boundary values that later stages need, by name."""
OUTPUTS = "outputs"
"""The network's outputs, on the host."""
SLOT = "slot"
"""The place of its task's input buffer in that of the batch group."""
ROWS = "rows"
"""Those boundary values that are part of a batch's, by name, as `Row`."""
_GEOMETRY = "geometry"

_ON_THE_CPU = "the CPU converts the frames, though there is a CUDA device"


class Row(NamedTuple):
    """A boundary value that is a row of a batch's: `part` is ``whole[place : place + 1]``."""

    whole: Array
    place: int
    part: Array


class FrameProcessor:
    """The first and the last stage of a task: a frame into the input buffer, outputs to a result.

    One frame at a time: the input buffer `image`, float32 [1, 3, H, W], is written over by the
    next one. A frame is decoded with the settings, the tracker and the check that `decode_with`
    gave last.

    Attributes
    ----------
    suspicious : bool
        Whether NaN was seen: from then on every stage checks its outputs, so that the variant to
        blame is known. That costs a read of all boundary values, so it is not the rule.
    whole_image : ndarray or None
        The input buffer of the batch group, of which `image` is a slot.
    device_fault : str
        Why the device stopped converting frames; empty while it does, or never did.
    """

    def __init__(
        self, model: Model, settings: DecoderSettings, image: npt.NDArray[np.float32]
    ) -> None:
        self.image = image
        self.whole_image: npt.NDArray[np.float32] | None = None
        self.suspicious = False
        self.device_fault = ""
        self._slot = 0
        self._decoding: tuple[DecoderSettings, Tracker | None, OutputCheck | None]
        self._decoding = settings, None, None
        self._preprocessing = model.preprocessing
        self._make_preprocessor()
        self._find_on_device: Callable[[npt.NDArray[np.float32]], Array] | None = None
        self._device: DevicePreprocessor | None = None
        self._decode = model.create_decoder()

    def move(self, whole: npt.NDArray[np.float32], slot: int) -> None:
        """Write frames into a slot of a batch group's input buffer; it must not be running."""
        self.image = whole[slot : slot + 1]
        self.whole_image, self._slot = whole, slot
        self._make_preprocessor()
        if self._device is not None and self._find_on_device is not None:
            self._device.move(self._find_on_device(self.image))

    def read_on_device(
        self,
        device: DevicePreprocessor,
        find_on_device: Callable[[npt.NDArray[np.float32]], Array] | None = None,
    ) -> None:
        """Let the device convert the frames that it reaches; it must not be running.

        `find_on_device` gives the device's view of an input buffer in mapped memory; without
        it the device writes into a buffer of its own. The device is closed with this.
        """
        self._device, self._find_on_device = device, find_on_device

    @property
    def reads_on_device(self) -> bool:
        """Whether the device converts the frames that it reaches."""
        return self._device is not None

    @property
    def planned(self) -> int:
        """Plans of the input pass made so far, see `Preprocessor` and `DevicePreprocessor`."""
        return self._preprocessor.planned + (self._device.planned if self._device else 0)

    def _make_preprocessor(self) -> None:
        """Make the CPU's preprocessor."""
        self._preprocessor = Preprocessor(self._preprocessing, self.image)
        self._padded_by_device = False

    def preprocess(self, work: Work) -> None:
        """Write the frame into the input buffer."""
        image = self._write_on_device(work)
        if image is None:
            if self._padded_by_device:
                self._preprocessor.repad()
                self._padded_by_device = False
            work.scratch[_GEOMETRY] = self._preprocessor.write(work.frame)
            work.copied_bytes += self._preprocessor.written_bytes
            image = self.image
        work.copied_bytes += work.frame.copied_bytes
        work.scratch[VALUES] = {IMAGE: image}
        if self.whole_image is not None:
            row = Row(self.whole_image, self._slot, self.image)
            work.scratch[SLOT] = self._slot
            work.scratch[ROWS] = {IMAGE: row} if image is self.image else {}

    def _write_on_device(self, work: Work) -> Array | None:
        """Let the device convert the frame, if it can; returns what the network reads."""
        device = self._device
        if device is None or not device.can_read(work.frame):
            return None
        try:
            work.scratch[_GEOMETRY] = device.write(work.frame, work.urgency)
        except FrameError:
            raise
        except Exception as error:  # the driver's, torch's
            self._device = None
            self.device_fault = " ".join(str(error).split())
            logger.error(
                "the device stopped converting frames, the CPU does it now: %s", self.device_fault
            )
            return None
        work.copied_bytes += device.written_bytes
        if self._find_on_device is None:
            return device.destination
        # It has written into the very buffer that the CPU writes into, bars and all.
        self._padded_by_device = True
        return self.image

    def decode_with(
        self, settings: DecoderSettings, tracker: Tracker | None, check: OutputCheck | None
    ) -> None:
        """Decode frames with these from the next one on; any thread may ask for it."""
        self._decoding = settings, tracker, check  # at once: no frame sees half of a change

    def decode(self, work: Work) -> None:
        """Decode the network's outputs; raises `NotANumberError` when one holds NaN."""
        outputs = cast(HostArrays, work.scratch[OUTPUTS])
        settings, tracker, check = self._decoding
        if holds_nan(outputs):
            self.suspicious = True
            if check is not None:
                check.note_nan()
            raise NotANumberError("the network's outputs hold NaN")
        geometry = cast(Geometry, work.scratch[_GEOMETRY])
        result = self._decode(outputs, geometry, settings)
        if check is not None:
            check.observe(outputs, result, settings, work.frame)
        if tracker is not None and isinstance(result, Detections):
            result = tracker.update(result, work.frame)
        work.result = result

    def close(self) -> None:
        """Release the device's stream."""
        if self._device is not None:
            self._device.close()
            self._device = None


def holds_nan(values: Sequence[Array]) -> bool:
    """Whether any of the arrays holds NaN; infinities are allowed."""
    return any(_is_nan(as_host(value)) for value in values)


def _is_nan(array: npt.NDArray[Any]) -> bool:
    # The minimum is NaN where anything is, and needs no array of its own.
    return array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array.min()))


def find_memory(segments: Sequence[Segment]) -> str:
    """Kind of the memory that a variant's input lies in; empty without a CUDA device."""
    runner = segments[0].runner
    return runner.memory if isinstance(runner, CudaRunner) else ""


def adopt_image(segments: Sequence[Segment], image: npt.NDArray[np.float32]) -> None:
    """Let runners on a CUDA device read the input in place, if it is mapped.

    Raises `ModelError` when one cannot be run so.
    """
    for piece, runner in segments:
        if isinstance(runner, CudaRunner):
            for index, name in enumerate(piece.inputs):
                if name == IMAGE:
                    runner.adopt_input(index, image)


def read_frames_on_device(
    processor: FrameProcessor, segments: Sequence[Segment], preprocessing: Preprocessing
) -> Allocate | None:
    """Let the device convert camera frames, and make the memory that it reads them from.

    In mapped memory frames are read in place; in pinned memory the device fetches them. Without
    NVRTC the pass stays on the CPU, which is logged. Returns what allocates frames for the
    camera's pool; None where frames are the CPU's. `segments` are those of the default variant.
    """
    runner = segments[0].runner
    memory = find_memory(segments)
    if not isinstance(runner, CudaRunner) or memory == "pageable":
        return None
    try:
        if memory == "mapped" and not regions.find(processor.image):
            raise BackendUnavailableError("the input does not lie in mapped memory")
        kernel = load_kernel()
    except BackendUnavailableError as error:
        logger.warning("%s: %s", _ON_THE_CPU, error)
        return None
    cuda = open_cuda()
    if memory == "pinned":
        there = runner.device_input(segments[0].piece.inputs.index(IMAGE))
        device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=True)
        processor.read_on_device(device)
    else:

        def find_on_device(image: npt.NDArray[np.float32]) -> Array:
            return cuda.view(regions.find(image), image.shape, np.float32)

        try:
            there = find_on_device(processor.image)
        except Exception as error:  # torch's own
            logger.warning("%s: %s", _ON_THE_CPU, " ".join(str(error).split()))
            cuda.close()
            return None
        device = DevicePreprocessor(preprocessing, there, cuda, kernel, fetched=False)
        processor.read_on_device(device, find_on_device)

    def allocate(shape: tuple[int, ...]) -> tuple[Image, int]:
        # The process's own, with no stream: it is there also when the task is gone.
        image = cuda.allocate_mapped(shape, np.uint8)
        return image, regions.find(image)

    return allocate
