# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Whole networks decomposed: same nodes, budgets met, close outputs, and JSON round trips."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch
from torch import nn

from jetson_dnn_rt.errors import ConfigurationError, ModelError
from jetson_dnn_rt.lab.compress.covariance import collect
from jetson_dnn_rt.lab.compress.decomposition import NOT_SMALLER, decompose, list_layers
from jetson_dnn_rt.models.graph.layers import copy_folded
from jetson_dnn_rt.models.graph.tracing import trace
from jetson_dnn_rt.variants.decomposition import (
    Decomposition,
    apply_structure,
    build_structure,
    describe_layer,
)
from jetson_dnn_rt.variants.measuring.macs import count
from jetson_dnn_rt.variants.spec import DecompositionSpec

SHAPE = (1, 3, 24, 24)


class Residual(nn.Module):
    """All kinds of layers: grouped, depthwise, 1x1, shared, strided, dilated, linear."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.wide = nn.Conv2d(32, 48, 3, padding=2, dilation=2)
        self.norm = nn.BatchNorm2d(48)
        self.shared = nn.Conv2d(48, 48, 3, padding=1, padding_mode="reflect")
        self.shared_norm = nn.BatchNorm2d(48)
        self.grouped = nn.Conv2d(48, 96, (3, 5), (1, 2), "valid", groups=2)
        self.depthwise = nn.Conv2d(96, 96, 3, groups=96)
        self.point = nn.Conv2d(96, 64, 1)
        self.head = nn.Linear(64, 40)

    def forward(self, x):
        x = torch.relu(self.norm(self.wide(self.stem(x))))
        x = x + self.shared_norm(self.shared(x))
        x = torch.relu(self.shared(x))
        x = self.point(self.depthwise(self.grouped(x)))
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def graph():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Residual()
        for norm in (net.stem[1], net.norm, net.shared_norm):
            nn.init.uniform_(norm.weight, 0.5, 2.0)
            nn.init.normal_(norm.bias)
            nn.init.normal_(norm.running_mean, 0.0, 0.3)
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return trace(net.eval())


@pytest.fixture(scope="module")
def images():
    """Smooth pictures: their pixels, and so all features, are correlated."""
    generator = torch.Generator().manual_seed(1)
    coarse = [torch.randn(1, 3, 4, 4, generator=generator) for _ in range(24)]
    return [nn.functional.interpolate(image, size=24, mode="bicubic") for image in coarse]


def find(found, name):
    return next(layer for layer in found.layers if layer.name == name)


def run(graph, image):
    with torch.inference_mode():
        return graph(image)


def names(graph):
    return [(node.name, node.target) for node in graph.graph.nodes]


def test_batch_norms_fold_where_they_can(graph, images):
    folded = copy_folded(graph)
    torch.testing.assert_close(run(folded, images[0]), run(graph, images[0]), rtol=1e-4, atol=1e-5)
    assert names(folded) == names(graph)
    assert isinstance(folded.get_submodule("stem.1"), nn.Identity)
    assert isinstance(folded.get_submodule("norm"), nn.Identity)
    # Its convolution is called twice, and one of the calls has no batch norm behind it.
    assert isinstance(folded.get_submodule("shared_norm"), nn.BatchNorm2d)
    assert isinstance(graph.get_submodule("norm"), nn.BatchNorm2d)  # the original stays


class ReadTwice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        x = self.conv(x)
        return x + self.norm(x)


def test_values_and_weights_that_others_read_are_not_changed_by_folding():
    folded = copy_folded(trace(ReadTwice().eval()))
    assert isinstance(folded.get_submodule("norm"), nn.BatchNorm2d)
    norms = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    net = nn.Sequential(nn.Conv2d(3, 3, 1), norms[0], nn.Conv2d(3, 3, 1), norms[1])
    net[2].weight = net[0].weight
    nn.init.constant_(net[1].weight, 3.0)
    graph = trace(net.eval())
    image = torch.randn(1, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(run(copy_folded(graph), image), run(graph, image))


@pytest.mark.parametrize("text", ["tucker-0.50", "tucker-0.35", "svd-0.50", "svd-0.70"])
def test_budget_is_met(graph, text):
    spec = DecompositionSpec.parse(text)
    reduced, found = decompose(graph, SHAPE, spec)
    assert found.macs_before == count(graph, SHAPE).macs
    assert found.macs_after == count(reduced, SHAPE).macs
    # Multiples of 8 in a network so small are coarse; a budget is an upper bound.
    assert spec.value - 0.03 <= found.macs_kept <= spec.value
    assert found.note == ""
    assert all(layer.macs_after <= layer.macs_before for layer in found.layers)
    assert found.parameters_after == sum(p.numel() for p in reduced.parameters())


@pytest.mark.parametrize("value", [0.3, 0.5, 0.8])
def test_budget_of_a_larger_network_is_met_within_half_a_point(value):
    net = nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1) for _ in range(8)))
    spec = DecompositionSpec("tucker", "macs", value)
    _, found = decompose(trace(net.eval()), (1, 64, 8, 8), spec)
    assert value - 0.005 <= found.macs_kept <= value


def test_budget_below_the_smallest_share_is_refused(graph):
    with pytest.raises(ConfigurationError, match=r"smallest share possible is 0\.\d+") as caught:
        decompose(graph, SHAPE, DecompositionSpec.parse("tucker-0.05"))
    least = float(re.findall(r"possible is ([\d.]+)", str(caught.value))[0])
    _, found = decompose(graph, SHAPE, DecompositionSpec("tucker", "macs", least))
    assert least - 1e-4 <= found.macs_kept <= least


def test_nodes_keep_their_names_and_layers_their_reasons(graph, images):
    reduced, found = decompose(graph, SHAPE, DecompositionSpec.parse("tucker-ratio-0.50"))
    assert names(reduced) == names(graph)
    layers = {layer.name: layer for layer in found.layers}
    assert " ".join(layers) == "stem.0 wide shared grouped depthwise point head"
    assert (layers["depthwise"].reason, layers["point"].reason) == ("depthwise", "1x1")
    assert layers["stem.0"].ranks in ((), (3, 16))
    assert layers["wide"].ranks == (16, 24)
    assert layers["grouped"].ranks == (16, 24)  # per group: 24 inputs, 48 outputs, half to even
    assert layers["shared"].kept
    assert layers["shared"].reason == ""
    for layer in layers.values():
        assert layer.kept == (layer.macs_after < layer.macs_before) == (not layer.reason)
        assert not layer.kept or 0.0 < layer.error < 1.0
    assert run(reduced, images[0]).shape == run(graph, images[0]).shape


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(24, 32, 3, padding=1),
        nn.Conv2d(24, 32, (1, 7), stride=(1, 2), padding=(0, 3), bias=False),
        nn.Conv2d(32, 48, 3, dilation=2, groups=2, padding="same"),
        nn.Conv2d(24, 32, 5, padding=2, padding_mode="circular"),
    ],
    ids=["plain", "wide", "grouped", "circular"],
)
def test_exact_at_the_rank_of_the_weights(conv):
    """A convolution of known ranks, decomposed into them, computes the same."""
    conv = copy.deepcopy(conv).eval()
    groups = conv.groups
    inputs, outputs = conv.in_channels // groups, conv.out_channels // groups
    generator = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(groups, outputs, 8, generator=generator),
        torch.randn(groups, 8, 8, *conv.kernel_size, generator=generator),
        torch.randn(groups, 8, inputs, generator=generator),
    ]
    with torch.no_grad():
        weight = torch.einsum("gop,gprhw,gri->goihw", *parts).flatten(0, 1)
        conv.weight.copy_(weight / weight.std())
    graph = trace(nn.Sequential(conv))
    shape = (1, conv.in_channels, 12, 12)
    reduced, found = decompose(graph, shape, DecompositionSpec("tucker", "energy", 1.0))
    assert found.layers[0].ranks == (8, 8)
    image = torch.randn(shape, generator=generator)
    torch.testing.assert_close(run(reduced, image), run(graph, image), rtol=1e-4, atol=1e-4)
    first, middle, last = reduced.get_submodule("0")
    assert (middle.stride, middle.dilation) == (conv.stride, conv.dilation)
    assert {first.groups, middle.groups, last.groups} == {groups}
    if groups == 1 and conv.stride == (1, 1):
        taps = conv.kernel_size[0] * conv.kernel_size[1]
        macs = 12 * 12 * (taps * 8 * 8 + conv.in_channels * 8 + 8 * conv.out_channels)
        assert found.macs_after == count(reduced, shape).macs == macs


def test_known_inputs_bring_the_outputs_nearer(graph, images):
    spec = DecompositionSpec.parse("tucker-ratio-0.33")
    covariances = collect(graph, list_layers(graph, spec.method), images[:16])
    plain, _ = decompose(graph, SHAPE, spec)
    aware, found = decompose(graph, SHAPE, spec, covariances=covariances)
    assert {layer.metric for layer in found.layers if layer.ranks} == {"output"}

    def measure(reduced):
        pairs = [(run(reduced, image), run(graph, image)) for image in images[16:]]
        expected = torch.cat([full for _, full in pairs])
        lost = torch.cat([near for near, _ in pairs]) - expected
        return float(lost.square().sum() / (expected - expected.mean(0)).square().sum())

    assert measure(aware) < 0.2 * measure(plain)


def test_mean_of_the_output_is_kept(graph, images):
    spec = DecompositionSpec.parse("tucker-ratio-0.25")
    covariances = collect(graph, list_layers(graph, spec.method), images)
    reduced, _ = decompose(graph, SHAPE, spec, covariances=covariances)
    layer = "stem.0"
    image = torch.cat(images)
    before = copy_folded(graph).get_submodule(layer)(image)
    after = reduced.get_submodule(layer)(image)
    torch.testing.assert_close(after.mean((0, 2, 3)), before.mean((0, 2, 3)), atol=2e-3, rtol=0)


@pytest.mark.parametrize("kind", ["patch", "channel"])
@pytest.mark.parametrize("text", ["tucker-ratio-0.50", "svd-ratio-0.25"])
def test_error_of_a_layer_is_that_of_its_output(
    graph, images, kind, text,
    monkeypatch,
):  # fmt: skip
    from jetson_dnn_rt.lab.compress import covariance

    if kind == "channel":
        monkeypatch.setattr(covariance, "MAX_PATCH", 0)
    monkeypatch.setattr(covariance, "_POSITIONS", 10_000)
    spec = DecompositionSpec.parse(text)
    covariances = collect(graph, list_layers(graph, spec.method), images)
    assert {found.kind for found in covariances.values()} == {kind}
    reduced, found = decompose(graph, SHAPE, spec, covariances=covariances)
    layer = find(found, "grouped")
    assert layer.kept
    folded = copy_folded(graph)
    inputs: list[torch.Tensor] = []
    module = folded.get_submodule("grouped")
    handle = module.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for image in images:
        run(folded, image)
    handle.remove()
    before = module(torch.cat(inputs)).detach()
    after = reduced.get_submodule("grouped")(torch.cat(inputs)).detach()
    spread = (before - before.mean((0, 2, 3), keepdim=True)).square().sum()
    lost = float(((after - before).square().sum() / spread).sqrt())
    if kind == "patch":
        assert lost == pytest.approx(layer.error, rel=0.15, abs=0.01)
    else:  # taps are correlated, which covariances of channels do not know
        assert lost < 3.0 * layer.error + 0.05


def test_sensitive_layers_are_spared(graph):
    spec = DecompositionSpec.parse("tucker-0.50")
    _, even = decompose(graph, SHAPE, spec, covariances={})
    assert {layer.metric for layer in even.layers} == {"weight"}
    worth = dict.fromkeys(list_layers(graph, "tucker"), 1.0) | {"shared": 1e4}
    _, spared = decompose(graph, SHAPE, spec, sensitivities=worth)
    assert find(spared, "shared").error < 0.9 * find(even, "shared").error
    assert spared.macs_kept <= 0.5
    with pytest.raises(ValueError, match="sensitivities"):
        decompose(graph, SHAPE, spec, sensitivities={"shared": float("nan")})


@pytest.mark.parametrize("rule", ["ratio-0.50", "energy-0.80", "evbmf-0.80", "0.60"])
@pytest.mark.parametrize("method", ["tucker", "svd"])
def test_every_rule_survives_json(graph, images, method, rule):
    reduced, found = decompose(graph, SHAPE, DecompositionSpec.parse(f"{method}-{rule}"))
    assert any(layer.kept for layer in found.layers)
    read = Decomposition.from_json(json.loads(json.dumps(found.to_json())))
    assert read == found
    empty = apply_structure(graph, read)
    assert names(empty) == names(graph)
    empty.load_state_dict(reduced.state_dict())
    assert torch.equal(run(empty, images[0]), run(reduced, images[0]))


def test_layers_of_an_energy_of_one_stay_when_that_is_not_smaller(graph):
    reduced, found = decompose(graph, SHAPE, DecompositionSpec.parse("tucker-energy-1.00"))
    assert find(found, "wide").reason == NOT_SMALLER
    assert isinstance(reduced.get_submodule("wide"), nn.Conv2d)


def test_refused_layers_stay_and_the_budget_goes_elsewhere(graph):
    asked: list[tuple[str, tuple[int, ...]]] = []

    def refuse(name, before, after, shape):
        with torch.inference_mode():
            image = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            assert before(image).shape == after(image).shape
        asked.append((name, shape))
        return name != slow, "not faster: 2 ms against 1"

    spec = DecompositionSpec.parse("tucker-0.60")
    _, free = decompose(graph, SHAPE, spec)
    slow = min(
        (layer for layer in free.layers if layer.kept and layer.name != "shared"),
        key=lambda layer: layer.macs_before,
    ).name
    reduced, found = decompose(graph, SHAPE, spec, keep_if=refuse)
    layer = find(found, slow)
    assert (layer.kept, layer.reason) == (False, "not faster: 2 ms against 1")
    assert layer.ranks
    assert layer.error > 0.0
    assert not isinstance(reduced.get_submodule(slow), nn.Sequential)
    assert found.macs_kept <= 0.6
    assert found.note == ""
    others = [sum(x.macs_after for x in d.layers if x.name != slow) for d in (free, found)]
    assert others[1] < others[0]
    assert len(asked) > len({name for name, _ in asked})  # asked again with other ranks
    assert dict(asked)["shared"] == (1, 48, 12, 12)


def test_a_budget_out_of_reach_is_noted(graph):
    spec = DecompositionSpec.parse("tucker-0.40")
    reduced, found = decompose(
        graph, SHAPE, spec, keep_if=lambda name, *_: (name == "grouped", "not faster")
    )
    assert [layer.name for layer in found.layers if layer.kept] == ["grouped"]
    assert found.macs_kept > 0.4
    assert found.macs_after == count(reduced, SHAPE).macs
    assert "budget 0.40 not reached" in found.note
    assert f"{found.macs_kept:.4f}" in found.note


def test_progress_and_no_other_side_effects(graph):
    seen: list[tuple[str, int, int]] = []
    state = {name: value.clone() for name, value in graph.state_dict().items()}
    before = torch.random.get_rng_state()
    decompose(
        graph,
        SHAPE,
        DecompositionSpec.parse("tucker-ratio-0.50"),
        keep_if=lambda *_: (True, ""),
        progress=lambda *values: seen.append(values),
    )
    phases = {phase: (done, total) for phase, done, total in seen}
    assert list(phases) == ["analyse", "measure", "factorise"]
    assert all(done == total > 0 for done, total in phases.values())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(state[name], value) for name, value in graph.state_dict().items())


def _layer(**changes):
    layer = {
        "name": "wide", "kind": "conv", "ranks": [8, 8], "macs_before": 9, "macs_after": 3,
        "error": 0.1, "metric": "weight", "kept": True, "reason": "",
    }  # fmt: skip
    return {**layer, **changes}


def _whole(*layers, **changes):
    whole = {
        "spec": "tucker-0.50", "layers": list(layers), "macs_before": 9, "macs_after": 3,
        "parameters_before": 5, "parameters_after": 4, "note": "",
    }  # fmt: skip
    return {**whole, **changes}


@pytest.mark.parametrize(
    "data",
    [
        None, [], "text", {}, _whole(extra=1), _whole(spec="full"), _whole(spec=3),
        _whole(layers=3), _whole("text"), _whole(macs_before=-1), _whole(macs_after=1.5),
        _whole(parameters_after=True), _whole(note=None), _whole(_layer(), _layer()),
        _whole(_layer(name=3)), _whole(_layer(kind="pool")), _whole(_layer(ranks=[0, 8])),
        _whole(_layer(ranks=[8])), _whole(_layer(ranks=[])), _whole(_layer(ranks=[8, 8.5])),
        _whole(_layer(ranks="ab")), _whole(_layer(error=float("nan"))), _whole(_layer(error=-1)),
        _whole(_layer(error="0")), _whole(_layer(kept=1)), _whole(_layer(metric="x")),
        _whole({k: v for k, v in _layer().items() if k != "reason"}),
    ],
)  # fmt: skip
def test_nonsense_is_no_decomposition(data):
    assert Decomposition.from_json(_whole(_layer())).layers[0].ranks == (8, 8)
    with pytest.raises(ModelError):
        Decomposition.from_json(data)


def test_structure_of_another_network_is_refused(graph):
    with pytest.raises(ModelError, match="another network"):
        apply_structure(graph, Decomposition.from_json(_whole(_layer())))
    _, found = decompose(graph, SHAPE, DecompositionSpec.parse("tucker-ratio-0.50"))
    data = found.to_json()
    next(layer for layer in data["layers"] if layer["name"] == "wide")["ranks"] = [64, 64]
    with pytest.raises(ModelError, match="do not fit"):
        apply_structure(graph, Decomposition.from_json(data))


def test_other_modules_and_ranks_are_refused():
    for ranks in ((5,), (2, 2)):
        with pytest.raises(ModelError, match="do not fit"):
            build_structure(nn.Linear(4, 4), ranks)
    with pytest.raises(TypeError, match="ReLU"):
        describe_layer(nn.ReLU(), "tucker")
