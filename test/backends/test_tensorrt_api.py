# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The fake's names and signatures against the protocols, and against the real TensorRT."""

from __future__ import annotations

import enum
import inspect
import re

import pytest
from fake_tensorrt import make_tensorrt
from onnx_parts import make_classifier

from jetson_dnn_rt.backends.cuda.owners import open_cuda
from jetson_dnn_rt.backends.tensorrt import api
from jetson_dnn_rt.backends.tensorrt.build import build_engine
from jetson_dnn_rt.errors import BackendUnavailableError


def import_real():
    try:
        return api.import_tensorrt()
    except BackendUnavailableError as error:
        pytest.skip(str(error))


def test_the_real_one_complains_where_it_has_no_device():
    """Its constructors, and the logger that it accepts."""
    import_real()
    try:
        open_cuda().close()
    except BackendUnavailableError:
        pass
    else:
        pytest.skip("there is a device")
    with pytest.raises(BackendUnavailableError, match=r"CUDA initialization failure.*driver"):
        build_engine(make_classifier(), "fp16")


def public(kind):
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def test_the_fake_is_like_the_real_one():
    """Everything the fake has, the real module of that version has, with the same parameters."""
    real = import_real()
    fake = make_tensorrt(real.__version__)
    compared = 0
    for name, kind in vars(fake).items():
        if isinstance(kind, enum.EnumMeta):
            assert set(kind.__members__) <= set(getattr(real, name).__members__), name
        elif isinstance(kind, type):
            compared += compare_class(kind, getattr(real, name))
    severities = set(fake.ILogger.Severity.__members__)
    assert severities == set(real.ILogger.Severity.__members__)
    assert compared > 25
    for name in ("default_device_type", "DLA_core"):
        assert hasattr(real.IBuilderConfig, name)
    assert hasattr(real.Runtime, "DLA_core")


def compare_class(fake, real):
    compared = 0
    for name, member in public(fake).items():
        assert hasattr(real, name), f"{fake.__name__}.{name}"
        other = getattr(real, name)
        if isinstance(member, property):
            assert not callable(other), f"{fake.__name__}.{name} is a method"
        elif inspect.isfunction(member):
            compare_signature(member, other, f"{fake.__name__}.{name}")
            compared += 1
    if "__init__" in vars(fake) and "logger" in inspect.signature(fake).parameters:
        first = list(inspect.signature(fake).parameters)
        if fake.__name__ in ("Builder", "Runtime", "OnnxParser"):
            overloads = read_parameters(real.__init__.__doc__, "__init__")
            assert first in [names[1:] for names in overloads], (fake.__name__, overloads)
            compared += 1
    return compared


def compare_signature(fake, real, name):
    parameters = list(inspect.signature(fake).parameters)
    overloads = read_parameters(real.__doc__, real.__name__)
    assert overloads, f"{name} says nothing of its parameters: {real.__doc__!r}"
    assert parameters in overloads, f"{name}: {parameters}, not {overloads}"


def read_parameters(text, name):
    """Names of the parameters as pybind11 writes them at the beginning of a docstring."""
    found = re.findall(rf"^(?:\d+\. )?{name}\((.*)\) ->", text or "", re.MULTILINE)
    found = [line for line in found if not line.startswith("*args")]
    # Types may hold commas: `List[int, int]`.
    plain = [re.sub(r"\[[^\]]*\]", "", line) for line in found]
    return [[part.split(":")[0].strip() for part in line.split(",")] for line in plain]


def test_the_reader_of_signatures():
    text = "parse(self: tensorrt.OnnxParser, model: buffer, path: str = None) -> bool\n\nmore"
    assert read_parameters(text, "parse") == [["self", "model", "path"]]
    text = "f(*args, **kwargs)\nOverloaded function.\n\n1. f(self: X, a: Tuple[int, int]) -> None"
    assert read_parameters(text, "f") == [["self", "a"]]
