# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""JPEG and PNG files from a stranger: what is decoded has the size that was checked."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import zlib
from types import SimpleNamespace

import cv2
import hostile_images as hostile
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.cameras.encoded_pictures import (
    MAX_PIXELS,
    BadImageError,
    _read_headers,
    decode_picture,
)
from jetson_dnn_rt.cameras.image_messages import decode_image


class Message:
    """A ``sensor_msgs/msg/CompressedImage`` as far as it is read."""

    def __init__(self, data, form="jpeg"):
        self.data, self.format = data, form
        self.header = SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=0), frame_id="front")


def reason_of(data):
    with pytest.raises(BadImageError) as caught:
        decode_image(Message(data), 0)
    assert len(str(caught.value)) < 400
    return caught.value.reason


RED, BLUE = (0, 0, 255), (255, 0, 0)  # as OpenCV orders them
MOSAIC = np.zeros((64, 64), np.uint8)
MOSAIC[::2, ::2] = 255
"""Pure red through a colour filter that begins with red."""


def decode_as(form, image, suffix=None):
    """Frame of a picture that was stored as it is, under a format."""
    suffix = suffix or (".png" if "png" in form else ".jpg")
    return decode_image(Message(cv2.imencode(suffix, image)[1].tobytes(), form), 0)


@pytest.mark.parametrize(
    ("form", "stored"),
    [
        # What compressed_image_transport of Humble, Jazzy and Kilted publishes.
        ("rgb8; jpeg compressed bgr8", RED),
        ("bgr8; jpeg compressed bgr8", RED),
        ("rgba8; png compressed bgr8", RED),
        ("bgr8; png compressed bgr8", RED),
        ("bayer_rggb8; png compressed ", MOSAIC),
        # Of ROS 1, where the mosaic is what is in the JPEG, too.
        ("bayer_rggb8; jpeg compressed ", MOSAIC),
        ("bayer_bggr8; jpeg compressed ", np.roll(MOSAIC, (1, 1), (0, 1))),
        ("bayer_gbrg8; png compressed ", np.roll(MOSAIC, 1, 0)),
        ("bayer_grbg8; png compressed ", np.roll(MOSAIC, 1, 1)),
        # Colours in the order of rgb, of Fuerte, and as its successors read the same texts.
        ("rgb8; jpeg compressed rgb8", BLUE),
        ("rgb8; jpeg compressed", BLUE),
        ("bgr8; png compressed ", BLUE),
        # Other drivers, which store no order of their own.
        ("jpeg", RED),
        ("jpg", RED),
        ("png", RED),
        ("rgb8", RED),
        ("", RED),
    ],
)
def test_colours_are_those_of_the_format_that_the_sender_declares(form, stored):
    image = stored if isinstance(stored, np.ndarray) else np.full((64, 64, 3), stored, np.uint8)
    frame = decode_as(form, image)
    middle = copy_as_bgr(frame)[16:48, 16:48].reshape(-1, 3)
    np.testing.assert_allclose(middle.astype(int), np.tile(RED, (len(middle), 1)), atol=4)
    assert frame.image.nbytes == frame.copied_bytes


@pytest.mark.parametrize(
    "form",
    [
        "bayer_rggb8; jpeg compressed mono8",
        "mono16; jpeg compressed mono8",
        "mono8; png compressed ",
    ],
)
def test_what_was_made_grey_before_it_was_stored_is_grey(form):
    """ROS 2 stores the JPEG of a mosaic as grey: nothing of its colours is left."""
    frame = decode_as(form, np.full((64, 64), 90, np.uint8))
    assert frame.encoding == "bgr8"
    assert np.ptp(frame.image) == 0
    assert frame.image[0, 0].tolist() == [90, 90, 90]


@pytest.mark.parametrize(
    ("form", "image", "words"),
    [
        ("16UC1; compressedDepth png", MOSAIC, "these are distances, not a picture; fix: "),
        ("32FC1; compressedDepth rvl", MOSAIC, "these are distances"),
        ("mono16; png compressed ", MOSAIC.astype(np.uint16), "16 bits a sample"),
        ("bgr16; png compressed bgr16", MOSAIC.astype(np.uint16), "16 bits a sample"),
        ("png", MOSAIC.astype(np.uint16), "grey PNG: 16 bits a sample"),
    ],
)
def test_distances_and_16_bits_say_what_to_do(form, image, words):
    with pytest.raises(BadImageError, match=words) as caught:
        decode_as(form, image, ".png")
    assert caught.value.reason == "encoding"


