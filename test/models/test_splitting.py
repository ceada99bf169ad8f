# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Networks cut into stages: the same outputs, sensible cuts, parts for every back end."""

from __future__ import annotations

import inspect
import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Classifier, calibrate, make_model, make_onnx

from jetson_dnn_rt.backends.registry import create_runner, inspect_backend
from jetson_dnn_rt.errors import ModelError
from jetson_dnn_rt.models.graph import splitting
from jetson_dnn_rt.models.graph.splitting import split
from jetson_dnn_rt.models.graph.tracing import TraceError, trace
from jetson_dnn_rt.models.sources.registry import load_model

SIZE = (32, 48)


class Branches(torch.nn.Module):
    """A value that skips stages, boxes that are there early, and operators that work in place."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.inner = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
            self.boxes = torch.nn.Conv2d(8, 4, 1)
            self.boxes.weight.data *= 8.0  # some leave the first pixel
            self.head = torch.nn.Conv2d(8, 6, 1)
        self.act = torch.nn.ReLU(inplace=True)
        self.register_buffer("offset", torch.linspace(0, 1, 8).reshape(1, 8, 1, 1))

    def forward(self, image):
        skip = self.act(self.norm(self.first(image)))
        x = skip + self.offset
        early = self.boxes(x).flatten(2).transpose(1, 2)
        for layer in self.inner:
            x = self.act(layer(x))
        x = torch.cat((x, skip), 1)[:, :8]
        return early, self.head(x).sigmoid().flatten(2).transpose(1, 2)


class Branching(torch.nn.Module):
    def forward(self, image):
        return image.mean((2, 3)) if image.max() > 0.5 else image.amax((2, 3))


def run_parts(found, parts, backend, image):
    values = {found.image: image}
    for part in parts:
        runner = create_runner(part, backend, "fp32", threads=1)
        given_values = runner.to_host(runner.run([values[name] for name in part.inputs]))
        values |= zip(part.outputs, map(np.copy, given_values), strict=True)
    return [values[name] for name in found.outputs]


def make_image(model):
    return np.random.default_rng(0).random(model.input_shape, np.float32)


@pytest.fixture(scope="module")
def branches():
    return make_model(Branches().eval(), SIZE, tuple("abcdef"))


def assert_same(model, found, backend="torch", atol=0.0, parts=()):
    """Run one after the other, the stages give what the network gives on torch."""
    image = make_image(model)
    runner = create_runner(model, "torch", "fp32", threads=1)
    outputs = run_parts(found, parts or found.parts, backend, image)
    for one, other in zip(outputs, runner.to_host(runner.run([image])), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=atol)
    np.testing.assert_array_equal(image, make_image(model))  # nothing wrote into it


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_stages_give_what_the_network_gives(branches, stages):
    found = split(branches, stages)
    assert len(found) == stages
    assert_same(branches, found)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_stages_on_other_back_ends(branches, backend):
    if not inspect_backend(backend).available:
        pytest.skip(f"{backend} is not installed")
    assert_same(branches, split(branches, 3), backend, 1e-5)


@pytest.mark.parametrize(
    ("source", "size", "stages"),
    [
        ("builtin:detector", None, 8),
        ("builtin:segmenter", None, 8),
        ("torchvision:lraspp_mobilenet_v3_large", (64, 96), 4),
        ("torchvision:ssdlite320_mobilenet_v3_large", (320, 320), 4),
    ],
)
def test_known_networks_bit_for_bit(source, size, stages):
    model = load_model(source, weights="none", input_size=size)
    found = split(model, stages)
    assert len(found) == stages
    assert_same(model, found)


def test_exported_programs_and_onnx_files_can_be_split(tmp_path, branches):
    program = torch.export.export(branches.torch_module(), (torch.zeros(1, 3, *SIZE),))
    torch.export.save(program, tmp_path / "m.pt2")
    (tmp_path / "m.onnx").write_bytes(branches.onnx_model())
    for source in (f"exported:{tmp_path / 'm.pt2'}", f"onnx:{tmp_path / 'm.onnx'}"):
        model = load_model(source, labels=list("abcdef"), head="boxes_scores")
        found = split(model, 3)
        assert len(found) == 3
        assert_same(model, found, atol=1e-5)


def test_what_cannot_be_traced_says_why():
    with pytest.raises(TraceError, match="cannot be traced: TraceError"):
        trace(Branching())


def test_fewer_cuts_than_asked_for(tmp_path):
    model = load_model(f"onnx:{make_onnx(tmp_path / 'm.onnx')}", kind="segmentation")
    assert len(split(model, 8)) == 1  # a single convolution


def test_cuts_keep_fused_layers_together():
    model = make_model(calibrate(Classifier(), SIZE), SIZE)
    found = split(model, 4)
    for cut in found.cuts:
        module = dict(found.graph.named_modules()).get(cut.replace("_", "."))
        assert not isinstance(module, (torch.nn.BatchNorm2d, torch.nn.ReLU))


def test_given_cuts_are_taken_and_wrong_ones_refused(branches):
    found = split(branches, 3)
    again = split(branches, 3, found.cuts)
    assert again.cuts == found.cuts
    assert [part.graph_hash for part in again.parts] == [part.graph_hash for part in found.parts]
    with pytest.raises(ModelError, match="has no node 'nowhere'"):
        split(branches, 2, ["nowhere"])
    with pytest.raises(ModelError, match="not in the order"):
        split(branches, 3, found.cuts[::-1])


def test_hashes_follow_graph_and_weights(branches):
    found = split(branches, 2)
    hashes = {part.graph_hash for part in found.parts}
    other = Branches()
    with torch.no_grad():
        other.head.weight[0, 0] += 1.0
    changed = split(make_model(other.eval(), SIZE, tuple("abcdef")), 2, found.cuts)
    assert len(hashes) == 2
    pairs = zip(found.parts, changed.parts, strict=True)
    assert [a.graph_hash == b.graph_hash for a, b in pairs] == [True, False]


def test_runs_of_stages_are_parts_too(branches):
    found = split(branches, 4)
    assert_same(branches, found, parts=(found.part(0, 3), found.part(3, 1)))
    assert found.part(1, 2).name == "test:network inference-2 to inference-3"


@settings(max_examples=60)
@given(times=st.lists(st.integers(0, 1000), min_size=1, max_size=12), stages=st.integers(1, 6))
def test_the_longest_stage_is_as_short_as_it_can_be(times, stages):
    stages = min(stages, len(times))
    ends = [sum(times[:index]) for index in range(len(times) + 1)]
    cuts = splitting._balance(ends, [0] * len(ends), stages)
    assert cuts == sorted(set(cuts))
    assert len(cuts) == stages - 1
    assert all(0 < cut < len(times) for cut in cuts)

    def longest(bounds):
        return max(ends[b] - ends[a] for a, b in pairwise(bounds))

    best = min(
        longest([0, *chosen, len(times)])
        for chosen in combinations(range(1, len(times)), stages - 1)
    )
    assert longest([0, *cuts, len(times)]) <= best * splitting.IMBALANCE


def test_of_equal_balances_the_one_that_moves_least():
    assert splitting._balance([0, 100, 101, 200], [0, 4000, 8, 0], 2) == [2]


def hash_interpolation():
    import torch

    from jetson_dnn_rt.models.graph import splitting

    graph = torch.fx.Graph()
    image = graph.placeholder("image")
    graph.output(graph.call_function(torch.nn.functional.interpolate, (image, None, 2.0)))
    return splitting._hash_graph(torch.fx.GraphModule({}, graph))


def test_hashes_are_the_same_in_every_process():
    # What is kept on disk is found by them; the text of a function holds its address.
    code = f"{inspect.getsource(hash_interpolation)}print(hash_interpolation(), end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == hash_interpolation()
