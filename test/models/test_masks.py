"""Segmentation logits against a mask computed pixel by pixel."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.models.heads.logits import MaskDecoder
from jetson_dnn_rt.models.input.preprocessing import Geometry, Preprocessing


def decode(logits: np.ndarray, geometry: Geometry, size: tuple[int, int]) -> np.ndarray:
    return MaskDecoder(size)([logits], geometry, DecoderSettings()).mask


def decode_plainly(logits: np.ndarray, geometry: Geometry, size: tuple[int, int]) -> np.ndarray:
    classes = logits[0].argmax(axis=0)
    mask = np.zeros((geometry.source_height, geometry.source_width), np.uint8)
    scale_y = Fraction(geometry.resized_height, geometry.source_height)
    scale_x = Fraction(geometry.resized_width, geometry.source_width)
    for y in range(mask.shape[0]):
        row = ((y + Fraction(1, 2)) * scale_y + geometry.offset_y) * classes.shape[0] / size[0]
        for x in range(mask.shape[1]):
            column = (x + Fraction(1, 2)) * scale_x + geometry.offset_x
            mask[y, x] = classes[int(row), int(column * classes.shape[1] / size[1])]
    return mask


@settings(deadline=None)  # the plain way is slow
@given(
    mode=st.sampled_from(["letterbox_topleft", "letterbox_center", "stretch"]),
    size=st.tuples(st.integers(16, 80), st.integers(16, 80)),
    stride=st.sampled_from([1, 2, 4, 8]),
    source=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    classes=st.integers(2, 9),
    seed=st.integers(0, 100),
)
def test_every_pixel_takes_the_cell_under_its_centre(
    mode: str, size: tuple[int, int], stride: int, source: tuple[int, int], classes: int, seed: int
) -> None:
    cells = tuple(-(-side // stride) for side in size)
    logits = np.random.default_rng(seed).standard_normal((1, classes, *cells), np.float32)
    geometry = Geometry.of(Preprocessing(*size, mode), *source)
    mask = decode(logits, geometry, size)
    assert mask.dtype == np.uint8
    np.testing.assert_array_equal(mask, decode_plainly(logits, geometry, size))


def test_the_padding_never_shows() -> None:
    """Left half class 1, right half class 2, and 3 wherever the image is not."""
    size = (64, 64)
    for mode, rows in (("letterbox_topleft", slice(0, 8)), ("letterbox_center", slice(4, 12))):
        logits = np.zeros((1, 4, 16, 16), np.float32)
        logits[0, 3] = 5.0
        logits[0, 3, rows] = 0.0
        logits[0, 1, rows, :8] = 9.0
        logits[0, 2, rows, 8:] = 9.0
        mask = decode(logits, Geometry.of(Preprocessing(*size, mode), 100, 200), size)
        assert mask.shape == (100, 200)
        assert np.all(mask[:, :100] == 1)
        assert np.all(mask[:, 100:] == 2)


def test_first_of_equal_logits_wins_as_in_argmax() -> None:
    geometry = Geometry.of(Preprocessing(16, 16), 16, 16)
    assert np.all(decode(np.ones((1, 5, 16, 16), np.float32), geometry, (16, 16)) == 0)


def test_mask_owns_its_memory_and_follows_the_source_size() -> None:
    decoder = MaskDecoder((32, 32))
    logits = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    first = Geometry.of(Preprocessing(32, 32), 40, 50)
    mask = decoder([logits], first, DecoderSettings()).mask
    before = mask.copy()
    second = Geometry.of(Preprocessing(32, 32), 70, 20)
    assert decoder([-logits], second, DecoderSettings()).mask.shape == (70, 20)
    decoder([-logits], first, DecoderSettings())
    np.testing.assert_array_equal(mask, before)


@pytest.mark.parametrize("classes", [2, 256])
def test_limits_of_the_number_of_classes(classes: int) -> None:
    logits = np.zeros((1, classes, 4, 4), np.float32)
    logits[0, classes - 1] = 1.0
    geometry = Geometry.of(Preprocessing(16, 16), 16, 16)
    assert np.all(decode(logits, geometry, (16, 16)) == classes - 1)
