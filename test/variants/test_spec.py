"""Names of variants."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_dnn_rt.backends.registry import BACKENDS, PRECISIONS
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.spec import VariantSpec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("full@torch-fp32", VariantSpec("full", "torch", "fp32")),
        ("full@openvino-bf16", VariantSpec("full", "openvino", "bf16")),
        ("full@null", VariantSpec("full", "null", "fp32")),
        ("tucker-0.50@torch-fp32", VariantSpec("tucker-0.50", "torch", "fp32")),
        ("full@tensorrt-fp16", VariantSpec("full", "tensorrt", "fp16")),
    ],
)
def test_names_of_the_design(text: str, spec: VariantSpec) -> None:
    assert VariantSpec.parse(text) == spec
    assert str(spec) == text


@settings(deadline=None)
@given(
    decomposition=st.one_of(
        st.just("full"), st.integers(0, 100).map(lambda percent: f"tucker-{percent / 100:.2f}")
    ),
    backend=st.sampled_from([backend for backend in BACKENDS if backend != "null"]),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_is_written_can_be_read(decomposition: str, backend: str, precision: str) -> None:
    spec = VariantSpec(decomposition, backend, precision)
    assert VariantSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must look like"),
        ("full", "must look like"),
        ("full@", "must look like"),
        ("@torch", "decomposition must be"),
        ("half@torch-fp32", "decomposition must be"),
        ("tucker-0.5@torch-fp32", "decomposition must be"),
        ("tucker-1.50@torch-fp32", "decomposition must be"),
        ("full@caffe-fp32", "back end must be one of"),
        ("full@torch-fp64", "precision must be one of"),
        ("full@torch-", "precision must be one of"),
        ("full@torch-fp32-fast", "precision must be one of"),
        ("full@torch fp32", "back end must be one of"),
    ],
)
def test_what_is_no_name_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        VariantSpec.parse(text)
