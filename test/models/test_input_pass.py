# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The input pass against the same steps written out, whatever the encoding."""

from __future__ import annotations

import tracemalloc

import cv2
import numpy as np
import pytest
from encoded_frames import encode_picture
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.errors import FrameError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS
from jetson_dnn_rt.models.input.input_pass import Preprocessor, make_reader
from jetson_dnn_rt.models.input.plans import KEPT
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MODES = ("letterbox_topleft", "letterbox_center", "stretch")

PACKED = [name for name, encoding in ENCODINGS.items() if encoding.layout == "packed"]

IN_BLOCKS = [name for name in ENCODINGS if name not in PACKED]


def make_frame(encoding, height, width, seed=0):
    shape = ENCODINGS[encoding].shape(height, width)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Frame(image, encoding, 0, 0)


def make_input(preprocessing):
    return np.full((1, 3, preprocessing.height, preprocessing.width), np.nan, np.float32)


def preprocess_plainly(preprocessing, frame):
    """Step by step, whole images, one copy each."""
    image = copy_as_bgr(frame)
    if preprocessing.color == "rgb":
        image = image[..., ::-1].copy()
    height, width = image.shape[:2]
    rows, columns = preprocessing.height, preprocessing.width
    inner = (rows, columns)
    if preprocessing.resize != "stretch":
        ratio = min(rows / height, columns / width)
        inner = (max(1, round(height * ratio)), max(1, round(width * ratio)))
    top = left = 0
    if preprocessing.resize == "letterbox_center":
        top, left = (rows - inner[0]) // 2, (columns - inner[1]) // 2
    if inner != (height, width):
        image = cv2.resize(image, inner[::-1], interpolation=cv2.INTER_LINEAR)
    padded = np.full((rows, columns, 3), preprocessing.pad_value, np.uint8)
    padded[top : top + inner[0], left : left + inner[1]] = image
    std = np.array(preprocessing.std)
    factors = (preprocessing.scale / std).astype(np.float32)
    offsets = (-np.array(preprocessing.mean) / std).astype(np.float32)
    return (padded.astype(np.float32) * factors + offsets).transpose(2, 0, 1)[None]


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("color", ["bgr", "rgb"])
@pytest.mark.parametrize(
    "numbers", [{"scale": 1.0}, {}, {"mean": MEAN, "std": STD, "pad_value": 7}]
)
def test_bit_equal_to_the_plain_way(encoding, mode, color, numbers):
    preprocessing = Preprocessing(48, 64, mode, color=color, **numbers)
    destination = make_input(preprocessing)
    preprocessor = Preprocessor(preprocessing, destination)
    for size in ((54, 96), (48, 64), (20, 30), (100, 40), (54, 96)):
        frame = make_frame(encoding, *size)
        preprocessor.write(frame)
        np.testing.assert_array_equal(destination, preprocess_plainly(preprocessing, frame))


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=40)
@given(
    size=SIZES,
    # Even sides, which every encoding can have; few sizes, so that they come again.
    halves=st.lists(SIZES, min_size=1, max_size=12),
    turns=st.lists(st.tuples(st.integers(0, 11), st.sampled_from(sorted(ENCODINGS))), max_size=30),
    repads=st.sets(st.integers(0, 29)),
)
def test_sizes_in_any_order_come_out_as_in_a_new_input(mode, size, halves, turns, repads):
    preprocessing = Preprocessing(*size, mode, mean=MEAN, std=STD)
    destination = make_input(preprocessing)
    preprocessor = Preprocessor(preprocessing, destination)
    for number, (place, encoding) in enumerate(turns):
        if number in repads:
            destination[:] = np.nan  # by a device
            preprocessor.repad()
        height, width = halves[place % len(halves)]
        frame = make_frame(encoding, 2 * height, 2 * width, seed=number)
        alone = make_input(preprocessing)
        fresh = Preprocessor(preprocessing, alone)
        assert preprocessor.write(frame) == fresh.write(frame)
        np.testing.assert_array_equal(destination, alone)
        assert preprocessor.written_bytes == fresh.written_bytes
        assert preprocessor.scratch_bytes == fresh.scratch_bytes


