# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Dataclasses from untrusted JSON: what fits comes back, anything else names its place."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType

from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.safety.records import (
    MAX_DEPTH,
    Count,
    Rule,
    at_most,
    check_record,
    matching,
    one_of,
    read_record,
    within,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Size:
    text: str

    @staticmethod
    def parse(text):
        if "x" not in text:
            raise ConfigurationError(f"a size must look like 3x4: {text!r}")
        return Size(text)


@dataclass(frozen=True)
class Part:
    name: Annotated[str, matching("[a-z]+", "a word")]
    share: Annotated[float, within(0, 1)] = 0.5

    def __post_init__(self):
        if self.name == "none":
            raise ValueError("name is taken")


@dataclass(frozen=True)
class Whole:
    size: Size
    parts: Annotated[tuple[Part, ...], at_most(2)]
    corner: tuple[Count, Count]
    time: datetime = NOON
    kind: Annotated[str, one_of("a", "b")] = "a"
    even: Annotated[int, Rule("even", lambda value: value % 2 == 0)] = 0
    known: bool | None = None
    by_name: Mapping[Annotated[str, at_most(3)], Part] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def make(**changes):
    return {"size": "3x4", "parts": [{"name": "a", "share": 1}], "corner": [1, 2], **changes}


def test_what_fits_is_read_by_its_hints():
    noon = "2026-01-02T13:00:00+01:00"
    notes = {"any": [None, {"thing": float("inf")}]}
    read = read_record(Whole, make(time=noon, by_name={"b": {"name": "b"}}, notes=notes))
    part = Part("a", 1.0)
    assert read == Whole(Size("3x4"), (part,), (1, 2), NOON, by_name={"b": Part("b")}, notes=notes)
    assert type(read.parts[0].share) is float
    check_record(read)
    assert read_record(Whole, {**asdict(read), "size": "3x4"}) == read


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"size": "3"}, "here.size cannot be used: a size must look like 3x4"),
        ({"size": 3}, "here.size must hold names with values: 3"),
        ({"parts": {}}, "here.parts must be a list"),
        ({"parts": [{"name": "a"}] * 3}, "here.parts must be at most 2 long"),
        ({"parts": [{"name": "A"}]}, r"here.parts\[0\].name must be a word: 'A'"),
        ({"parts": [{"name": "none"}]}, r"here.parts\[0\] name is taken"),
        ({"parts": [{"share": 1.0}]}, r"here.parts\[0\].name is missing"),
        ({"parts": [{"name": "a", "share": True}]}, "share must be a number: True"),
        ({"parts": [{"name": "a", "share": float("nan")}]}, "share must be a number: nan"),
        ({"parts": [{"name": "a", "share": 10**400}]}, "share must be a number: 1000"),
        ({"parts": [{"name": "a", "share": 1.5}]}, r"share must be in \[0, 1\]: 1.5"),
        ({"corner": [1]}, "here.corner must have 2 values"),
        ({"corner": [1, 2.0]}, r"here.corner\[1\] must be a whole number: 2.0"),
        ({"corner": [1, 1 << 63]}, r"here.corner\[1\] must be in"),
        ({"time": "2026-01-02T12:00:00"}, "here.time must be a time with a time zone"),
        ({"time": "9999-12-31T23:59:59-23:59"}, "here.time must be a time"),
        ({"time": 3}, "here.time must be a time"),
        ({"kind": "c"}, "here.kind must be one of a, b: 'c'"),
        ({"even": 3}, "here.even must be even: 3"),
        ({"known": 1}, "here.known must be true or false: 1"),
        ({"by_name": []}, "here.by_name must hold names with values"),
        ({"by_name": {"long": {"name": "a"}}}, "here.by_name must be at most 3 long: 'long'"),
        ({"more": 1}, "here.more is none of size, parts"),
        ({"\x1b[2J" * 999: 1}, r"here.\?\[2J\?"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(changes, text):
    with pytest.raises(
        ValueError, match=f"^{text}" if text.startswith("here") else text
    ) as caught:
        read_record(Whole, make(**changes), "here")
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


def test_a_record_made_by_hand_is_checked():
    with pytest.raises(ValueError, match="corner has a value of the wrong type"):
        check_record(Whole(Size("1x1"), (), [1, 2]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="even must be even"):
        check_record(Whole(Size("1x1"), (), (1, 2), even=1))


Number = TypeVar("Number", bound=np.generic)
# As NumPy's NDArray is one from 2.5 on.
Numbers = TypeAliasType("Numbers", NDArray[Number], type_params=(Number,))


@dataclass(frozen=True)
class Aliased:
    numbers: Numbers[np.int64]


def test_an_alias_by_type_is_what_it_stands_for():
    read = read_record(Aliased, {"numbers": [3, 4]})
    np.testing.assert_array_equal(read.numbers, np.array([3, 4]))
    with pytest.raises(ValueError, match="numbers must hold whole numbers only"):
        read_record(Aliased, {"numbers": [0.5]})


@dataclass(frozen=True)
class Noted:
    notes: dict[str, Any]


@pytest.mark.parametrize("nest", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_what_a_hint_allows_is_nested_at_most_so_deep(nest):
    """Campaign of fuzz: copies and texts of deeper ones need more stack than there is."""
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = nest(value)
    assert read_record(Noted, {"notes": {"x": value}}).notes["x"] == value
    with pytest.raises(ValueError, match=r"notes\.x must be nested at most 32 deep"):
        read_record(Noted, {"notes": {"x": nest(value)}})
