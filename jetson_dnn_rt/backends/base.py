"""What every back end offers: one input buffer, one call, outputs valid until the next call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jetson_dnn_rt.errors import JetsonDnnRtError

Outputs = tuple[npt.NDArray[Any], ...]


class RunnerClosedError(JetsonDnnRtError):
    """A runner was used after `Runner.close`; this is a mistake in the calling code."""


class Runner(ABC):
    """A network ready to run, with the memory it needs.

    One thread at a time may use a runner.

    Attributes
    ----------
    backend, version : str
        Name of the back end and version of its library.
    precision : str
        What the convolutions are computed in.
    """

    backend: str
    version: str
    precision: str

    def __init__(self, input_shape: Sequence[int]) -> None:
        self._input: npt.NDArray[np.float32] | None = self._allocate_input(input_shape)

    def _allocate_input(self, shape: Sequence[int]) -> npt.NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    @property
    def input(self) -> npt.NDArray[np.float32]:
        """The input, float32 [1, 3, H, W], to be filled before `run`; always the same array."""
        if self._input is None:
            raise RunnerClosedError(f"the {self.backend} runner is closed")
        return self._input

    def run(self) -> Outputs:
        """Run the network on what is in `input`.

        Returns
        -------
        tuple of ndarray
            The outputs, valid until the next call: the runner owns them.

        Raises
        ------
        RunnerClosedError
            After `close`.
        """
        if self._input is None:
            raise RunnerClosedError(f"the {self.backend} runner is closed")
        return self._run()

    @abstractmethod
    def _run(self) -> Outputs: ...

    def close(self) -> None:
        """Give the network and its memory back; a second call does nothing."""
        if self._input is not None:
            self._close()
            self._input = None

    @abstractmethod
    def _close(self) -> None: ...
