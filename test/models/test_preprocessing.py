# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""What a network expects of its input, and the geometry against itself."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.models.input.preprocessing import (
    MEAN_RANGE,
    SCALE_RANGE,
    STD_RANGE,
    Geometry,
    Preprocessing,
)

MODES = ("letterbox_topleft", "letterbox_center", "stretch")

sides = st.integers(1, 3000)


@given(
    mode=st.sampled_from(MODES),
    input_sides=st.tuples(st.integers(8, 700), st.integers(8, 700)),
    source_sides=st.tuples(sides, sides),
    corners=st.tuples(*[st.floats(0, 1, width=32)] * 4),
)
def test_a_box_comes_back_where_it_was(mode, input_sides, source_sides, corners):
    geometry = Geometry.of(Preprocessing(*input_sides, mode), *source_sides)
    assert 0 <= geometry.offset_y <= input_sides[0] - geometry.resized_height
    assert 0 <= geometry.offset_x <= input_sides[1] - geometry.resized_width
    height, width = source_sides
    box = np.array([corners], np.float64) * [width, height, width, height]
    scale = np.array([geometry.scale_x, geometry.scale_y] * 2)
    offset = np.array([geometry.offset_x, geometry.offset_y] * 2)
    found = geometry.to_source((box * scale + offset).astype(np.float32))
    # float32 has 24 bits: a pixel of the input is known to 700 / 2**24 of the input.
    np.testing.assert_allclose(found, box, atol=2e-4 / min(scale))
    assert found.dtype == np.float32


@given(
    mode=st.sampled_from(MODES),
    source_sides=st.tuples(sides, sides),
    corners=st.tuples(*[st.floats(-1e4, 1e4, width=32)] * 4),
)
def test_boxes_are_clipped_to_the_source(mode, source_sides, corners):
    geometry = Geometry.of(Preprocessing(416, 416, mode), *source_sides)
    found = geometry.to_source(np.array([corners], np.float32))[0]
    assert np.all(found >= 0.0)
    assert np.all(found <= np.array([source_sides[1], source_sides[0]] * 2))


def test_yolox_letterbox_of_the_dashcam():
    geometry = Geometry.of(Preprocessing(416, 416), 540, 960)
    assert (geometry.resized_height, geometry.resized_width) == (234, 416)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"colour": "bgr"}, "preprocessing.colour is unknown"),
        ({"color": "hsv"}, "color must be one of"),
        ({"resize": "crop"}, "resize must be one of"),
        ({"pad_value": 300}, "pad_value must be in"),
        ({"std": [1.0, 0.0, 1.0]}, r"std\[1\] must be in \[1e-05, 10000\]: 0.0"),
        ({"height": 0}, "height must be in"),
        ({"mean": [1.0, 2.0]}, "three values"),
    ],
)
def test_bad_overrides_are_named(values, words):
    with pytest.raises(ConfigurationError, match=words):
        Preprocessing(16, 16).override(values)
    changed = Preprocessing(16, 16).override({"color": "bgr", "mean": [0.1, 0.2, 0.3]})
    assert changed == Preprocessing(16, 16, color="bgr", mean=(0.1, 0.2, 0.3))


WILD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 1e39, 1e-320]


@pytest.mark.parametrize(
    ("key", "value"),
    [("mean", value) for value in WILD[:-1]]  # the last is as good as zero, which is a mean
    + [(key, value) for key in ("std", "scale") for value in WILD],
)
def test_numbers_that_no_network_wants_are_refused(key, value):
    """EDGES 21: NaN, infinity and numbers that float32 lacks are named with their range."""
    given = value if key == "scale" else [0.5, 0.5, value]
    name = key if key == "scale" else rf"{key}\[2\]"
    words = rf"{name} must be in \[.*\]: {re.escape(str(value))}"
    with pytest.raises(ConfigurationError, match=words):
        Preprocessing(16, 16).override({key: given})


def test_the_widest_values_stay_finite():
    """EDGES 21: within the ranges every input is finite in float32."""
    std = (STD_RANGE[0],) * 3
    for mean in MEAN_RANGE:
        wide = Preprocessing(16, 16, scale=SCALE_RANGE[1], mean=(mean,) * 3, std=std)
        assert np.isfinite(wide.factors * np.float32(255) + wide.offsets).all()
