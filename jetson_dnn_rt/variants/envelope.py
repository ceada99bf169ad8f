"""What stands around a network, the same for all its variants: input, preprocessing, decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array, HostArrays, as_host
from jetson_dnn_rt.errors import NotANumberError
from jetson_dnn_rt.models.model import Model
from jetson_dnn_rt.models.preprocessing import Geometry, Preprocessor
from jetson_dnn_rt.models.settings import DecoderSettings
from jetson_dnn_rt.tasks import Work

VALUES = "values"
"""Key in a work's scratch: the boundary values that later stages need, by name."""

OUTPUTS = "outputs"
"""Key in a work's scratch: what the network returned, on the host."""

IMAGE = "image"
"""Name of the network's input among the boundary values."""

_GEOMETRY = "geometry"


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
    """

    def __init__(
        self, model: Model, settings: DecoderSettings, image: npt.NDArray[np.float32]
    ) -> None:
        self.image = image
        self.suspicious = False
        self._settings = settings
        self._preprocessor = Preprocessor(model.preprocessing, image)
        self._decode = model.create_decoder()

    def preprocess(self, work: Work) -> None:
        """Bring the frame into the input buffer."""
        work.scratch[_GEOMETRY] = self._preprocessor.write(work.frame)
        work.scratch[VALUES] = {IMAGE: self.image}

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
