"""PyTorch on the CPU; `jetson_dnn_rt.backends.torch.cuda` is its like for CUDA."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from jetson_dnn_rt.backends.base import Array, Runner, as_host
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.model import Part

if TYPE_CHECKING:
    from torch import fx

PRECISIONS = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "fp16")}


def choose_device() -> str:
    """``cuda`` where torch sees a device, else ``cpu``."""
    import torch

    with warnings.catch_warnings():  # a driver that is too old is reported by the doctor
        warnings.simplefilter("ignore")
        return "cuda" if torch.cuda.is_available() else "cpu"


def supports_bf16() -> bool:
    """Whether the CPU computes in bf16; elsewhere oneDNN would emulate it, slower than fp32."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def box_inputs(graph: fx.GraphModule) -> None:
    """Let a graph take one list of its inputs, which it empties.

    Arguments of a call live as long as the call. Memory that could be used again in the next
    layer, while it is in the cache, would be held to the end of the stage.
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


class TorchRunner(Runner):
    """A module called without gradients, on the CPU.

    In bf16 convolutions and matrix products are computed in the short type and the rest, box
    arithmetic above all, stays in fp32: bf16 has steps of 2 pixels at x = 400. The weights are
    converted once, here.

    The number of threads is a setting of the calling thread in torch (OpenMP's, which oneDNN takes
    without asking torch): a new thread has one per core until it is told otherwise. So every run
    looks at it, which costs 0.1 us, and changes it where another runner has left another.

    Parameters
    ----------
    part : Part
        The network, or a run of its stages.
    precision : str
        ``fp32`` or ``bf16``.
    threads : int
        Threads of one run, >= 1; with 1 the calling thread does everything.

    Raises
    ------
    BackendUnavailableError
        When the CPU does not compute in `precision`.
    """

    backend = "torch"
    takes_any_batch = True

    def __init__(self, part: Part, precision: str, threads: int) -> None:
        import torch
        from torch import fx

        from jetson_dnn_rt.models.graph.layers import to_channels_last

        super().__init__(part)
        if precision not in PRECISIONS["cpu"]:
            raise BackendUnavailableError(
                f"torch on cpu computes in {', '.join(PRECISIONS['cpu'])}, not in {precision}"
            )
        if precision == "bf16" and not supports_bf16():
            raise BackendUnavailableError(
                "this CPU has no bf16 instructions (AVX512_BF16 or AMX): use torch-fp32"
            )
        self.version = str(torch.__version__)
        self.precision = precision
        self._threads = threads
        module = part.torch_module()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        self._short = precision == "bf16"
        if self._short:
            for layer in module.modules():
                if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
                    layer.to(torch.bfloat16)
        module = to_channels_last(module)
        self._boxed = isinstance(module, fx.GraphModule)
        if isinstance(module, fx.GraphModule):
            box_inputs(module)
        # Without the wrappers of a call, of which a network in eight stages would pay for eight.
        self._forward: Any = module.forward

    def _run(self, values: list[Array]) -> tuple[Array, ...]:
        import torch

        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        precision = (
            torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
            if self._short
            else contextlib.nullcontext()
        )
        with torch.inference_mode(), precision:
            inputs = [torch.from_numpy(as_host(value)) for value in values]
            if self._boxed:
                values.clear()
                outputs = self._forward(inputs)
            else:
                outputs = self._forward(*inputs)
            if isinstance(outputs, torch.Tensor):
                outputs = (outputs,)
            return tuple(
                (output.float() if output.is_floating_point() else output).numpy()
                for output in outputs
            )

    def _close(self) -> None:
        self._forward = None
