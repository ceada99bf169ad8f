# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Declared parameters, without ROS: values in the type of their field, and refusals."""

import array
from dataclasses import dataclass

import pytest

from jetson_dnn_rt.config.declaration import describe, parameter
from jetson_dnn_rt.config.nodes import CameraConfig
from jetson_dnn_rt.config.task import TaskConfig
from jetson_dnn_rt.errors import ConfigurationError


@dataclass(frozen=True)
class Example:
    """One parameter of every kind."""

    ratio: float = parameter(0.5, "A ratio", limits=(0.0, 1.0), dynamic=True)
    count: int = parameter(3, "A count", unit="frames", limits=(1, 9), dynamic=True)
    mode: str = parameter("a", "A mode", choices=("a", "b"), dynamic=True)
    flag: bool = parameter(False, "A flag", name="group.flag")
    names: tuple[str, ...] = parameter((), "Names")
    cores: tuple[int, ...] = parameter((), "Cores")
    means: tuple[float, ...] = parameter((), "Means")
    free: float = parameter(0.0, "A number without limits")


ITEMS = {item.field: item for item in describe(Example)}


@pytest.mark.parametrize(
    ("field", "given", "value"),
    [
        ("ratio", 1, 1.0),
        ("ratio", 0.25, 0.25),
        ("count", 9, 9),
        ("mode", "b", "b"),
        ("flag", True, True),
        ("names", [""], ()),
        ("names", ["x", "y"], ("x", "y")),
        ("cores", array.array("q", [-1]), ()),
        ("cores", array.array("q", [0, 1]), (0, 1)),
        ("means", array.array("d", [-1.0]), ()),
        ("means", [1, 2.5], (1.0, 2.5)),
    ],
)
def test_values_come_in_the_type_of_their_field(field, given, value):
    checked = ITEMS[field].check(given)
    assert checked == value
    assert type(checked) is type(value)


@pytest.mark.parametrize(
    ("field", "given", "text"),
    [
        ("ratio", 1.01, r"ratio must be in \[0, 1\]: 1.01"),
        ("ratio", True, "ratio must be a number: True"),
        ("ratio", float("nan"), r"ratio must be in \[0, 1\]: nan"),
        ("ratio", None, "ratio must be a number: None"),
        ("ratio", 1 << 80, "ratio must be a number: 1208925819614629174706176"),
        ("free", float("inf"), "free must be finite: inf"),
        ("free", float("nan"), "free must be finite: nan"),
        ("means", [1.0, float("nan")], "means must be finite"),
        ("count", 0, r"count must be in \[1, 9\]: 0"),
        ("count", True, "count must be a whole number: True"),
        ("count", 2.0, "count must be a whole number"),
        ("mode", "c", "mode must be one of a, b: 'c'"),
        ("flag", 1, r"group\.flag must be true or false: 1"),
        ("names", "x", r"""names must be a list of texts, written \["x"\]: 'x'"""),
        ("names", [1], "names must be a list of texts"),
        ("cores", [1.0], "cores must be a list of whole numbers"),
        ("mode", "x" * 5_000, "mode must have at most 4096 characters: it has 5000"),
        ("names", ["x", "y" * 5_000], "names must have at most 4096 characters: it has 5000"),
        ("cores", [1] * 10_001, "cores must have at most 10000 entries: it has 10001"),
    ],
)
def test_a_value_that_cannot_be_is_refused(field, given, text):
    with pytest.raises(ConfigurationError, match=text):
        ITEMS[field].check(given)


CHOICES = {item.name: item for item in describe(TaskConfig)}


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("labels", "coco80", "written [\"coco80\"]: 'coco80'"),
        ("labels", [False, True], 'written ["yes", "no"], as without quotation marks they are tr'),
        ("classes", [2, 7], 'written ["2", "7"]: [2, 7]'),
        ("class_thresholds", {"car": 0.5}, "written [\"car=0.5\"]: {'car': 0.5}"),
        ("class_thresholds", "car=0.5", 'written ["car=0.5", "sign=0.25"]'),
        ("class_thresholds", {"a\x1b": 0.5}, 'written ["car=0.5", "sign=0.25"]'),
        ("constant_inputs", {"scale": 1.5}, 'written ["scale=1.5"]'),
        ("input_size", 640, "written [a, b]: 640"),
        ("met_of", "2 of 3", "written [2, 3]: '2 of 3'"),
    ],
)
def test_a_list_in_another_form_comes_with_the_right_one(name, given, text):
    """``labels: [no, yes]`` became [False, True], ``{car: 0.5}`` was refused without the form."""
    with pytest.raises(ConfigurationError) as error:
        CHOICES[name].check(given)
    assert text in str(error.value)


NAMES_OF_TIMES = {
    (declaration, item.field)
    for declaration in (TaskConfig, CameraConfig)
    for item in describe(declaration)
    if item.unit in ("ms", "Hz") and item.limits and item.limits[0] == 0.0
}


def test_a_time_is_nothing_or_a_nanosecond_at_least():
    """A deadline of 1e-9 ms was taken, and became 0 ns: one period."""
    assert (TaskConfig, "deadline_ms") in NAMES_OF_TIMES
    assert len(NAMES_OF_TIMES) >= 8
    for declaration, field in NAMES_OF_TIMES:
        item = next(item for item in describe(declaration) if item.field == field)
        for value in (5e-324, 1e-9, 9.9e-7):
            with pytest.raises(ConfigurationError, match="must be 0 or at least 1e-06"):
                item.check(value)
        for value in (0.0, 1e-6, 40.0):
            assert item.check(value) == value
            assert value == 0.0 or int(value * 1e6) >= 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mode", "m" * 5_000_000),
        ("mode", "m" * 4000),
        ("ratio", "m" * 5_000_000),
        ("count", 10**300),
        ("names", ["m" * 5_000_000]),
        ("cores", ["m" * 4000] * 1000),
        ("means", [float("nan")] * 10_000),
    ],
)
def test_a_refusal_is_short_however_long_the_value_is(field, value):
    with pytest.raises(ConfigurationError) as refusal:
        ITEMS[field].check(value)
    assert len(str(refusal.value)) < 400
