# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network layer by layer: the same bits, a time for each layer, and what has none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from networks import skip_on_gpu  # noqa: E402

from jetson_dnn_rt.backends.base import as_host  # noqa: E402
from jetson_dnn_rt.backends.torch import TorchRunner, supports_bf16  # noqa: E402
from jetson_dnn_rt.clock import SteadyClock, VirtualClock  # noqa: E402
from jetson_dnn_rt.config.task import TaskConfig  # noqa: E402
from jetson_dnn_rt.errors import ConfigurationError, ModelError  # noqa: E402
from jetson_dnn_rt.frames import Frame  # noqa: E402
from jetson_dnn_rt.lab.profile.layer_chain import COPY_IN, LayerChain, make_layer_chain, run_layers  # noqa: E402
from jetson_dnn_rt.models.graph.splitting import split  # noqa: E402
from jetson_dnn_rt.models.sources.registry import load_model  # noqa: E402
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS  # noqa: E402
from jetson_dnn_rt.variants.running.variant_set import VariantSet  # noqa: E402

NAME = "full@torch-fp32"
SIZE = (240, 320)


@pytest.fixture(scope="module")
def variants():
    found = VariantSet(
        TaskConfig(variants=(NAME,)), load_model("builtin:detector"), clock=SteadyClock()
    )
    yield found
    found.close()


def make_image(seed):
    return np.random.default_rng(seed).random((1, 3, *SIZE), np.float32)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_network_is_the_same_bit_for_bit(variants, precision):
    if precision == "bf16" and not supports_bf16():
        pytest.skip("this CPU has no bf16 instructions")
    graph, clock = variants.graph(NAME), SteadyClock()
    chain = LayerChain(graph, SIZE, precision, threads=1, clock=clock, device="cpu")
    runner = TorchRunner(split(variants.model, 1).part(0), precision, 1)
    for seed in range(2):
        image = make_image(seed)
        outputs, stamps_ns = chain.run(image)
        for one, other in zip(outputs, runner.run([image]), strict=True):
            np.testing.assert_array_equal(one, as_host(other))
        assert len(stamps_ns) == len(chain.layers) + 1
        assert all(a <= b for a, b in itertools.pairwise(stamps_ns))
    runner.close()


def test_layers_have_names_of_their_own_and_what_is_fused_with_them(variants):
    skip_on_gpu("there normalisations are folded into the convolutions")
    chain = make_layer_chain(variants, NAME, threads=1, clock=SteadyClock())
    names = [layer.name for layer in chain.layers]
    assert len(set(names)) == len(names) > 20
    operators = [layer.operators for layer in chain.layers]
    # No normalisation, no activation stands alone behind its convolution.
    assert "Conv2d + BatchNorm2d + ReLU" in operators
    assert not {"BatchNorm2d", "ReLU", "BatchNorm2d + ReLU"} & set(operators)


def test_each_layer_has_the_time_that_passed_in_it():
    """Layers that set the clock on by a known time."""
    clock = VirtualClock()

    class Slow(torch.nn.Module):
        fx_leaf = True

        def __init__(self, step_ns):
            super().__init__()
            self.step_ns = step_ns

        def __deepcopy__(self, memo):
            return Slow(self.step_ns)

        def forward(self, value):
            clock.run_until(clock.now_ns() + self.step_ns)
            return value + 1.0

    from jetson_dnn_rt.models.graph.tracing import trace

    graph = trace(torch.nn.Sequential(Slow(500), Slow(30), Slow(7)))
    chain = LayerChain(graph, SIZE, "fp32", threads=1, clock=clock, device="cpu")
    begin_ns = clock.now_ns()
    image = make_image(0)
    (output,), stamps_ns = chain.run(image)
    assert [stamp - begin_ns for stamp in stamps_ns] == [0, 500, 530, 537]
    np.testing.assert_array_equal(output, image + np.float32(1) + np.float32(1) + np.float32(1))


def test_frames_go_from_pixels_to_boxes(variants):
    chain = make_layer_chain(variants, NAME, threads=1, clock=SteadyClock())
    frames = [Frame(np.full((48, 64, 3), 80 * i, np.uint8), "bgr8", 5 * i, i) for i in range(2)]
    runs = run_layers(chain, variants, frames, 3, SteadyClock())
    assert [run.cold for run in runs] == [True] * DISCARDED_RUNS + [False] * 3
    assert [run.sequence for run in runs] == [0, 1, 0, 1, 0, 1]
    assert all(len(run.times_ns) == len(chain.layers) + 2 for run in runs)
    assert all(time_ns >= 0 for run in runs for time_ns in run.times_ns)


def test_a_back_end_that_fuses_layers_has_no_times_of_them():
    null = VariantSet(TaskConfig(variants=("full@null",)), load_model("null:1"))
    with pytest.raises(ConfigurationError, match="null fuses layers"):
        make_layer_chain(null, "full@null", threads=1, clock=SteadyClock())
    with pytest.raises(ModelError, match="null:1 has no layers"):
        null.graph("full@null")
    null.close()


@pytest.mark.gpu
def test_on_a_gpu_layers_are_timed_by_events(variants):
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    graph, clock = variants.graph(NAME), SteadyClock()
    expected, _ = LayerChain(graph, SIZE, "fp32", threads=1, clock=clock, device="cpu").run(
        make_image(1)
    )
    chain = LayerChain(graph, SIZE, "fp32", threads=1, clock=clock, device="cuda")
    assert chain.layers[0].name == COPY_IN
    outputs, stamps_ns = chain.run(make_image(1))
    for one, other in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert len(stamps_ns) == len(chain.layers) + 1
    assert all(a <= b for a, b in itertools.pairwise(stamps_ns))
