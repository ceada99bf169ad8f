# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A network run layer by layer on torch, with a time stamp between any two of them.

A layer is a part that cannot be cut: a convolution with the normalisation and the activation
that follow it, an addition, a pooling. On the CPU the stamps are the steady clock's, on a CUDA
device events on the stream, so that nothing waits between two layers; no profiler is attached. The
network computes the same as in one piece, but CUDA kernels are queued one by one here, where a
variant launches one graph: the sum of the layers is the time of the work, with gaps where the
queue runs dry, and not that of the variant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from jetson_dnn_rt.backends.base import HostArrays
from jetson_dnn_rt.backends.torch import choose_device
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.errors import ConfigurationError
from jetson_dnn_rt.frames import Frame
from jetson_dnn_rt.models.graph.layers import copy_folded, to_channels_last
from jetson_dnn_rt.models.graph.splitting import Split, find_layers
from jetson_dnn_rt.models.heads.base import DecoderSettings
from jetson_dnn_rt.tasks import Work
from jetson_dnn_rt.variants.measuring.timing import DISCARDED_RUNS, TimedRun
from jetson_dnn_rt.variants.running.frame_processor import OUTPUTS, FrameProcessor
from jetson_dnn_rt.variants.running.variant_set import VariantSet

COPY_IN = "host_to_device"  # the layer before the first on a CUDA device

_SHORT = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_WEIGHTY = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)


class ChainLayer(NamedTuple):
    """A layer of a network."""

    name: str  # of its first node, unique in the network
    operators: str  # ``Conv2d + BatchNorm2d + ReLU``