def test_a_size_is_planned_once_while_few_alternate():
    preprocessing = Preprocessing(48, 64)
    preprocessor = Preprocessor(preprocessing, make_input(preprocessing))
    frames = [make_frame("bgr8", 20 + number, 30) for number in range(KEPT + 1)]
    for _ in range(3):
        for frame in frames[:KEPT]:
            preprocessor.write(frame)
    assert preprocessor.planned == KEPT
    preprocessor.write(frames[KEPT])  # in place of the first, which was longest ago
    for frame in frames[1:]:
        preprocessor.write(frame)
    assert preprocessor.planned == KEPT + 1
    preprocessor.write(frames[0])
    assert preprocessor.planned == KEPT + 2
    # The same size with other strides, or in another encoding, is read in another way.
    for other in (
        Frame(frames[0].image[:, ::-1][:, ::-1], "bgr8", 0, 0),
        Frame(frames[0].image, "rgb8", 0, 0),
        Frame(np.zeros((20, 40, 3), np.uint8)[:, :30], "bgr8", 0, 0),
    ):
        preprocessor.write(other)
    assert preprocessor.planned == KEPT + 4


def test_a_bad_frame_between_sizes_leaves_the_plans_as_they_were():
    preprocessing = Preprocessing(48, 64)
    destination = make_input(preprocessing)
    preprocessor = Preprocessor(preprocessing, destination)
    frame = make_frame("bgr8", 20, 30)
    preprocessor.write(frame)
    before = destination.copy()
    for bad in (np.zeros((5, 5, 2), np.uint8), np.zeros((1, 40_000, 3), np.uint8)):
        for _ in range(2):
            with pytest.raises(FrameError):
                preprocessor.write(Frame(bad, "bgr8", 0, 0))
    np.testing.assert_array_equal(destination, before)
    preprocessor.write(frame)
    np.testing.assert_array_equal(destination, before)
    assert preprocessor.planned == 1


@pytest.mark.parametrize("encoding", ["bgr8", "nv12", "bayer_rggb8"])
def test_sizes_in_turn_allocate_nothing(encoding):
    preprocessing = Preprocessing(640, 640, "letterbox_center")
    preprocessor = Preprocessor(preprocessing, make_input(preprocessing))
    frames = [make_frame(encoding, *size) for size in ((540, 960), (960, 540), (480, 640))]
    for frame in frames * 2:
        preprocessor.write(frame)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for frame in frames * 3:
            preprocessor.write(frame)
        # numpy converts in buffers, of 98 KB in numpy 1.21; one resized plane has 230 KB.
        assert tracemalloc.get_traced_memory()[1] - before < 120_000
    finally:
        tracemalloc.stop()


def test_normalisation_is_the_textbooks():
    preprocessing = Preprocessing(8, 8, "stretch", color="rgb", mean=MEAN, std=STD)
    destination = make_input(preprocessing)
    frame = make_frame("rgb8", 8, 8)
    Preprocessor(preprocessing, destination).write(frame)
    expected = (frame.image / 255.0 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(destination[0], expected.transpose(2, 0, 1), atol=1e-5)


def write_both(one, other):
    """What two frames become; the input is the same."""
    inputs = [make_input(Preprocessing(32, 32)) for _ in range(2)]
    for frame, destination in zip((one, other), inputs, strict=True):
        Preprocessor(Preprocessing(32, 32), destination).write(frame)
    np.testing.assert_array_equal(*inputs)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_padded_rows_and_read_only_memory(encoding):
    """A message's rows may be longer than its pixels, and its memory is not ours to write."""
    width = 41 if encoding in PACKED else 42
    tight = make_frame(encoding, 30, width)
    rows = tight.image.reshape(len(tight.image), -1)
    data = np.pad(rows, ((0, 0), (0, 13))).tobytes()  # read-only, as a message is
    strides = (rows.shape[1] + 13, *tight.image.strides[1:])
    padded = np.ndarray(tight.image.shape, np.uint8, data, 0, strides)
    write_both(tight, Frame(padded, encoding, 0, 0))


def test_mono_with_a_channel_axis():
    frame = make_frame("mono8", 20, 30)
    write_both(frame, Frame(frame.image[:, :, None], "mono8", 0, 0))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [(540, 960), (416, 416), (832, 832)])
