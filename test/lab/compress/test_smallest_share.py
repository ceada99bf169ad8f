# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Budgets that a network's layers cannot reach, and what is said about them."""

from __future__ import annotations

import pytest
from torch import nn

from jetson_dnn_rt.backends.base import BackendInfo
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.lab.compress import smallest_share
from jetson_dnn_rt.lab.compress.smallest_share import require_share
from jetson_dnn_rt.models.graph.tracing import trace
from jetson_dnn_rt.variants.measuring.macs import count
from jetson_dnn_rt.variants.spec import DecompositionSpec

SHAPE = (1, 3, 16, 16)
SEPARABLE = (
    *(nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1, groups=64)),
    *(nn.Conv2d(64, 128, 1), nn.Conv2d(128, 128, 1)),
)
PLAIN = (nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1))


@pytest.fixture(autouse=True)
def backends(monkeypatch):
    found = [
        BackendInfo("a", "1", False, ("fp32", "int8")),
        BackendInfo("b", "1", True, ("fp32",)),
        BackendInfo("openvino", "1", True, ("fp32", "int8")),
    ]
    monkeypatch.setattr(smallest_share, "list_backends", lambda: found)
    return found


def refuse(layers, text):
    graph = trace(nn.Sequential(*layers).eval())
    with pytest.raises(ConfigurationError) as caught:
        require_share(graph, count(graph, SHAPE), DecompositionSpec.parse(text))
    return str(caught.value)


def test_layers_that_cannot_be_decomposed_are_counted_and_other_ways_named():
    text = refuse(SEPARABLE, "tucker-0.50")
    macs = [27 * 64, 9 * 64, 64 * 128, 128 * 128]
    # Of the first layer 8 of 64 output channels.
    least = (27 * 8 + 8 * 64 + sum(macs[1:])) / sum(macs)
    one = 100 * (macs[2] + macs[3]) / sum(macs)
    share = 100 * macs[1] / sum(macs)
    assert text.startswith(
        "tucker-0.50: cannot keep 0.50 of the multiply-accumulates: the smallest share possible "
        f"is {least + 5e-5:.4f} (tucker cannot decompose 2 1x1 layers ({one:.1f}%) and 1 "
        f"depthwise layer ({share:.1f}%) of the multiply-accumulates). Instead: "
    )
    svd = (27 * 8 + 8 * 64 + macs[1] + 8 * (64 + 128) + 8 * (128 + 128)) / sum(macs)
    assert f"--method svd, which goes down to {svd + 5e-5:.4f}; " in text
    assert "--ranks" not in text  # it would save next to nothing
    assert text.endswith(
        "an INT8 variant, full@openvino-int8 (jetson-dnn-rt build); a smaller network"
    )


def test_ways_that_gain_nothing_are_not_named(backends):
    backends.clear()
    text = refuse(PLAIN, "tucker-0.01")
    least = text.split("possible is ")[1][:6]
    assert f"{least}. Instead: --ranks macs:{float(least) + 0.005:.2f}; a smaller network" in text
    assert "svd" not in text


@pytest.mark.parametrize("text", ["tucker-1.00", "svd-0.50", "tucker-energy-0.10", "tucker-0.99"])
def test_what_is_possible_is_not_refused(text):
    graph = trace(nn.Sequential(*SEPARABLE).eval())
    require_share(graph, count(graph, SHAPE), DecompositionSpec.parse(text))
