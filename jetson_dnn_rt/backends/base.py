"""What every back end offers: a part of a network, made ready, that maps arrays to arrays.

Between two parts stand *boundary tensors*. They have one form, so that any variant of a stage can
follow any other: float32, logical shape as in the graph (maps are ``[1, C, H, W]``), dense in
either memory layout (C order or channels last). Between CPU back ends they are numpy arrays,
between CUDA back ends objects with ``__cuda_array_interface__``. Whoever needs another layout or
another device moves them, in its own time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.models.model import Part

Array = Any
"""A numpy array, or an object with ``__cuda_array_interface__``; numpy has no type for both."""

HostArrays = tuple[npt.NDArray[Any], ...]


class RunnerClosedError(JetsonDnnRtError):
    """A runner was used after `Runner.close`; this is a mistake in the calling code."""


class Runner(ABC):
    """A part of a network ready to run, with the memory it needs.

    One thread at a time may use a runner.

    Parameters
    ----------
    part : Part
        What it runs.

    Attributes
    ----------
    backend, version : str
        Name of the back end and version of its library.
    precision : str
        What the convolutions are computed in.
    device : str
        ``cpu`` or ``cuda``: where its outputs are.
    takes_any_batch : bool
        Whether it runs inputs of any first dimension, and gives arrays of their own each time.
    copied_bytes : int
        What the last run copied before its first layer, and `to_host` after its last one.
    urgency : int
        Deadline class of the next run, as `jetson_dnn_rt.tasks.Work` has it: a GPU prefers the
        work of the higher.
    """

    backend: str
    version: str
    precision: str
    device: str = "cpu"
    takes_any_batch: bool = False

    def __init__(self, part: Part) -> None:
        self.name = part.name
        self.input_shapes = part.input_shapes
        self.copied_bytes = 0
        self.urgency = 0
        self._closed = False

    def allocate_input(self, images: int = 1) -> npt.NDArray[np.float32]:
        """Make a host buffer for the first input, in the memory that is read fastest from.

        Parameters
        ----------
        images : int
            How many such inputs it has room for, one after the other.
        """
        return np.zeros((images * self.input_shapes[0][0], *self.input_shapes[0][1:]), np.float32)

    def run(self, values: list[Array]) -> tuple[Array, ...]:
        """Run the part; it is done when this returns.

        Parameters
        ----------
        values : list of array
            The inputs in their order, in the form of the module's docstring. The arrays are read
            only; the list may be emptied, to give memory back at its last use.

        Returns
        -------
        tuple of array
            The outputs, valid until the next call: the runner owns them.

        Raises
        ------
        RunnerClosedError
            After `close`.
        """
        if self._closed:
            raise RunnerClosedError(f"the {self.backend} runner of {self.name} is closed")
        return self._run(values)

    def queue(self, values: list[Array]) -> tuple[Array, ...]:
        """Like `run`, but it need only be done when `to_host` of this runner returns.

        So the last stage waits for a device once, not for the network and again for the copy.
        """
        if self._closed:
            raise RunnerClosedError(f"the {self.backend} runner of {self.name} is closed")
        return self._queue(values)

    def _queue(self, values: list[Array]) -> tuple[Array, ...]:
        return self._run(values)

    @abstractmethod
    def _run(self, values: list[Array]) -> tuple[Array, ...]: ...

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Bring boundary tensors to the host, where decoders read them."""
        return tuple(as_host(value) for value in values)

    def close(self) -> None:
        """Give the network and its memory back; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._close()

    @abstractmethod
    def _close(self) -> None: ...


def as_host(value: Array) -> npt.NDArray[Any]:
    """Give a boundary tensor as a numpy array; one on a CUDA device is copied."""
    if isinstance(value, np.ndarray):
        return value
    import torch

    array: npt.NDArray[Any] = torch.as_tensor(value, device="cuda").cpu().numpy()
    return array


class HostInputs:
    """The inputs of a library that reads host arrays in C order: handed on, or copied into place.

    Parameters
    ----------
    shapes : sequence of tuple of int
        Of the inputs.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._shapes = shapes
        self._own: list[npt.NDArray[np.float32] | None] = [None] * len(shapes)
        self._bound: list[npt.NDArray[np.float32] | None] = [None] * len(shapes)

    def place(self, values: Sequence[Array]) -> list[tuple[int, npt.NDArray[np.float32]]]:
        """Give the inputs that must be bound anew, with their indices.

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
