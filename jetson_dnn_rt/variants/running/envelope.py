"""What stands around a network, the same for all its variants: input, preprocessing, decoding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, as_host
from jetson_dnn_rt.backends.cuda.input import DevicePreprocessor
from jetson_dnn_rt.errors import FrameError, NotANumberError
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Geometry
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.tasks import Work

logger = logging.getLogger(__name__)

VALUES = "values"
"""Key in a work's scratch: the boundary values that later stages need, by name."""

OUTPUTS = "outputs"
"""Key in a work's scratch: what the network returned, on the host."""

IMAGE = "image"
"""Name of the network's input among the boundary values."""

SLOT = "slot"
"""Key in a work's scratch: the place of its task's input buffer in that of the batch group."""

ROWS = "rows"
"""Key in a work's scratch: of boundary values that are part of a batch's, by name, a `Row`."""

_GEOMETRY = "geometry"


class Row(NamedTuple):
    """A boundary value as a row of a batch's.

    Attributes
    ----------
    whole : array
        Of the batch.
    place : int
        Which row.
    part : array
        The boundary value itself, ``whole[place : place + 1]``.
    """

    whole: Array
    place: int
    part: Array


class Envelope:
    """The first and the last stage of a task.

    One frame at a time: the input buffer is written over by the next one.

    Parameters
    ----------
    model : Model
        The network.
    settings : DecoderSettings
        Read anew for every frame.
    image : ndarray, float32 [1, 3, H, W]
        The input buffer of all variants.

    Attributes
    ----------
    suspicious : bool
        Whether NaN was seen: from then on every stage looks at what it gives, so that the variant
        to blame is known. That costs a read of all boundary values, and so it is not the rule.
    whole_image : ndarray or None
        The input buffer of the batch group, of which `image` is a slot; None outside of a group.
    device_fault : str
        Why the device does not convert frames any more; empty while it does, or never did.
    """

    def __init__(
        self, model: Model, settings: DecoderSettings, image: npt.NDArray[np.float32]
    ) -> None:
        self.image = image
        self.whole_image: npt.NDArray[np.float32] | None = None
        self.suspicious = False
        self._slot = 0
        self._settings = settings
        self._preprocessing = model.preprocessing
        self._make_preprocessor()
        self._find_there: Callable[[npt.NDArray[np.float32]], Array] | None = None
        self._device: DevicePreprocessor | None = None
        self.device_fault = ""
        self._decode = model.create_decoder()

    def move(self, whole: npt.NDArray[np.float32], slot: int) -> None:
        """Let frames be written into a slot of a batch group's input buffer; nobody may run it.

        Parameters
        ----------
        whole : ndarray, float32 [n, 3, H, W]
            The buffer.
        slot : int
            Which of its images is this task's.
        """
        self.image = whole[slot : slot + 1]
        self.whole_image, self._slot = whole, slot
        self._make_preprocessor()
        if self._device is not None and self._find_there is not None:
            self._device.move(self._find_there(self.image))

    def read_on_device(
        self,
        device: DevicePreprocessor,
        find_there: Callable[[npt.NDArray[np.float32]], Array] | None = None,
    ) -> None:
        """Let the device convert the frames that it reaches; nobody may run it.

        Parameters
        ----------
        device : DevicePreprocessor
            Writes into the input buffer, or into one of the device's own; closed with this.
        find_there : callable, optional
            From an input buffer in mapped memory to what the device sees of it. Without it the
            device writes into its own.
        """
        self._device, self._find_there = device, find_there

    @property
    def reads_on_device(self) -> bool:
        """Whether the device converts the frames that it reaches."""
        return self._device is not None

    def _make_preprocessor(self) -> None:
        """Of the CPU, which pads the buffer with its first frame and never again."""
        self._preprocessor = Preprocessor(self._preprocessing, self.image)
        self._padded_by_device = False

    def preprocess(self, work: Work) -> None:
        """Bring the frame into the input buffer."""
        image = self._write_on_device(work)
        if image is None:
            if self._padded_by_device:
                self._make_preprocessor()
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
        """Let the device convert the frame, if it can; gives what the network reads."""
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
                "the device does not convert frames any more, the CPU does: %s", self.device_fault
            )
            return None
        work.copied_bytes += device.written_bytes
        if self._find_there is None:
            return device.destination
        # It has written into the very buffer that the CPU writes into, bars and all.
        self._padded_by_device = True
        return self.image

    def close(self) -> None:
        """Give the device's stream back."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def decode(self, work: Work) -> None:
        """Make the result of the network's outputs.

        Raises
        ------
        NotANumberError
            When an output holds NaN.
        """
        outputs = cast(HostArrays, work.scratch[OUTPUTS])
        if holds_nan(outputs):
            self.suspicious = True
            raise NotANumberError("the network's outputs hold NaN")
        geometry = cast(Geometry, work.scratch[_GEOMETRY])
        work.result = self._decode(outputs, geometry, self._settings)


def holds_nan(values: Sequence[Array]) -> bool:
    """Whether any of the arrays holds NaN; infinities are allowed."""
    return any(_is_nan(as_host(value)) for value in values)


def _is_nan(array: npt.NDArray[Any]) -> bool:
    # The minimum is NaN where anything is, and needs no array of its own.
    return array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array.min()))
