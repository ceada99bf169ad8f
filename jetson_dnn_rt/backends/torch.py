"""PyTorch, on the CPU or on a CUDA device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Outputs, Runner
from jetson_dnn_rt.errors import BackendUnavailableError
from jetson_dnn_rt.models.model import Model

if TYPE_CHECKING:
    import torch

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


class TorchRunner(Runner):
    """A module called without gradients.

    In bf16 and fp16 convolutions and matrix products are computed in the short type and the
    rest, box arithmetic above all, stays in fp32: bf16 has steps of 2 pixels at x = 400.
    The weights are converted once, here.

    The number of threads is a setting of the whole process in torch: the runner created last
    decides for all.

    Parameters
    ----------
    model : Model
        The network.
    precision : str
        ``fp32``; ``bf16`` on the CPU; ``fp16`` on CUDA.
    threads : int
        Threads of one run on the CPU, >= 1.
    device : str, optional
        ``cpu`` or ``cuda``; by default as `choose_device` says.

    Raises
    ------
    BackendUnavailableError
        When the device does not compute in `precision`.
    """

    backend = "torch"

    def __init__(
        self, model: Model, precision: str, threads: int, device: str | None = None
    ) -> None:
        import torch

        self._device = device or choose_device()
        if precision not in PRECISIONS[self._device]:
            raise BackendUnavailableError(
                f"torch on {self._device} computes in {', '.join(PRECISIONS[self._device])}, "
                f"not in {precision}"
            )
        if precision == "bf16" and not supports_bf16():
            raise BackendUnavailableError(
                "this CPU has no bf16 instructions (AVX512_BF16 or AMX): use torch-fp32"
            )
        self.version = str(torch.__version__)
        self.precision = precision
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        module = model.torch_module()
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        module.to(self._device)
        self._type = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        if self._type is not None:
            for layer in module.modules():
                if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)):
                    layer.to(self._type)
        self._module: Any = module.to(memory_format=torch.channels_last)
        super().__init__(model.input_shape)
        self._staged = self._input_tensor.to(self._device)
        self._pinned: list[torch.Tensor] = []

    def _allocate_input(self, shape: Sequence[int]) -> npt.NDArray[np.float32]:
        import torch

        pinned = self._device == "cuda"
        self._input_tensor = torch.zeros(tuple(shape), dtype=torch.float32, pin_memory=pinned)
        array: npt.NDArray[np.float32] = self._input_tensor.numpy()
        return array

    def _run(self) -> Outputs:
        import torch

        precision = (
            contextlib.nullcontext()
            if self._type is None
            else torch.autocast(self._device, self._type, cache_enabled=False)
        )
        with torch.inference_mode(), precision:
            if self._device == "cuda":
                self._staged.copy_(self._input_tensor, non_blocking=True)
            outputs = self._module(self._staged)
            if isinstance(outputs, torch.Tensor):
                outputs = (outputs,)
            if self._device == "cuda":
                return self._fetch(outputs)
            return tuple(
                (output.float() if output.is_floating_point() else output).numpy()
                for output in outputs
            )

    def _fetch(self, outputs: Sequence[torch.Tensor]) -> Outputs:
        """Copy outputs from the device into pinned memory that is kept."""
        import torch

        if [tuple(output.shape) for output in outputs] != [tuple(p.shape) for p in self._pinned]:
            self._pinned = [
                torch.empty(
                    output.shape,
                    dtype=torch.float32 if output.is_floating_point() else output.dtype,
                    pin_memory=True,
                )
                for output in outputs
            ]
        for pinned, output in zip(self._pinned, outputs, strict=True):
            pinned.copy_(output, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return tuple(pinned.numpy() for pinned in self._pinned)

    def _close(self) -> None:
        self._module = None
        self._staged = self._input_tensor = None  # type: ignore[assignment]
        self._pinned = []
