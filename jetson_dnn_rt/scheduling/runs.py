"""What the engine knows of the runs that do a variant's stages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a variant.

    Attributes
    ----------
    span : int
        How many of the task's stages it does.
    device : str
        Where: ``cpu``, ``cuda``, ... See ``max_inflight`` of the engine.
    batches : bool
        Whether it can be done for frames of several tasks of a batch group at once.
    """

    span: int = 1
    device: str = "cpu"
    batches: bool = False
