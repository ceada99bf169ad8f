"""YUV and Bayer pictures: the planes against the same steps written out, and against pictures."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from encoded_frames import encode_picture
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import make_reader
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing

IN_BLOCKS = [name for name, encoding in ENCODINGS.items() if encoding.layout != "packed"]
YUV = [name for name in IN_BLOCKS if not name.startswith("bayer")]
BAYER = [name for name in IN_BLOCKS if name.startswith("bayer")]


def read_planes(
    frame: Frame, size: tuple[int, int], color: str = "bgr"
) -> tuple[np.ndarray, Geometry]:
    geometry = Geometry.of(Preprocessing(*size), frame.height, frame.width)
    planes = make_reader(ENCODINGS[frame.encoding], geometry, color).read(frame.image)
    return np.stack(planes, -1), geometry


def resize_plane(plane: np.ndarray, geometry: Geometry) -> np.ndarray:
    size = (geometry.resized_width, geometry.resized_height)
    resized: np.ndarray = cv2.resize(
        np.ascontiguousarray(plane), size, interpolation=cv2.INTER_LINEAR
    )
    return resized


def round_to_bytes(colours: np.ndarray) -> np.ndarray:
    rounded: np.ndarray = np.clip(np.rint(colours), 0, 255)
    return rounded


def convert_plainly(frame: Frame, geometry: Geometry) -> np.ndarray:
    """Part the samples into whole planes, resize each, then the colours in float64."""
    image, height = frame.image, frame.height
    if frame.encoding in BAYER:
        pattern = frame.encoding.removeprefix("bayer_")[:4]
        planes = [
            resize_plane(image[i // 2 :: 2, i % 2 :: 2], geometry).astype(float) for i in range(4)
        ]
        first, second = (p for p, name in zip(planes, pattern, strict=True) if name == "g")
        colours = [(first + second) / 2.0]
        for index, name in ((0, "b"), (2, "r")):
            place = pattern.index(name)
            plane = np.pad(planes[place], 1, mode="edge")
            along = (plane[1:-1, 2:] - plane[1:-1, :-2]) / 2.0
            across = (plane[2:, 1:-1] - plane[:-2, 1:-1]) / 2.0
            to_right, down = (0.5, -0.5)[place % 2], (0.5, -0.5)[place // 2]
            shifted = planes[place] + along * to_right * geometry.scale_x
            colours.insert(index, shifted + across * down * geometry.scale_y)
        return round_to_bytes(np.stack(colours, -1))
    if frame.encoding in ("nv12", "nv21"):
        y, first, second = image[:height], image[height:, 0::2], image[height:, 1::2]
        u, v = (first, second) if frame.encoding == "nv12" else (second, first)
    else:
        luma = 0 if frame.encoding == "yuyv" else 1
        y, u, v = image[..., luma], image[:, 0::2, 1 - luma], image[:, 1::2, 1 - luma]
    grey = 255.0 / 219.0 * (resize_plane(y, geometry).astype(float) - 16.0)
    blueness, redness = (resize_plane(plane, geometry).astype(float) - 128.0 for plane in (u, v))
    blue, red = grey + 2.017232 * blueness, grey + 1.596027 * redness
    green = grey - 0.391762 * blueness - 0.812968 * redness
    return round_to_bytes(np.stack((blue, green, red), -1))


@pytest.mark.parametrize("encoding", IN_BLOCKS)
@settings(deadline=None, max_examples=25)
@given(
    half=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    seed=st.integers(0, 1000),
)
def test_planes_are_the_steps_written_out(
    encoding: str, half: tuple[int, int], size: tuple[int, int], seed: int
) -> None:
    height, width = 2 * half[0], 2 * half[1]
    shape = ENCODINGS[encoding].shape(height, width)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    frame = Frame(image, encoding, 0, 0)
    found, geometry = read_planes(frame, size)
    differences = np.abs(found - convert_plainly(frame, geometry))
    # cv2.resize rounds pixels of two and four bytes by other instructions than single bytes: a
    # sample may be one step off, and one of U is two of blue.
    assert differences.max() <= 3.0
    assert differences.size < 300 or differences.mean() < 0.25
    reversed_planes, _ = read_planes(frame, size, "rgb")
    np.testing.assert_array_equal(reversed_planes[..., ::-1], found)


@pytest.mark.parametrize("encoding", IN_BLOCKS)
@pytest.mark.parametrize("times", [2, 4])
def test_halves_are_made_in_bands(encoding: str, times: int) -> None:
    """Y, or U and V, or a Bayer block's samples at exactly half their size, several bands."""
    size = (150, 200)
    shape = ENCODINGS[encoding].shape(times * size[0], times * size[1])
    image = np.random.default_rng(times).integers(0, 256, shape, np.uint8)
    frame = Frame(image, encoding, 0, 0)
    found, geometry = read_planes(frame, size)
    again, _ = read_planes(frame, size)
    np.testing.assert_array_equal(again, found)
    assert np.abs(found - convert_plainly(frame, geometry)).max() <= 1.0


@pytest.mark.parametrize("encoding", IN_BLOCKS)
@pytest.mark.parametrize(
    "bgr", [(250, 10, 30), (20, 240, 60), (40, 25, 230), (128, 128, 128), (0, 0, 0)]
)
def test_one_colour_stays_that_colour(encoding: str, bgr: tuple[int, int, int]) -> None:
    """Which byte is which colour: against OpenCV's own reading of the same frame."""
    frame = Frame(encode_picture(np.full((24, 32, 3), bgr, np.uint8), encoding), encoding, 0, 0)
    found, _ = read_planes(frame, (18, 24))
    expected = copy_as_bgr(frame)[:18, :24].astype(int)
    assert np.abs(found - expected).max() <= 1
    # Chroma in eight bits of limited range gives each colour to two steps.
    assert np.abs(found - np.array(bgr)).max() <= 4


def measure_psnr(picture: np.ndarray, other: np.ndarray) -> float:
    """Peak signal to noise ratio of two pictures of eight bits in dB."""
    return float(10.0 * np.log10(255.0**2 / np.mean((picture.astype(float) - other) ** 2)))


@pytest.fixture(scope="module")
def pictures(shared_data: Path) -> list[np.ndarray]:
    """Frames of a real drive, 960x540."""
    video = cv2.VideoCapture(str(next((shared_data / "video").glob("*.mp4"))))
    found = []
    for _ in range(3):
        for _ in range(30):
            assert video.grab()
        found.append(video.retrieve()[1])
    return found


@pytest.mark.parametrize(
    ("encoding", "to_whole_db", "loss_db"),
    [(name, 53.0, 2.5) for name in YUV] + [(name, 43.0, 4.5) for name in BAYER],
)
@pytest.mark.parametrize("size", [(540, 960), (720, 1280)])
def test_quality_on_real_frames(
    pictures: list[np.ndarray],
    encoding: str,
    to_whole_db: float,
    loss_db: float,
    size: tuple[int, int],
) -> None:
    """Against the whole picture converted first, and how much more of the original is lost."""
    figures = []
    for picture in pictures:
        picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_CUBIC)
        frame = Frame(encode_picture(picture, encoding), encoding, 0, 0)
        found, geometry = read_planes(frame, (416, 416))
        whole = resize_plane(copy_as_bgr(frame), geometry)
        original = resize_plane(picture, geometry)
        figures.append(
            (
                measure_psnr(found, whole),
                measure_psnr(whole, original) - measure_psnr(found, original),
            )
        )
    to_whole, loss = np.mean(figures, axis=0)
    assert to_whole >= to_whole_db
    assert loss <= loss_db
