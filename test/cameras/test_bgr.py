# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Pixels of every encoding, blue first."""

from __future__ import annotations

import numpy as np
import pytest
from encoded_frames import encode_picture

from jetson_dnn_rt.cameras.bgr import copy_as_bgr
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.input.encodings import ENCODINGS

BGR = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
ALPHA = np.full((2, 3, 1), 7, np.uint8)


@pytest.mark.parametrize(
    ("encoding", "image"),
    [
        ("bgr8", BGR),
        ("rgb8", BGR[..., ::-1]),
        ("bgra8", np.concatenate((BGR, ALPHA), -1)),
        ("rgba8", np.concatenate((BGR[..., ::-1], ALPHA), -1)),
    ],
)
def test_every_order_becomes_blue_first(encoding, image):
    np.testing.assert_array_equal(copy_as_bgr(Frame(image, encoding, 0, 0)), BGR)
    padded = np.zeros((2, 5, image.shape[2]), np.uint8)
    padded[:, :3] = image
    out = np.zeros((2, 3, 3), np.uint8)
    assert copy_as_bgr(Frame(padded[:, :3], encoding, 0, 0), out) is out
    np.testing.assert_array_equal(out, BGR)


def test_what_is_returned_is_a_copy_and_grey_the_same_in_all_colours():
    image = BGR.copy()
    copy_as_bgr(Frame(image, "bgr8", 0, 0))[:] = 0
    np.testing.assert_array_equal(image, BGR)
    found = copy_as_bgr(Frame(BGR[..., 0], "mono8", 0, 0))
    np.testing.assert_array_equal(found, BGR[..., :1].repeat(3, -1))


@pytest.mark.parametrize(
    "encoding", [name for name, encoding in ENCODINGS.items() if encoding.layout != "packed"]
)
def test_yuv_and_bayer_become_colours(encoding):
    """Each of four quarters of the picture has the colour it was made of."""
    picture = np.zeros((32, 32, 3), np.uint8)
    picture[:16, :16], picture[:16, 16:] = (200, 60, 40), (60, 190, 80)
    picture[16:, :16], picture[16:, 16:] = (50, 70, 210), (120, 120, 120)
    frame = Frame(encode_picture(picture, encoding), encoding, 0, 0)
    found = copy_as_bgr(frame)
    assert found.shape == picture.shape
    for row, column in ((8, 8), (8, 24), (24, 8), (24, 24)):
        assert np.abs(found[row, column].astype(int) - picture[row, column]).max() <= 4