@dataclass(frozen=True, eq=False)
class _Link:
    """A layer with its input and output values."""

    layer: ChainLayer
    forward: Callable[..., tuple[torch.Tensor, ...]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dead: frozenset[str]  # inputs that no later layer reads


class LayerChain:
    """A network as the chain of its layers.

    `precision` is ``fp32``, ``bf16`` (CPU) or ``fp16`` (CUDA), as in
    `jetson_dnn_rt.backends.torch`; `threads`, of one run on the CPU, is a setting of the whole
    process; `device` is ``cpu`` or ``cuda``, by default where torch runs here. On a CUDA device
    the first of the `layers` is the copy of the input.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        size: tuple[int, int],
        precision: str,
        *,
        threads: int,
        clock: Clock,
        device: str = "",
    ) -> None:
        self._device = device or choose_device()
        self._clock = clock
        self._short = _SHORT[precision]
        if self._device == "cpu" and torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        cuts = find_layers(graph, size)
        # As in the runners: on the CPU norms are not folded.
        own = copy_folded(graph) if self._device == "cuda" else graph
        self._links = _link(Split("layers", own, size, cuts), self._prepare)
        whole = Split("layers", graph, size, ())
        self._image, self._outputs = whole.image, whole.outputs
        layers = [link.layer for link in self._links]
        if self._device == "cuda":
            self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._events: list[Any] = [
                torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                for _ in range(len(layers) + 2)
            ]
            layers.insert(0, ChainLayer(COPY_IN, "copy"))
        self.layers = tuple(layers)

    def _prepare(self, module: fx.GraphModule) -> fx.GraphModule:
        module = module.requires_grad_(False).to(self._device)
        if self._short is not None:
            for layer in module.modules():
                if isinstance(layer, _WEIGHTY):
                    layer.to(self._short)
        return to_channels_last(module)

    def run(self, image: npt.NDArray[np.float32]) -> tuple[HostArrays, tuple[int, ...]]:
        """Run all layers on a float32 image [1, 3, H, W]; all arrays are on the host.

        Also returns steady times in nanoseconds: before the first layer, and after each.
        """
        precision: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if self._short is not None:
            precision = torch.autocast(self._device, self._short, cache_enabled=False)
        with torch.inference_mode(), precision:
            run = self._run_cuda if self._device == "cuda" else self._run_cpu
            values, stamps_ns = run(torch.from_numpy(image))
            found = [values[name] for name in self._outputs]
            found = [v.float() if v.is_floating_point() else v for v in found]
            return tuple(value.cpu().numpy() for value in found), stamps_ns

    def _run_cpu(self, image: torch.Tensor) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        values = {self._image: image}
        now_ns = self._clock.now_ns
        stamps_ns = [now_ns()]
        for link in self._links:
            _run_link(link, values)
            stamps_ns.append(now_ns())
        return values, tuple(stamps_ns)

    def _run_cuda(self, image: torch.Tensor) -> tuple[dict[str, torch.Tensor], tuple[int, ...]]:
        events = self._events
        cudnn: Any = torch.backends.cudnn
        begin_ns = self._clock.now_ns()
        with torch.cuda.stream(self._stream), cudnn.flags(True, True, allow_tf32=False):
            events[0].record()
            on_device = image.to("cuda", non_blocking=True, memory_format=torch.channels_last)
            values = {self._image: on_device}
            events[1].record()
            for link, event in zip(self._links, events[2:], strict=True):
                _run_link(link, values)
                event.record()
        events[-1].synchronize()
        # Milliseconds since the first event, to half a microsecond.
        return values, tuple(begin_ns + round(1e6 * events[0].elapsed_time(e)) for e in events)


def _run_link(link: _Link, values: dict[str, torch.Tensor]) -> None:
    dead = link.dead
    taken = [values.pop(n) if n in dead else values[n] for n in link.inputs]
    values.update(zip(link.outputs, link.forward(*taken), strict=True))


def _link(split: Split, prepare: Callable[[fx.GraphModule], fx.GraphModule]) -> list[_Link]:
    parts = split.parts
    links = []
    for index, part in enumerate(parts):
        later = {name for other in parts[index + 1 :] for name in other.inputs}
        dead = frozenset(part.inputs) - later - set(split.outputs)
        module = prepare(part.torch_module())  # type: ignore[arg-type]
        links.append(_Link(_describe(module), module.forward, part.inputs, part.outputs, dead))
    return links


def _describe(module: fx.GraphModule) -> ChainLayer:
    modules = dict(module.named_modules())
    names, first = [], ""
    for node in module.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        first = first or node.name
        if node.op == "call_module":
            name = type(modules[node.target]).__name__
        elif isinstance(node.target, str):
            name = node.target
        else:
            name = getattr(node.target, "__name__", str(node.target))
        if name not in ("Identity", "getitem"):
            names.append(name)
    return ChainLayer(first, " + ".join(names) or "identity")


def make_layer_chain(variants: VariantSet, name: str, *, threads: int, clock: Clock) -> LayerChain:
    """Build the layers of a loaded variant; `ConfigurationError` if its back end fuses them."""
    spec = variants.pipelines[name].spec
    if spec.backend != "torch":
        raise ConfigurationError(
            f"{spec.backend} fuses layers, so they have no times of their own: profile a variant "
            "of torch, or cut the network with --stages and --finest-stages"
        )
    size = variants.model.input_size
    return LayerChain(variants.graph(name), size, spec.precision, threads=threads, clock=clock)


def run_layers(
    chain: LayerChain, variants: VariantSet, frames: Sequence[Frame], runs: int, clock: Clock
) -> list[TimedRun]:
    """Time the layers on frames, taken in turn, between preprocessing and decoding.

    Stamps are before preprocessing, after it, after each layer, and after decoding. Entering torch
    counts as preprocessing, and fetching the outputs as decoding. `runs` count, after
    `DISCARDED_RUNS` cold ones.
    """
    image = np.zeros(variants.model.input_shape, np.float32)
    processor = FrameProcessor(variants.model, DecoderSettings(), image)
    taken = []
    for index in range(runs + DISCARDED_RUNS):
        frame = frames[index % len(frames)]
        work = Work(frame)
        begin_ns = clock.now_ns()
        processor.preprocess(work)
        outputs, stamps_ns = chain.run(image)
        work.scratch[OUTPUTS] = outputs
        processor.decode(work)
        stamps = (begin_ns, *stamps_ns, clock.now_ns())
        taken.append(TimedRun(frame.sequence, frame.stamp_ns, index < DISCARDED_RUNS, stamps))
    return taken