def test_nothing_is_allocated_per_frame(encoding, size):
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
        (np.zeros((4, 4, 4), np.uint8), "bgr8", "channels"),
        (np.zeros(16, np.uint8), "mono8", "channels"),
        (np.zeros((4, 4, 3), np.uint16), "bgr8", "uint8"),
        (np.zeros((0, 4, 3), np.uint8), "bgr8", "sides"),
        (np.zeros((2, 40000), np.uint8), "mono8", "sides"),
        (np.zeros((4, 8, 3), np.uint8)[:, ::2], "bgr8", "adjacent"),
        (np.zeros((4, 8, 3), np.uint8)[::-1], "bgr8", "adjacent"),
        (np.zeros((6, 5), np.uint8), "nv12", "width must be even: 5x4"),
        (np.zeros((5, 4), np.uint8), "nv21", "height must be even: 4x3"),
        (np.zeros((7, 4), np.uint8), "nv12", "rows of Y and half as many"),
        (np.zeros((4, 5, 2), np.uint8), "yuyv", "width must be even"),
        (np.zeros((4, 4), np.uint8), "uyvy", "channels"),
        (np.zeros((5, 4), np.uint8), "bayer_rggb8", "height must be even"),
        (np.zeros((4, 5), np.uint8), "bayer_gbrg8", "width must be even"),
    ],
)
def test_a_bad_frame_is_named_and_leaves_the_input_alone(image, encoding, words):
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


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_written_are_counted(encoding):
    """Only the picture's part of the input is written per frame, and scratch of its size."""
    preprocessing = Preprocessing(416, 416)
    preprocessor = Preprocessor(preprocessing, make_input(preprocessing))
    assert preprocessor.written_bytes == 0
    preprocessor.write(make_frame(encoding, 540, 960))
    assert preprocessor.written_bytes == 3 * 234 * 416 * 4
    # The most are four channels and two, their planes, and three times three of the colours.
    assert 0 < preprocessor.scratch_bytes <= 21 * 234 * 416
    preprocessor.write(make_frame(encoding, 416, 416))
    assert preprocessor.written_bytes == 3 * 416 * 416 * 4


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("padding", [0, 20])
def test_the_resize_reads_the_message_itself(encoding, padding, monkeypatch):
    """Every read of the source is a view of its memory, and nothing of its size is made of it."""
    preprocessing = Preprocessing(96, 96)
    preprocessor = Preprocessor(preprocessing, make_input(preprocessing))
    image = make_frame(encoding, 200, 300 + padding).image[:, :300]
    frame = Frame(image, encoding, 0, 0)
    read: list[tuple[bool, int]] = []
    resize = cv2.resize

    def observe(source, *args, **named):
        read.append((np.shares_memory(source, frame.image), source.nbytes))
        return resize(source, *args, **named)

    monkeypatch.setattr(cv2, "resize", observe)
    preprocessor.write(frame)
    assert read
    assert all(shared for shared, _ in read)
    # Y and its U, V lie among each other: both views have all of the bytes.
    times = 2 if ENCODINGS[encoding].layout == "paired" else 1
    assert sum(count for _, count in read) == times * frame.image.nbytes


YUV = [name for name in IN_BLOCKS if not name.startswith("bayer")]

BAYER = [name for name in IN_BLOCKS if name.startswith("bayer")]


