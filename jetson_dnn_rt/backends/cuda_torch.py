"""CUDA memory and a stream, owned by torch."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.backends.base import Array
from jetson_dnn_rt.errors import BackendUnavailableError

T = TypeVar("T")

# torch records one graph at a time in a process.
_capturing = threading.Lock()


class TorchCuda:
    """See `jetson_dnn_rt.backends.cuda.Cuda`.

    Raises
    ------
    BackendUnavailableError
        When torch is missing or sees no device.
    """

    def __init__(self) -> None:
        try:
            import torch
        except Exception as error:  # a broken installation raises OSError and others
            raise BackendUnavailableError(f"torch cannot be imported ({error})") from error
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            available = torch.cuda.is_available()
        if not available:
            note = str(caught[0].message).split("(")[0].strip() if caught else "none seen"
            raise BackendUnavailableError(f"torch {torch.__version__} has none ({note})")
        self.owner = f"torch {torch.__version__}"
        self._torch: Any = torch
        self._stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._done: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def allocate(
        self, shape: Sequence[int], dtype: npt.DTypeLike, *, channels_last: bool = False
    ) -> Any:
        """Make a device tensor, zeros; maps may have their channels last in memory."""
        torch = self._torch
        # The empty numpy array is for its type: torch has no other way from one to the other.
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        order = torch.channels_last if channels_last else torch.contiguous_format
        with torch.cuda.stream(self._stream):
            tensor = torch.empty(tuple(shape), dtype=kind, device="cuda", memory_format=order)
            return tensor.zero_()

    def allocate_host(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a page-locked host array, zeros."""
        torch = self._torch
        kind = torch.from_numpy(np.empty(0, dtype)).dtype
        array: npt.NDArray[Any] = torch.zeros(tuple(shape), dtype=kind, pin_memory=True).numpy()
        return array

    def copy(self, destination: Array, source: Array) -> None:
        """Queue a copy; layouts may differ."""
        with self._torch.cuda.stream(self._stream):
            self._view(destination).copy_(self._view(source), non_blocking=True)

    def _view(self, array: Array) -> Any:
        torch = self._torch
        if isinstance(array, torch.Tensor):
            return array
        if isinstance(array, np.ndarray):
            return torch.from_numpy(array)
        return torch.as_tensor(array, device="cuda")

    def run(self, work: Callable[[int], T]) -> T:
        """Call `work` with the stream being torch's current one."""
        with self._torch.cuda.stream(self._stream):
            return work(self._stream.cuda_stream)

    def capture(self, work: Callable[[int], T]) -> tuple[Callable[[], None], T]:
        """Record a graph on a stream of torch's, so that a failure leaves ours as it was."""
        torch = self._torch
        # Other threads may use the device meanwhile: their tasks go on.
        mode = (
            {"capture_error_mode": "thread_local"}
            if "capture_error_mode" in inspect.signature(torch.cuda.graph).parameters
            else {}
        )
        graph = torch.cuda.CUDAGraph()
        reason: Exception | None = None
        try:
            with _capturing, torch.cuda.graph(graph, **mode):
                try:
                    result = work(torch.cuda.current_stream().cuda_stream)
                except Exception as error:
                    reason = error
                    raise
        except Exception as error:
            # Ending a capture that failed raises again, and says less than the first error.
            raise reason or error from None

        def launch() -> None:
            with torch.cuda.stream(self._stream):
                graph.replay()

        return launch, result

    def synchronize(self) -> None:
        """Sleep until the stream is done."""
        self._done.record(self._stream)
        self._done.synchronize()

    def close(self) -> None:
        """Wait for the stream; torch keeps it for the next one."""
        self._stream.synchronize()
