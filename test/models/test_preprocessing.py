"""The fused pass against the plain way of doing the same, and the geometry against itself."""

from __future__ import annotations

import tracemalloc

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.errors import ConfigurationError, FrameError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.preprocessing import ENCODINGS, Geometry, Preprocessing, Preprocessor

MODES = ("letterbox_topleft", "letterbox_center", "stretch")


def make_frame(encoding: str, height: int, width: int, seed: int = 0) -> Frame:
    channels = ENCODINGS[encoding][0]
    shape = (height, width) if channels == 1 else (height, width, channels)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Frame(image, encoding, 0, 0)


def make_input(preprocessing: Preprocessing) -> np.ndarray:
    return np.full((1, 3, preprocessing.height, preprocessing.width), np.nan, np.float32)


def preprocess_plainly(preprocessing: Preprocessing, frame: Frame) -> np.ndarray:
    """Step by step, whole images, one copy each."""
    to_color = {
        ("bgr8", "bgr"): None,
        ("bgr8", "rgb"): cv2.COLOR_BGR2RGB,
        ("rgb8", "bgr"): cv2.COLOR_RGB2BGR,
        ("rgb8", "rgb"): None,
        ("bgra8", "bgr"): cv2.COLOR_BGRA2BGR,
        ("bgra8", "rgb"): cv2.COLOR_BGRA2RGB,
        ("rgba8", "bgr"): cv2.COLOR_RGBA2BGR,
        ("rgba8", "rgb"): cv2.COLOR_RGBA2RGB,
        ("mono8", "bgr"): cv2.COLOR_GRAY2BGR,
        ("mono8", "rgb"): cv2.COLOR_GRAY2RGB,
    }[frame.encoding, preprocessing.color]
    image = np.ascontiguousarray(frame.image)
    if to_color is not None:
        image = cv2.cvtColor(image, to_color)
    height, width = image.shape[:2]
    rows, columns = preprocessing.height, preprocessing.width
    top = left = 0
    if preprocessing.resize == "stretch":
        inner = (rows, columns)
    else:
        ratio = min(rows / height, columns / width)
        inner = (max(1, round(height * ratio)), max(1, round(width * ratio)))
        if preprocessing.resize == "letterbox_center":
            top, left = (rows - inner[0]) // 2, (columns - inner[1]) // 2
    if inner != (height, width):
        image = cv2.resize(image, inner[::-1], interpolation=cv2.INTER_LINEAR)
    padded = np.full((rows, columns, 3), preprocessing.pad_value, np.uint8)
    padded[top : top + inner[0], left : left + inner[1]] = image
    factors = [np.float32(preprocessing.scale / s) for s in preprocessing.std]
    offsets = [
        np.float32(-m / s) for m, s in zip(preprocessing.mean, preprocessing.std, strict=True)
    ]
    planes = [padded[:, :, c].astype(np.float32) * factors[c] + offsets[c] for c in range(3)]
    return np.stack(planes)[None]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("color", ["bgr", "rgb"])
@pytest.mark.parametrize(
    "numbers",
    [
        {"scale": 1.0},
        {"scale": 1.0 / 255.0},
        {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "pad_value": 7},
    ],
)
def test_bit_equal_to_the_plain_way(encoding: str, mode: str, color: str, numbers: dict) -> None:
    preprocessing = Preprocessing(48, 64, mode, color=color, **numbers)
    destination = make_input(preprocessing)
    preprocessor = Preprocessor(preprocessing, destination)
    for size in ((54, 96), (48, 64), (20, 30), (100, 40), (54, 96)):
        frame = make_frame(encoding, *size)
        preprocessor.write(frame)
        np.testing.assert_array_equal(destination, preprocess_plainly(preprocessing, frame))


def test_normalisation_is_the_textbooks() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    preprocessing = Preprocessing(8, 8, "stretch", color="rgb", mean=mean, std=std)
    destination = make_input(preprocessing)
    frame = make_frame("rgb8", 8, 8)
    Preprocessor(preprocessing, destination).write(frame)
    expected = (frame.image / 255.0 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(destination[0], expected.transpose(2, 0, 1), atol=1e-5)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_padded_rows_and_read_only_memory(encoding: str) -> None:
    """A message's rows may be longer than its pixels, and its memory is not ours to write."""
    preprocessing = Preprocessing(32, 32)
    channels = ENCODINGS[encoding][0]
    tight = make_frame(encoding, 30, 41)
    step = 41 * channels + 13
    data = np.zeros(30 * step, np.uint8)
    view = np.lib.stride_tricks.as_strided(
        data, tight.image.shape, (step, *tight.image.strides[1:]), writeable=True
    )
    view[:] = tight.image
    data = np.frombuffer(data.tobytes(), np.uint8)  # read-only, as a message is
    padded = np.ndarray(tight.image.shape, np.uint8, data, 0, (step, *tight.image.strides[1:]))
    inputs = []
    for image in (tight.image, padded):
        inputs.append(make_input(preprocessing))
        Preprocessor(preprocessing, inputs[-1]).write(Frame(image, encoding, 0, 0))
    np.testing.assert_array_equal(*inputs)


def test_mono_with_a_channel_axis() -> None:
    preprocessing = Preprocessing(32, 32)
    frame = make_frame("mono8", 20, 30)
    inputs = [make_input(preprocessing), make_input(preprocessing)]
    Preprocessor(preprocessing, inputs[0]).write(frame)
    Preprocessor(preprocessing, inputs[1]).write(Frame(frame.image[:, :, None], "mono8", 0, 0))
    np.testing.assert_array_equal(*inputs)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [(540, 960), (416, 416)])