def test_a_format_that_does_not_fit_its_picture_is_refused():
    with pytest.raises(
        BadImageError, match="declared as bayer_rggb8, a mosaic of bytes, but has 3"
    ):
        decode_as("bayer_rggb8; jpeg compressed ", np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(
        BadImageError, match="compressed image: the width must be even: 7x8 pixels"
    ):
        decode_as("bayer_rggb8; png compressed ", np.zeros((8, 7), np.uint8))
    with pytest.raises(BadImageError, match=r"neither JPEG nor PNG \(its format is 'h264'\)"):
        decode_image(Message(b"\0\0\0\1gh", "h264"), 0)


@pytest.mark.parametrize(("height", "width"), [hostile.FAR_TOO_LARGE, hostile.TOO_LARGE, (64, 80)])
def test_a_jpeg_that_hides_its_size_is_refused(height, width):
    """EDGES 1: libjpeg skips ``FF 00`` and takes the size behind it, which was not the checked."""
    assert reason_of(hostile.disguise_jpeg(height, width)) == "truncated"


def test_opencv_knows_the_limit_in_every_process_of_the_package():
    """EDGES 1: the decoder's own limit is that of the package, whatever is imported first."""
    code = (
        "import jetson_dnn_rt, cv2, numpy as np, sys\n"
        "cv2.imdecode(np.frombuffer(sys.stdin.buffer.read(), np.uint8), cv2.IMREAD_COLOR)\n"
    )
    side = 1 << 13
    for height, too_large in ((side, False), (side + 1, True)):
        file = hostile.resize_jpeg(hostile.make_jpeg(), height, side)
        done = subprocess.run([sys.executable, "-c", code], input=file, capture_output=True)
        assert (b"MAX_IMAGE_PIXELS" in done.stderr) == too_large, done.stderr
    assert side * side == MAX_PIXELS


def test_an_error_of_opencv_is_a_bad_image(monkeypatch):
    """EDGES 1: what the decoder raises is the frame's fault, and its text has an end."""
    for error in (cv2.error("x" * 9000), MemoryError(), ValueError("x" * 9000)):

        def fail(*_, error=error):
            raise error

        monkeypatch.setattr(cv2, "imdecode", fail)
        assert reason_of(hostile.make_jpeg()) == "truncated"


def test_another_size_than_the_checked_one_is_refused(monkeypatch):
    """EDGES 1: the size is checked again after decoding."""
    monkeypatch.setattr(cv2, "imdecode", lambda *_: np.zeros((49, 64, 3), np.uint8))
    assert reason_of(hostile.make_png()) == "size"


def double_frame_header(file):
    place = file.find(b"\xff\xc0")
    return file[: place + 19] + file[place:]


JPEG, PROGRESSIVE = hostile.make_jpeg(), hostile.make_jpeg(progressive=True)
PNG = hostile.make_png()
CASES = {
    "jpeg too large": (hostile.resize_jpeg(JPEG, *hostile.TOO_LARGE), "size"),
    "jpeg of no height": (hostile.resize_jpeg(JPEG, 0, 64), "size"),
    "jpeg of a long line": (hostile.resize_jpeg(JPEG, 1, 40_000), "size"),
    "jpeg of two sizes": (double_frame_header(JPEG), "format"),
    "jpeg without loss": (JPEG.replace(b"\xff\xc0", b"\xff\xc3"), "format"),
    "jpeg in arithmetic code": (JPEG.replace(b"\xff\xc0", b"\xff\xc9"), "format"),
    "jpeg with an unknown marker": (JPEG.replace(b"\xff\xc0", b"\xff\x02"), "truncated"),
    "jpeg that begins twice": (b"\xff\xd8" + JPEG, "truncated"),
    "jpeg of fill bytes": (b"\xff\xd8" + b"\xff" * 2_000_000, "truncated"),
    "jpeg of segments": (b"\xff\xd8" + b"\xff\xe0\x00\x02" * 500_000 + JPEG[2:], "truncated"),
    "jpeg segment of no length": (b"\xff\xd8\xff\xe0\x00\x00" + JPEG[2:], "truncated"),
    "jpeg with bytes between": (JPEG[:20] + bytes(3) + JPEG[20:], "truncated"),
    "jpeg of coefficients": (hostile.resize_jpeg(PROGRESSIVE, 8192, 8192), "size"),
    "jpeg of scans": (hostile.repeat_scans(PROGRESSIVE, 2000), "format"),
    "jpeg without a size": (JPEG[:20] + JPEG[JPEG.find(b"\xff\xda") :], "truncated"),
    "png too large": (hostile.resize_png(PNG, *hostile.TOO_LARGE), "size"),
    "png with an animation": (hostile.animate_png(48, 64), "format"),
    "png with two headers": (PNG[:33] + PNG[8:], "format"),
    "png without a header": (b"\x89PNG\r\n\x1a\n" + PNG[33:], "format"),
    "png with a huge chunk": (PNG[:33] + b"\x7f\xff\xff\xfftEXt" + PNG[41:], "truncated"),
    "png of huge pixels": (PNG[:33] + b"\x7f\xff\xff\xffIDAT" + PNG[41:], "truncated"),
    "png that is cut": (PNG[:-40], "truncated"),
    "png with an unknown chunk": (
        PNG[:33] + hostile.make_chunk(b"CgBI", b"") + PNG[33:],
        "format",
    ),
    "png of chunks without pixels": (hostile.split_png(100_000), "format"),
    "png of chunks": (PNG[:33] + hostile.make_chunk(b"tEXt", b"") * 90_000, "truncated"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_decoder_might_read_otherwise_is_refused(case):
    """EDGES 1: two sizes, bytes to be skipped, unknown codings, work without end."""
    data, reason = CASES[case]
    assert reason_of(data) == reason


@pytest.mark.parametrize("suffix", [".bmp", ".tiff", ".webp", ".ppm", ".hdr"])
def test_other_formats_do_not_reach_the_decoder(suffix, monkeypatch):
    """EDGES 1: OpenCV would know them by their first bytes."""
    picture = np.zeros((8, 8, 3), np.float32 if suffix == ".hdr" else np.uint8)
    data = bytes(cv2.imencode(suffix, picture)[1])
    monkeypatch.delattr(cv2, "imdecode")
    assert reason_of(data) == "format"


def check_decoded(data):
    picture, expected = decode_picture(data), cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert (picture.dtype, picture.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(picture, expected)


def test_sound_files_are_decoded():
    filled = b"\xff\xd8\xff\xff\xff" + JPEG[3:]
    for data in (JPEG, PROGRESSIVE, PNG, filled, JPEG + b"behind the end"):
        array = np.frombuffer(data, np.uint8)
        check_decoded(array)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_the_decoder_inflates_nothing_but_pixels(kind, behind, monkeypatch):
    """EDGES 1: 1.4 MB of texts that are inflated to 1.4 GB held the thread of ROS for 7.6 s."""
    seen: list[bytes] = []
    decode = cv2.imdecode
    monkeypatch.setattr(
        cv2, "imdecode", lambda data, flags: (seen.append(data.tobytes()), decode(data, flags))[1]
    )
    file = np.frombuffer(hostile.inflate_png(kind, 200, behind=behind), np.uint8)
    assert len(file) > 200 * 5000
    assert not decode_picture(file).any()
    assert seen == [hostile.make_flat_png(48, 64)]


def test_chunks_that_say_how_to_show_a_png_change_no_pixel():
    """EDGES 1: they are not given to the decoder, which would not heed them either."""
    chunks = {
        b"gAMA": b"\0\0\xb1\x8f", b"sRGB": b"\0", b"cHRM": bytes(range(32)),
        b"sBIT": b"\5\6\5", b"bKGD": bytes(6), b"pHYs": b"\0\0\x0b\x13" * 2 + b"\1",
        b"tEXt": b"Software\0a camera", b"tIME": b"\x07\xea\1\1\0\0\0",
    }  # fmt: skip
    extra = b"".join(hostile.make_chunk(kind, content) for kind, content in chunks.items())
    file = np.frombuffer(PNG[:33] + extra + PNG[33:-12] + extra + PNG[-12:], np.uint8)
    check_decoded(file)


def test_a_png_of_a_palette_is_decoded():
    """EDGES 1: its colours are kept, also where a text between them and the pixels is not."""
    colours = bytes(range(60))
    indices = np.arange(16, dtype=np.uint8).reshape(4, 4)
    rows = b"".join(b"\0" + row.tobytes() for row in indices)
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", 4, 4, 8, 3, 0, 0, 0), b"PLTE": colours,
        b"tRNS": bytes(3), b"tEXt": b"a\0b", b"IDAT": zlib.compress(rows), b"IEND": b"",
    }  # fmt: skip
    file = PNG[:8] + b"".join(itertools.starmap(hostile.make_chunk, chunks.items()))
    expected = np.frombuffer(colours, np.uint8).reshape(-1, 3)[indices][..., ::-1]
    np.testing.assert_array_equal(decode_picture(np.frombuffer(file, np.uint8)), expected)


def test_an_ordinary_png_is_not_copied(monkeypatch):
    file = np.frombuffer(PNG, np.uint8)
    decode = cv2.imdecode

    def check(data, flags):
        assert data is file
        return decode(data, flags)

    monkeypatch.setattr(cv2, "imdecode", check)
    assert decode_picture(file).shape == (48, 64, 3)


def test_a_picture_is_as_the_sensor_gave_it():
    """Turned by its EXIF data it would not agree with the camera's calibration."""
    turned = np.frombuffer(hostile.turn_jpeg(JPEG, 6), np.uint8)
    assert cv2.imdecode(turned, cv2.IMREAD_COLOR).shape == (64, 48, 3)
    plain = decode_picture(np.frombuffer(JPEG, np.uint8))
    np.testing.assert_array_equal(decode_picture(turned), plain)


@settings(max_examples=400)
@given(seed=st.integers(0, 10**9))
def test_a_mutated_file_is_decoded_in_its_checked_size_or_refused(seed):
    """EDGES 1: nothing but a `BadImageError`, and never more pixels than were checked."""
    data = np.frombuffer(hostile.mutate_file(seed), np.uint8)
    try:
        size = _read_headers(data)[:2]
    except BadImageError:
        return
    if size[0] * size[1] > 1 << 22:  # decoding takes a second
        return
    try:
        assert decode_picture(data).shape == (*size, 3)
    except BadImageError:
        return
