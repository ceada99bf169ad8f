# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Names of variants."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_dnn_rt.backends.registry import BACKENDS, PRECISIONS
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.variants.library.entry import EntryKey
from jetson_dnn_rt.variants.spec import FULL, METHODS, RULES, DecompositionSpec, VariantSpec

ROOT = Path(__file__).resolve().parents[2]


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
def test_names_of_the_design(text, spec):
    assert VariantSpec.parse(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize("name", [*BACKENDS, *PRECISIONS, *METHODS, *RULES[1:], FULL])
def test_one_table_has_every_name(name):
    text = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8")
    table = text[text.index("## Names") : text.index("## Stages and boundaries")]
    assert f"`{name}" in table
    if name in BACKENDS:  # a row of its own, or of two alike
        assert any(line.startswith("| `") and f"`{name}`" in line for line in table.splitlines())


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("int8", "full@openvino-int8"),
        ("fp16", "full@torch-fp16"),
        ("torch", "full@torch-fp32"),
        ("tensorrt-fp16", "full@tensorrt-fp16"),
        ("tucker-0.50", "tucker-0.50@openvino-fp32"),
    ],
)
def test_a_part_of_a_name_is_completed(text, whole):
    with pytest.raises(ConfigurationError, match=f"did you mean {whole}\\?"):
        VariantSpec.parse(text)


@given(
    decomposition=st.one_of(
        st.just("full"),
        st.builds(
            "{}-{}{:.2f}".format,
            st.sampled_from(["tucker", "svd"]),
            st.sampled_from(["", "ratio-", "energy-", "evbmf-"]),
            st.integers(1, 100).map(lambda percent: percent / 100),
        ),
    ),
    backend=st.sampled_from([backend for backend in BACKENDS if backend != "null"]),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_is_written_can_be_read(decomposition, backend, precision):
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
        ("tucker-0.00@torch-fp32", r"macs must be in \(0, 1\]"),
        ("tucker-rank-0.50@torch-fp32", "decomposition must be"),
        ("full@caffe-fp32", "back end must be one of"),
        ("full@torch-fp64", "precision must be one of"),
        ("full@torch-", "precision must be one of"),
        ("full@torch-fp32-fast", "precision must be one of"),
        ("full@torch fp32", "back end must be one of"),
    ],
)
def test_what_is_no_name_is_refused(text, words):
    with pytest.raises(ConfigurationError, match=words):
        VariantSpec.parse(text)


def test_ranks_of_the_command_line():
    assert DecompositionSpec.parse_ranks("tucker", "macs:0.5") == DecompositionSpec.parse(
        "tucker-0.50"
    )
    assert str(DecompositionSpec.parse_ranks("svd", "energy:0.95")) == "svd-energy-0.95"
    for method, ranks, words in (
        ("cp", "macs:0.5", "method must be one of tucker, svd"),
        ("tucker", "rank:0.5", "ranks must be one of macs"),
        ("tucker", "macs", "must look like macs:0.5"),
        ("tucker", "macs:half", "must look like macs:0.5"),
        ("tucker", "macs:1.5", r"in \(0, 1\]"),
        ("tucker", "macs:1e-7", "0.000001 at least: 1e-07"),
        ("tucker", "macs:nan", r"in \(0, 1\]"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            DecompositionSpec.parse_ranks(method, ranks)


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ("macs:0.5", "tucker-0.50"),
        ("macs:.930", "tucker-0.93"),
        ("macs:1", "tucker-1.00"),
        ("macs:0.935", "tucker-0.935"),
        ("evbmf:1e-6", "tucker-evbmf-0.000001"),
        ("ratio:0.3333333333333333", "tucker-ratio-0.3333333333333333"),
    ],
)
def test_a_name_has_all_digits_of_its_value_and_reads_as_the_same(ranks, name):
    spec = DecompositionSpec.parse_ranks("tucker", ranks)
    assert str(spec) == name
    assert DecompositionSpec.parse(name) == spec
    variant = f"{name}@openvino-fp32"
    assert str(VariantSpec.parse(variant)) == variant
    key = EntryKey("0" * 64, "0" * 64, VariantSpec.parse(variant).decomposition, "weights")
    assert key.variant == name


def test_zeros_at_the_end_of_a_name_make_no_other_variant():
    spec = VariantSpec.parse("tucker-0.500@openvino-fp32")
    assert spec == VariantSpec.parse("tucker-0.50@openvino")
    assert str(spec) == "tucker-0.50@openvino-fp32"
