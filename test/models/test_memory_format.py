"""Weights with their channels last, beside constants of other shapes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from jetson_dnn_rt.models.graph.layers import to_channels_last  # noqa: E402


def test_only_what_has_four_dimensions_is_laid_out_anew() -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.Linear(5, 7))
    module.register_buffer("anchors", torch.rand(1, 3, 4, 4, 2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert to_channels_last(module) is module
    assert module[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not module[0].weight.is_contiguous()
    assert module.anchors.is_contiguous()
    assert module[1].weight.is_contiguous()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_network_computes_the_same() -> None:
    module = torch.nn.Conv2d(3, 8, 3, padding=1).eval()
    image = torch.rand(1, 3, 16, 16)
    with torch.inference_mode():
        expected = module(image)
        torch.testing.assert_close(to_channels_last(module)(image), expected)