def test_nothing_is_allocated_per_frame(encoding: str, size: tuple[int, int]) -> None:
    preprocessing = Preprocessing(416, 416, mean=(0.5, 0.5, 0.5))
    preprocessor = Preprocessor(preprocessing, make_input(preprocessing))
    frame = make_frame(encoding, *size)
    for _ in range(3):
        preprocessor.write(frame)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(5):
            preprocessor.write(frame)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    # numpy reports its buffers to tracemalloc; the smallest plane here has 97 KiB.
    assert peak < 40_000


@pytest.mark.parametrize(
    ("image", "encoding", "words"),
    [
        (np.zeros((4, 4, 3), np.uint8), "bgr16", "encoding"),
        (np.zeros((4, 4, 3), np.uint8), "", "encoding"),
        (np.zeros((4, 4, 4), np.uint8), "bgr8", "channels"),
        (np.zeros((4, 4), np.uint8), "rgb8", "channels"),
        (np.zeros(16, np.uint8), "mono8", "channels"),
        (np.zeros((4, 4, 3), np.uint16), "bgr8", "uint8"),
        (np.zeros((0, 4, 3), np.uint8), "bgr8", "sides"),
        (np.zeros((4, 0, 3), np.uint8), "bgr8", "sides"),
        (np.zeros((2, 40000), np.uint8), "mono8", "sides"),
        (np.zeros((4, 8, 3), np.uint8)[:, ::2], "bgr8", "adjacent"),
        (np.zeros((4, 8, 3), np.uint8)[::-1], "bgr8", "adjacent"),
    ],
)
def test_a_bad_frame_is_named_and_leaves_the_input_alone(
    image: np.ndarray, encoding: str, words: str
) -> None:
    preprocessing = Preprocessing(16, 16)
    destination = make_input(preprocessing)
    preprocessor = Preprocessor(preprocessing, destination)
    good = make_frame("bgr8", 10, 10)
    preprocessor.write(good)
    before = destination.copy()
    with pytest.raises(FrameError, match=words):
        preprocessor.write(Frame(image, encoding, 0, 0))
    np.testing.assert_array_equal(destination, before)
    preprocessor.write(good)
    np.testing.assert_array_equal(destination, before)


sides = st.integers(1, 3000)


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    input_sides=st.tuples(st.integers(8, 700), st.integers(8, 700)),
    source_sides=st.tuples(sides, sides),
    corners=st.tuples(*[st.floats(0, 1, width=32)] * 4),
)
def test_a_box_comes_back_where_it_was(
    mode: str,
    input_sides: tuple[int, int],
    source_sides: tuple[int, int],
    corners: tuple[float, float, float, float],
) -> None:
    geometry = Geometry.of(Preprocessing(*input_sides, mode), *source_sides)
    assert geometry.offset_y >= 0
    assert geometry.offset_y + geometry.resized_height <= input_sides[0]
    assert geometry.offset_x >= 0
    assert geometry.offset_x + geometry.resized_width <= input_sides[1]
    height, width = source_sides
    box = np.array([corners], np.float64) * [width, height, width, height]
    scale = np.array([geometry.scale_x, geometry.scale_y] * 2)
    offset = np.array([geometry.offset_x, geometry.offset_y] * 2)
    found = geometry.to_source((box * scale + offset).astype(np.float32))
    # float32 has 24 bits: a pixel of the input is known to 700 / 2**24 of the input.
    np.testing.assert_allclose(found, box, atol=2e-4 / min(scale))
    assert found.dtype == np.float32


@settings(deadline=None)
@given(
    mode=st.sampled_from(MODES),
    source_sides=st.tuples(sides, sides),
    corners=st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 4),
)
def test_boxes_are_clipped_to_the_source(
    mode: str, source_sides: tuple[int, int], corners: tuple[float, float, float, float]
) -> None:
    geometry = Geometry.of(Preprocessing(416, 416, mode), *source_sides)
    found = geometry.to_source(np.array([corners], np.float32))[0]
    assert np.all(found >= 0.0)
    assert np.all(found <= np.array([source_sides[1], source_sides[0]] * 2))


def test_yolox_letterbox_of_the_dashcam() -> None:
    geometry = Geometry.of(Preprocessing(416, 416), 540, 960)
    assert (geometry.resized_height, geometry.resized_width) == (234, 416)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"colour": "bgr"}, "preprocessing.colour is unknown"),
        ({"color": "hsv"}, "color must be one of"),
        ({"resize": "crop"}, "resize must be one of"),
        ({"pad_value": 300}, "pad_value must be in"),
        ({"std": [1.0, 0.0, 1.0]}, "std > 0"),
        ({"height": 0}, "height must be in"),
    ],
)
def test_bad_overrides_are_named(values: dict, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Preprocessing(16, 16).override(values)


def test_overrides_replace_fields() -> None:
    changed = Preprocessing(16, 16).override({"color": "bgr", "mean": [0.1, 0.2, 0.3]})
    assert changed == Preprocessing(16, 16, color="bgr", mean=(0.1, 0.2, 0.3))
