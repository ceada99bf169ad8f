"""What every back end offers: a part of a network, made ready, that maps arrays to arrays.

Between two parts stand *boundary tensors*. They have one form, so that any variant of a stage can
follow any other: float32, logical shape as in the graph (maps are ``[1, C, H, W]``), dense in
either memory layout (C order or channels last). Between CPU back ends they are numpy arrays,
between CUDA back ends objects with ``__cuda_array_interface__``. A runner that needs another
layout or another device moves them, in its own time.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import BackendUnavailableError, JetsonDnnRtError
from jetson_dnn_rt.models.model import Part

Array = Any
"""A numpy array, or an object with ``__cuda_array_interface__``; numpy has no type for both."""

HostArrays = tuple[npt.NDArray[Any], ...]


NO_BF16 = "no bf16: the CPU has neither AVX512_BF16 nor AMX"


@dataclass(frozen=True)
class BackendInfo:
    """A back end on this machine."""

    name: str
    version: str  # of its library; empty where it is missing
    available: bool  # whether runners can be made
    precisions: tuple[str, ...]  # that it computes in here
    reason: str = ""  # why something is not available; empty where all is well
    fix: str = ""  # what to do about it


def inspect_library(name: str, fix: str) -> BackendInfo:
    """Look at a back end that needs nothing but its library, which computes in fp32."""
    try:
        library = importlib.import_module(name)
    except Exception as error:  # a broken installation raises OSError, RuntimeError and others
        return BackendInfo(name, "", False, (), f"cannot be imported: {error}", fix)
    version = str(getattr(library, "__version__", "unknown")).split("-")[0]
    return BackendInfo(name, version, True, ("fp32",))


def check_precision(where: str, precision: str, known: Sequence[str]) -> None:
    """Raise `BackendUnavailableError` for a precision that a back end does not compute in."""
    if precision not in known:
        raise BackendUnavailableError(
            f"{where} computes in {', '.join(known)}, not in {precision}"
        )


class RunnerClosedError(JetsonDnnRtError):
    """A runner was used after `Runner.close`; this is a mistake in the calling code."""


class Runner(ABC):
    """A part of a network ready to run, with the memory it needs; for one thread at a time."""

    backend: str
    version: str  # of the library
    precision: str  # that convolutions are computed in
    device: str = "cpu"  # or ``cuda``: where the outputs are
    takes_any_batch: bool = False
    """Whether it runs inputs of any first dimension, and gives arrays of their own each time."""

    def __init__(self, part: Part) -> None:
        self.name = part.name
        self.input_shapes = part.input_shapes
        # What the last run copied before its first layer, and `to_host` after its last one.
        self.copied_bytes = 0
        # Deadline class of the next run (`jetson_dnn_rt.tasks.Work`): a GPU prefers the higher.
        self.urgency = 0
        self._closed = False

    def allocate_input(self, images: int = 1) -> npt.NDArray[np.float32]:
        """Make a host buffer for `images` first inputs, in memory that is read fast from."""
        return np.zeros((images * self.input_shapes[0][0], *self.input_shapes[0][1:]), np.float32)

    def run(self, values: list[Array]) -> tuple[Array, ...]:
        """Run the part on its inputs in their order; it is done when this returns.

        The arrays are read only; the list may be emptied, to give memory back at its last use. The
        runner owns the outputs, which are valid until the next call. `RunnerClosedError` after
        `close`.
        """
        self._check_open()
        return self._run(values)

    def queue(self, values: list[Array]) -> tuple[Array, ...]:
        """Like `run`, but it need only be done when `to_host` of this runner returns.

        So the last stage waits for a device once, not for the network and again for the copy.
        """
        self._check_open()
        return self._queue(values)

    def _check_open(self) -> None:
        if self._closed:
            raise RunnerClosedError(f"the {self.backend} runner of {self.name} is closed")

    def _queue(self, values: list[Array]) -> tuple[Array, ...]:
        return self._run(values)

    @abstractmethod
    def _run(self, values: list[Array]) -> tuple[Array, ...]: ...

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Bring boundary tensors to the host, where decoders read them."""
        return tuple(as_host(value) for value in values)

    def close(self) -> None:
        """Free the network and its memory; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    @abstractmethod
    def _close(self) -> None: ...


def as_host(value: Array) -> npt.NDArray[Any]:
    """A boundary tensor as a numpy array; one on a CUDA device is copied."""
    if isinstance(value, np.ndarray):
        return value
    import torch

    array: npt.NDArray[Any] = torch.as_tensor(value, device="cuda").cpu().numpy()
    return array


class HostInputs:
    """The inputs of a library that reads host arrays in C order: as they are, or copied."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._own: list[npt.NDArray[np.float32] | None] = [None] * len(shapes)
        self._bound: list[npt.NDArray[np.float32] | None] = [None] * len(shapes)

    def place(self, values: Sequence[Array]) -> list[tuple[int, npt.NDArray[np.float32]]]:
        """The inputs that must be bound again, with their indices.

        An array in C order is to be bound as it is; any other is copied into a buffer that stays.
        """
        changed = []
        for index, value in enumerate(values):
            array = as_host(value)
            if not array.flags.c_contiguous:
                own = self._own[index]
                if own is None:
                    own = self._own[index] = np.empty(self._shapes[index], np.float32)
                np.copyto(own, array)
                array = own
            if array is not self._bound[index]:
                # Held, so that the memory stays while it is bound.
                self._bound[index] = array
                changed.append((index, array))
        return changed


class Parts:
    """The images of a batch, not yet side by side: for runners that copy their inputs anyway.

    Boundary tensors of one shape, ``[1, ...]``, in the order of the batch; `shape` is that of all
    of them together.
    """

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = tuple(parts)
        self.shape: tuple[int, ...] = (len(self._parts), *map(int, self._parts[0].shape[1:]))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)
