"""Ways from an image message to the input that the first layer reads.

`fused` is this package's: a view of the message and one pass into a buffer made beforehand. The
other two begin as ``cv_bridge`` does, with a converted copy of the whole picture (``cvtColor``,
what ``imgmsg_to_cv2(message, "rgb8")`` comes to), and end with
``torch.from_numpy(picture).permute(2, 0, 1).float() / 255``:

`as_written` makes that of the whole picture and lets torch resize it, the line as it stands in
    most nodes;
`resized_first` resizes and pads with OpenCV before, which is the best that can be made of it.

All three write the same input, to the rounding of the resize.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.cameras.image_messages import view_image
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing

FUSED, RESIZED_FIRST, AS_WRITTEN = "fused", "resized_first", "as_written"

# OpenCV names a Bayer pattern by its second row and second column.
_CODES = {
    "mono8": "GRAY2{}",
    "nv12": "YUV2{}_NV12",
    "nv21": "YUV2{}_NV21",
    "yuyv": "YUV2{}_YUYV",
    "uyvy": "YUV2{}_UYVY",
    "bayer_rggb8": "BayerBG2{}",
    "bayer_bggr8": "BayerRG2{}",
    "bayer_gbrg8": "BayerGR2{}",
    "bayer_grbg8": "BayerGB2{}",
}


@dataclass(frozen=True)
class Way:
    """One way of preparing an input.

    `run` takes a message and returns the input, [1, 3, height, width] on the host, or whatever
    stands for it on a device, when the first layer could begin. `copied_bytes` are written for
    each frame, scratch too; `passes` is how often pixels of the source's size are read.
    """

    run: Callable[[Any], object]
    copied_bytes: int
    passes: int = 1


def make_message(encoding: str, height: int, width: int) -> Any:
    """Make an image message of smooth colours, as rclpy has it, without ROS."""
    shape = ENCODINGS[encoding].shape(height, width)
    coarse = np.random.default_rng(1).integers(30, 220, (6, 8, *shape[2:]), np.uint8)
    image = cv2.resize(coarse, (width, shape[0]), interpolation=cv2.INTER_CUBIC)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=2), frame_id="camera"),
        height=height,
        width=width,
        encoding=encoding,
        step=width * ENCODINGS[encoding].pixel_bytes,
        data=array.array("B", image.tobytes()),
    )


def make_ways(
    preprocessing: Preprocessing, height: int, width: int, encoding: str
) -> dict[str, Way]:
    """Make the ways that end in memory of the host, for frames of one size and encoding."""
    return {
        FUSED: _make_fused(preprocessing, height, width, encoding),
        RESIZED_FIRST: _make_resized_first(preprocessing, height, width, encoding),
        AS_WRITTEN: _make_as_written(preprocessing, height, width, encoding),
    }


def _make_fused(preprocessing: Preprocessing, height: int, width: int, encoding: str) -> Way:
    shape = (1, 3, preprocessing.height, preprocessing.width)
    destination = np.zeros(shape, np.float32)
    preprocessor = Preprocessor(preprocessing, destination)

    def run(message: Any) -> npt.NDArray[np.float32]:
        preprocessor.write(view_image(message, 0))
        return destination

    run(make_message(encoding, height, width))
    # Interleaved luma and chroma are two views of the same bytes.
    passes = 2 if ENCODINGS[encoding].layout == "paired" else 1
    return Way(run, preprocessor.written_bytes + preprocessor.scratch_bytes, passes)


def _make_resized_first(
    preprocessing: Preprocessing, height: int, width: int, encoding: str
) -> Way:
    import torch

    convert = make_conversion(encoding, preprocessing.color)
    geometry = Geometry.of(preprocessing, height, width)
    size = (geometry.resized_width, geometry.resized_height)
    rows, columns = _find_place(geometry)
    shape = (preprocessing.height, preprocessing.width, 3)
    normalise = _make_normalisation(preprocessing)

    def run(message: Any) -> object:
        resized = cv2.resize(convert(message), size, interpolation=cv2.INTER_LINEAR)
        padded = np.full(shape, preprocessing.pad_value, np.uint8)
        padded[rows, columns] = resized
        return normalise(torch.from_numpy(padded).permute(2, 0, 1).float())[None]

    pixels, small = height * width, preprocessing.height * preprocessing.width
    floats = 4 * 3 * small * (1 + _count_steps(preprocessing))
    return Way(run, 3 * (pixels + size[0] * size[1] + small) + floats, passes=2)


def _make_as_written(preprocessing: Preprocessing, height: int, width: int, encoding: str) -> Way:
    import torch
    from torch.nn import functional

    convert = make_conversion(encoding, preprocessing.color)
    geometry = Geometry.of(preprocessing, height, width)
    size = (geometry.resized_height, geometry.resized_width)
    rows, columns = _find_place(geometry)
    normalise = _make_normalisation(preprocessing)
    padding = normalise(torch.full((3, 1, 1), float(preprocessing.pad_value)))
    whole = torch.empty((1, 3, preprocessing.height, preprocessing.width))

    def run(message: Any) -> object:
        picture = normalise(torch.from_numpy(convert(message)).permute(2, 0, 1).float())[None]
        resized = functional.interpolate(picture, size, mode="bilinear", align_corners=False)
        if resized.shape == whole.shape:
            return resized
        padded = padding.expand_as(whole).contiguous()
        padded[:, :, rows, columns] = resized
        return padded

    pixels, steps = height * width, 1 + _count_steps(preprocessing)
    small = size[0] * size[1]
    padded = 0 if small == whole.numel() // 3 else whole.numel() // 3
    copied = 3 * pixels + 4 * 3 * (pixels * steps + small + 2 * padded)
    return Way(run, copied, passes=2 + steps)


def make_conversion(encoding: str, color: str) -> Callable[[Any], npt.NDArray[np.uint8]]:
    """Make what ``imgmsg_to_cv2(message, "rgb8")`` does: a converted copy in bgr or rgb."""
    order = color.upper()
    if encoding in _CODES:
        code = getattr(cv2, f"COLOR_{_CODES[encoding].format(order)}")
    else:
        source = encoding.removesuffix("8").upper()
        code = None if source == order else getattr(cv2, f"COLOR_{source}2{order}")

    def convert(message: Any) -> npt.NDArray[np.uint8]:
        image = view_image(message, 0).image
        picture: npt.NDArray[np.uint8] = (
            image.copy() if code is None else cv2.cvtColor(image, code)
        )
        return picture

    return convert


def _find_place(geometry: Geometry) -> tuple[slice, slice]:
    top, left = geometry.offset_y, geometry.offset_x
    return (slice(top, top + geometry.resized_height), slice(left, left + geometry.resized_width))


def _count_steps(preprocessing: Preprocessing) -> int:
    """Operations on floats, each of which writes them anew."""
    centred = any(preprocessing.mean) or any(s != 1.0 for s in preprocessing.std)
    return int(preprocessing.scale != 1.0) + 2 * int(centred)


def _make_normalisation(preprocessing: Preprocessing) -> Callable[[Any], Any]:
    """What one writes in torch: ``/ 255`` where that is it, then the mean and deviation."""
    import torch

    divisor = 1.0 / preprocessing.scale
    mean = torch.tensor(preprocessing.mean).view(3, 1, 1)
    std = torch.tensor(preprocessing.std).view(3, 1, 1)
    centred = _count_steps(preprocessing) >= 2

    def normalise(picture: Any) -> Any:
        if divisor != 1.0:
            picture = picture / divisor
        return (picture - mean) / std if centred else picture

    return normalise