def read_planes(frame, size, color="bgr"):
    geometry = Geometry.of(Preprocessing(*size), frame.height, frame.width)
    planes = make_reader(ENCODINGS[frame.encoding], geometry, color).read(frame.image)
    return np.stack(planes, -1), geometry


def resize_plane(plane, geometry):
    size = (geometry.resized_width, geometry.resized_height)
    return cv2.resize(np.ascontiguousarray(plane), size, interpolation=cv2.INTER_LINEAR)


def round_to_bytes(colours):
    return np.clip(np.rint(colours), 0, 255)


def convert_plainly(frame, geometry):
    """Part the samples into whole planes, resize each, then the colours in float64."""
    image, height = frame.image, frame.height
    if frame.encoding in BAYER:
        pattern = frame.encoding.removeprefix("bayer_")[:4]
        samples = (image[i // 2 :: 2, i % 2 :: 2] for i in range(4))
        planes = [resize_plane(sample, geometry).astype(float) for sample in samples]
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
@settings(max_examples=25)
@given(
    half=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    seed=st.integers(0, 1000),
)
def test_planes_are_the_steps_written_out(encoding, half, size, seed):
    frame = make_frame(encoding, 2 * half[0], 2 * half[1], seed)
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
def test_halves_are_made_in_bands(encoding, times):
    """Y, or U and V, or a Bayer block's samples at exactly half their size, several bands."""
    size = (150, 200)
    frame = make_frame(encoding, times * size[0], times * size[1])
    found, geometry = read_planes(frame, size)
    again, _ = read_planes(frame, size)
    np.testing.assert_array_equal(again, found)
    assert np.abs(found - convert_plainly(frame, geometry)).max() <= 1.0


@pytest.mark.parametrize("encoding", IN_BLOCKS)
@pytest.mark.parametrize(
    "bgr", [(250, 10, 30), (20, 240, 60), (40, 25, 230), (128, 128, 128), (0, 0, 0)]
)
def test_one_colour_stays_that_colour(encoding, bgr):
    """Which byte is which colour: against OpenCV's own reading of the same frame."""
    frame = Frame(encode_picture(np.full((24, 32, 3), bgr, np.uint8), encoding), encoding, 0, 0)
    found, _ = read_planes(frame, (18, 24))
    expected = copy_as_bgr(frame)[:18, :24].astype(int)
    assert np.abs(found - expected).max() <= 1
    # Chroma in eight bits of limited range gives each colour to two steps.
    assert np.abs(found - np.array(bgr)).max() <= 4


def measure_psnr(picture, other):
    """Peak signal to noise ratio of two pictures of eight bits in dB."""
    return float(10.0 * np.log10(255.0**2 / np.mean((picture.astype(float) - other) ** 2)))


@pytest.fixture(scope="module")
def pictures(shared_data):
    """Frames of a real drive, 960x540."""
    video = cv2.VideoCapture(str(next((shared_data / "video").glob("*.mp4"))))
    return [video.retrieve()[1] for number in range(90) if video.grab() and number % 30 == 29]


@pytest.mark.parametrize(
    ("encoding", "to_whole_db", "loss_db"),
    [(name, 53.0, 2.5) for name in YUV] + [(name, 43.0, 4.5) for name in BAYER],
)
@pytest.mark.parametrize("size", [(540, 960), (720, 1280)])
def test_quality_on_real_frames(pictures, encoding, to_whole_db, loss_db, size):
    """Against the whole picture converted first, and how much more of the original is lost."""
    figures = []
    for picture in pictures:
        picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_CUBIC)
        frame = Frame(encode_picture(picture, encoding), encoding, 0, 0)
        found, geometry = read_planes(frame, (416, 416))
        whole = resize_plane(copy_as_bgr(frame), geometry)
        original = resize_plane(picture, geometry)
        loss = measure_psnr(whole, original) - measure_psnr(found, original)
        figures.append((measure_psnr(found, whole), loss))
    to_whole, loss = np.mean(figures, axis=0)
    assert to_whole >= to_whole_db
    assert loss <= loss_db
