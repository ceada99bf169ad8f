"""One input of a batch that lies in several places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jetson_dnn_rt.backends.base import Array


class Parts:
    """The images of a batch, not yet side by side: for runners that copy their inputs anyway.

    Parameters
    ----------
    parts : sequence of array
        Boundary tensors of one shape, ``[1, ...]``, in the order of the batch.

    Attributes
    ----------
    shape : tuple of int
        Of all of them together.
    """

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = tuple(parts)
        self.shape: tuple[int, ...] = (len(self._parts), *map(int, self._parts[0].shape[1:]))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)
