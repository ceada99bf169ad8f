"""PyTorch on a CUDA device, captured as a CUDA graph."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.backends.cuda.runner import CudaRunner
from jetson_dnn_rt.backends.cuda.torch_graphs import TorchCuda
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.model import Part

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

PRECISIONS = ("fp32", "fp16")


class TorchCudaRunner(CudaRunner):
    """A module called without gradients on a CUDA device.

    In fp16, convolutions and matrix products are computed in half precision and the rest as
    torch's autocast colours it: exponentials, sums and softmax in fp32, and arithmetic with fp32
    constants, box arithmetic above all, in fp32 as well. Their weights are converted once, here,
    with batch norms folded in. In fp32 it is IEEE's: TF32 is off.

    Parameters
    ----------
    part : Part
        The network, or a run of its stages.
    precision : str
        ``fp32`` or ``fp16``.
    cuda_graph : bool
        See `CudaRunner`; a network whose kernels depend on the data (lists of boxes) has none.

    Raises
    ------
    BackendUnavailableError
        When torch sees no CUDA device, or the precision is another.
    """

    backend = "torch"

    def __init__(self, part: Part, precision: str, *, cuda_graph: bool = True) -> None:
        if precision not in PRECISIONS:
            raise BackendUnavailableError(
                f"torch on cuda computes in {', '.join(PRECISIONS)}, not in {precision}"
            )
        cuda = TorchCuda()
        import torch

        from jetson_dnn_rt.models.graph.layers import to_channels_last

        self.version = str(torch.__version__)
        self.precision = precision
        self._mapped: dict[int, Array] = {}
        super().__init__(part, cuda, cuda_graph=cuda_graph)
        module = fold_norms(part.torch_module()).requires_grad_(False).to("cuda")
        if precision == "fp16":
            for layer in module.modules():
                if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
                    layer.to(torch.float16)
        # Without the wrappers of a call, which runs without a graph pay for.
        self._forward: Any = to_channels_last(module).forward
        self._prepare()

    def _allocate_device_input(self, shape: tuple[int, ...]) -> Array:
        # As the kernels of tensor cores read maps, and as the stage before gives them.
        assert isinstance(self._cuda, TorchCuda)
        return self._cuda.allocate(shape, np.float32, channels_last=len(shape) == 4)

    def _read_input(self, index: int, array: Array | None) -> None:
        if array is None:
            self._mapped.pop(index, None)
        else:
            self._mapped[index] = array

    def _enqueue(self, stream: int) -> tuple[Array, ...]:
        import torch

        precision: contextlib.AbstractContextManager[Any] = (
            torch.autocast("cuda", torch.float16, cache_enabled=False)
            if self.precision == "fp16"
            else contextlib.nullcontext()
        )
        cudnn: Any = torch.backends.cudnn
        # Algorithms are tried in the first runs; the graph keeps the fastest.
        with torch.inference_mode(), precision, cudnn.flags(True, True, allow_tf32=False):
            for index, array in self._mapped.items():
                # The layout that the kernels want, made in the graph by the one read of the
                # mapped memory: the layers see the same bytes as with any other memory.
                self._inputs[index].copy_(array)
            outputs = self._forward(*self._inputs)
            if isinstance(outputs, torch.Tensor):
                outputs = (outputs,)
            return tuple(
                output.float() if output.is_floating_point() else output for output in outputs
            )

    def _close(self) -> None:
        super()._close()
        self._mapped = {}
        self._forward = None


def fold_norms(module: torch.nn.Module) -> torch.nn.Module:
    """Fold batch norms into convolutions: a kernel less for each. Untraceable modules stay."""
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
