# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""PyTorch on the CPU, and on a CUDA device, captured as a CUDA graph."""

from __future__ import annotations

import contextlib
import logging
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.backends.base import (
    NO_BF16,
    Array,
    BackendInfo,
    Runner,
    as_host,
    inspect_library,
)
from jetson_dnn_rt.backends.cuda.owners import TorchCuda
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.clock import Clock
from jetson_dnn_rt.models.model import Part

if TYPE_CHECKING:
    import torch
    from torch import fx

logger = logging.getLogger(__name__)

PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "fp16")}


def inspect(name: str) -> BackendInfo:
    """Describe the back end; precisions are those of the device that torch sees."""
    fix = "pip install torch torchvision (extra torch; on Jetson: NVIDIA's wheel for your JetPack)"
    info = inspect_library(name, fix)
    if not info.available:
        return info
    device = choose_device()
    if device == "cpu" and not supports_bf16():
        return replace(info, reason=NO_BF16)
    return replace(info, precisions=PRECISIONS[device])


def create(part: Part, name: str, precision: str, threads: int, clock: Clock) -> Runner:
    """Make a runner on the device that torch sees."""
    if choose_device() == "cuda":
        return TorchCudaRunner(part, precision)
    return TorchRunner(part, precision, threads)


def choose_device() -> str:
    """``cuda`` where torch sees a device, else ``cpu``."""
    import torch

    with warnings.catch_warnings():  # the doctor reports a driver that is too old
        warnings.simplefilter("ignore")
        return "cuda" if torch.cuda.is_available() else "cpu"


def supports_bf16() -> bool:
    """Whether the CPU computes in bf16; elsewhere oneDNN would emulate it, slower than fp32."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _convert_layers(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert the weights of convolutions and matrix products, once."""
    import torch

    for layer in module.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
            layer.to(dtype)


def box_inputs(graph: fx.GraphModule) -> None:
    """Make a graph take one list of its inputs, which it empties.

    Arguments of a call live as long as the call: memory that the next layer could reuse while it
    is still in the cache would be held until the end of the stage.
    """
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    first = next(iter(graph.graph.nodes))
    with graph.graph.inserting_before(first):
        box = graph.graph.placeholder("box")
    with graph.graph.inserting_before(next(n for n in graph.graph.nodes if n.op != "placeholder")):
        for node in inputs:
            taken = graph.graph.call_function(_take_first, (box,))
            node.replace_all_uses_with(taken)
    for node in inputs:
        graph.graph.erase_node(node)
    graph.recompile()


def _take_first(box: list[Any]) -> Any:
    return box.pop(0)


def _autocast(device: str, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Context that computes convolutions and matrix products in a short type, the rest in fp32."""
    import torch

    if precision == "fp32":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device, dtype, cache_enabled=False)


def _list_outputs(outputs: Any) -> tuple[Any, ...]:
    """Outputs of a module as a tuple, floating-point ones in fp32."""
    return tuple(
        output.float() if output.is_floating_point() else output
        for output in (outputs if isinstance(outputs, (tuple, list)) else (outputs,))
    )


class TorchRunner(Runner):
    """A module called without gradients, on the CPU.

    In bf16, convolutions and matrix products are computed in the short type; the rest, box
    arithmetic above all, stays in fp32: bf16 has steps of 2 pixels at x = 400. The weights are
    converted once, here.

    The number of threads is a setting of the calling thread in torch (OpenMP's, which oneDNN uses
    directly): a new thread has one per core until it is set. So every run checks it, which costs
    0.1 us, and resets it where another runner changed it. With 1 the calling thread does
    everything.
    """

    backend = "torch"
    takes_any_batch = True

    def __init__(self, part: Part, precision: str, threads: int) -> None:
        import torch
        from torch import fx

        from jetson_dnn_rt.models.graph.layers import to_channels_last

        super().__init__(part)
        self.version = str(torch.__version__)
        self.precision = precision
        self._threads = threads
        module = part.torch_module()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        if precision == "bf16":
            _convert_layers(module, torch.bfloat16)
        module = to_channels_last(module)
        self._boxed = False
        if isinstance(module, fx.GraphModule):
            box_inputs(module)
            self._boxed = True
        # Skips the call wrappers, which a network in eight stages would pay for eight times.
        self._forward: Any = module.forward

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        import torch

        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        with torch.inference_mode(), _autocast("cpu", self.precision):
            inputs = [torch.from_numpy(as_host(value)) for value in values]
            if self._boxed:
                values.clear()
                outputs = self._forward(inputs)
            else:
                outputs = self._forward(*inputs)
            return tuple(output.numpy() for output in _list_outputs(outputs))

    def _close(self) -> None:
        self._forward = None


class TorchCudaRunner(CudaRunner):
    """A module called without gradients on a CUDA device.

    In fp16, convolutions and matrix products are computed in half precision and the rest as
    torch's autocast colours it: exponentials, sums and softmax in fp32, and arithmetic with fp32
    constants, box arithmetic above all, in fp32 as well. Weights are converted once, here, with
    batch norms folded in. fp32 is IEEE single precision: TF32 is off. A network whose kernels
    depend on the data (lists of boxes) has no CUDA graph.

    `BackendUnavailableError` where torch sees no CUDA device.
    """

    backend = "torch"

    def __init__(self, part: Part, precision: str, *, cuda_graph: bool = True) -> None:
        cuda = TorchCuda()
        import torch

        from jetson_dnn_rt.models.graph.layers import to_channels_last

        self.version = str(torch.__version__)
        self.precision = precision
        self._mapped: dict[int, Array] = {}
        super().__init__(part, cuda, cuda_graph=cuda_graph)
        module = fold_norms(part.torch_module()).requires_grad_(False).to("cuda")
        if precision == "fp16":
            _convert_layers(module, torch.float16)
        # Skips the call wrappers, which runs without a graph pay for.
        self._forward: Any = to_channels_last(module).forward
        self._prepare()

    def _allocate_device_input(self, shape: tuple[int, ...]) -> Array:
        # The layout that tensor-core kernels read and the previous stage returns.
        assert isinstance(self._cuda, TorchCuda)
        return self._cuda.allocate(shape, np.float32, channels_last=len(shape) == 4)

    def _read_input(self, index: int, array: Array | None) -> None:
        if array is None:
            self._mapped.pop(index, None)
        else:
            self._mapped[index] = array

    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        import torch

        short = _autocast("cuda", self.precision)
        cudnn: Any = torch.backends.cudnn
        # Algorithms are tried in the first runs; the graph uses the fastest.
        with torch.inference_mode(), short, cudnn.flags(True, True, allow_tf32=False):
            for index, array in self._mapped.items():
                # Converts to the kernels' layout in the graph, in the single read of the mapped
                # memory: the layers see the same bytes as with any other memory.
                self._inputs[index].copy_(array)
            return _list_outputs(self._forward(*self._inputs))

    def _close(self) -> None:
        super()._close()
        self._mapped = {}
        self._forward = None


def fold_norms(module: torch.nn.Module) -> torch.nn.Module:
    """Fold batch norms into convolutions, saving a kernel each; skip untraceable modules."""
    from torch import fx

    from jetson_dnn_rt.models.graph.layers import copy_folded
    from jetson_dnn_rt.models.graph.tracing import TraceError, trace

    if isinstance(module, fx.GraphModule):  # a stage
        return copy_folded(module)
    try:
        return copy_folded(trace(module))
    except TraceError as error:
        logger.info("batch norms stay as they are: %s", error)
        return module
