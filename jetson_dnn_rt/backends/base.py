# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The interface of back ends: a part of a network, ready to run, maps arrays to arrays.

*Boundary tensors* pass between two parts. They have one form, so that any variant of a stage can
follow any other: float32, logical shape as in the graph (maps are ``[1, C, H, W]``), dense in
either memory layout (C order or channels last). Between CPU back ends they are numpy arrays,
between CUDA back ends objects with ``__cuda_array_interface__``. A runner that needs another
layout or device converts them, in its own time.
"""

from __future__ import annotations

import importlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import JetsonDnnRtError
from jetson_dnn_rt.models.model import Part

logger = logging.getLogger(__name__)

T = TypeVar("T")

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
    precisions: tuple[str, ...]  # supported on this machine
    reason: str = ""  # why something is not available; else empty
    fix: str = ""  # how to make it available
    cancels: bool = False  # whether its runs can be ended while they are under way


def inspect_library(name: str, fix: str) -> BackendInfo:
    """Inspect a back end that needs only its library and computes in fp32."""
    try:
        library = importlib.import_module(name)
    except Exception as error:  # a broken installation raises OSError, RuntimeError and others
        return BackendInfo(name, "", False, (), f"cannot be imported: {error}", fix)
    version = str(getattr(library, "__version__", "unknown")).split("-")[0]
    return BackendInfo(name, version, True, ("fp32",))


class CompiledStore(Protocol):
    """Where a back end keeps what it compiled of one part, for one number of threads."""

    def load(self) -> bytes | None:
        """What was stored; None where nothing was, or it cannot be used."""

    def store(self, data: bytes) -> None:
        """Store it, in the place of what was stored before; never fails."""


def open_kept(
    store: CompiledStore | None,
    part: Part,
    open_network: Callable[[bytes], T],
    read_shapes: Callable[[T], Sequence[Sequence[int]]],
    expected: Sequence[Sequence[int]],
) -> T | None:
    """Open what was compiled before; None where nothing was, or it is of no use, which is logged.

    `read_shapes` gives the shapes of the inputs of an opened network, which are to be `expected`.
    """
    data = None if store is None else store.load()
    if data is None:
        return None
    try:
        network = open_network(data)
        shapes = list(map(tuple, read_shapes(network)))
    except Exception as error:  # the libraries' own classes share no base
        logger.warning("%s is compiled again, what was stored fails: %s", part.name, error)
        return None
    if shapes != list(map(tuple, expected)):
        logger.warning("%s is compiled again, what was stored takes %s", part.name, shapes)
        return None
    return network


class RunnerClosedError(JetsonDnnRtError):
    """A runner was used after `Runner.close`; this is a mistake in the calling code."""


class Runner(ABC):
    """A part of a network ready to run, with the memory it needs; for one thread at a time."""

    backend: str
    version: str  # of the library
    precision: str  # of convolutions
    device: str = "cpu"  # or ``cuda``: where the outputs are
    takes_any_batch: bool = False
    """Whether inputs may have any first dimension; every run then returns new arrays."""
    can_cancel: bool = False
    """Whether `cancel` ends a run; where it does not, a run always takes its whole time."""

    def __init__(self, part: Part) -> None:
        self.name = part.name
        self.input_shapes = part.input_shapes
        # Bytes that the last run copied before its first layer, and `to_host` after its last one.
        self.copied_bytes = 0
        # Deadline class of the next run (`jetson_dnn_rt.tasks.Work`): a GPU runs higher ones
        # first.
        self.urgency = 0
        self._closed = False

    def allocate_input(self, images: int = 1) -> npt.NDArray[np.float32]:
        """Allocate a host buffer for `images` first inputs, in memory that is fast to read."""
        first, *rest = self.input_shapes[0]
        return self._allocate((images * first, *rest))

    def _allocate(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    def run(self, values: list[Array]) -> tuple[Array, ...]:
        """Run the part on its inputs, in order; the result is complete on return.

        The arrays are read only; the list may be emptied, to release memory after its last use.
        The runner owns the outputs, which are valid until the next call. `RunnerClosedError` after
        `close`.
        """
        self._check_open()
        return self._run(values)

    def queue(self, values: list[Array]) -> tuple[Array, ...]:
        """Like `run`, but the result may be incomplete until `to_host` of this runner returns.

        So the last stage waits once for the device, not for the network and again for the copy.
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

    def cancel(self) -> None:  # noqa: B027  most back ends cannot
        """Let the run that another thread is in raise `RunCancelledError` soon; returns at once.

        It is lost where the run has not begun or is over: whoever still waits asks again. Later
        runs are not affected.
        """

    def to_host(self, values: Sequence[Array]) -> HostArrays:
        """Copy boundary tensors to the host, where decoders read them."""
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


class HostRunner(Runner):
    """A runner of a library that reads host arrays in C order, in place or copied."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._own: dict[int, npt.NDArray[np.float32]] = {}
        self._bound: dict[int, npt.NDArray[np.float32]] = {}
        self._outputs: tuple[Any, ...] = ()

    def _fits(self, array: npt.NDArray[Any]) -> bool:
        """Whether the library can read an input in place."""
        return array.flags.c_contiguous

    def _place(self, index: int, value: Array) -> npt.NDArray[np.float32]:
        """An input as the library reads it, copied into a persistent buffer if needed."""
        array = as_host(value)
        if self._fits(array):
            return array
        own = self._own.get(index)
        if own is None:
            own = self._own[index] = self._allocate(self.input_shapes[index])
        np.copyto(own, array)
        self.copied_bytes += own.nbytes
        return own

    def _bind_inputs(self, values: Sequence[Array]) -> None:
        """Bind the inputs whose address changed since the last run."""
        self.copied_bytes = 0
        for index, value in enumerate(values):
            array = self._place(index, value)
            if array is not self._bound.get(index):
                self._bound[index] = array  # keeps the memory alive while it is bound
                self._bind(index, array)

    def _bind(self, index: int, array: npt.NDArray[np.float32]) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        self._own, self._bound, self._outputs = {}, {}, ()


class Parts:
    """The images of a batch, not yet stacked: for runners that copy their inputs anyway.

    Boundary tensors of one shape, ``[1, ...]``, in the order of the batch; `shape` is that of the
    stack.
    """

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = tuple(parts)
        self.shape: tuple[int, ...] = (len(self._parts), *map(int, self._parts[0].shape[1:]))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)
