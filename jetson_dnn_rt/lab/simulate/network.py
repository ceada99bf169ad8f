"""What a network asks of a board: operations, bytes and kernels of its stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class NetworkStage:
    """One stage, counted at batch 1.

    Attributes
    ----------
    name : str
        Of the layers in it.
    macs_m : float
        Multiply-accumulates, in millions.
    bytes_mb : float
        Weights, inputs and outputs that go through the memory, in megabytes.
    kernels : int
        Layers, each a launch by the CPU.
    """

    name: str
    macs_m: float
    bytes_mb: float
    kernels: int

    def __post_init__(self) -> None:
        for key in ("macs_m", "bytes_mb", "kernels"):
            if not getattr(self, key) > 0:
                raise ValueError(f"{key} of stage {self.name!r} must be > 0: {getattr(self, key)}")


@dataclass(frozen=True)
class NetworkVariant:
    """A variant of a network.

    Attributes
    ----------
    name : str
        As in the variant library.
    time : float
        Execution time relative to the full network.
    loss : float
        Accuracy lost when the whole network runs in it, in [0, 1].
    """

    name: str
    time: float
    loss: float

    def __post_init__(self) -> None:
        if not self.time > 0.0:
            raise ValueError(f"time of variant {self.name!r} must be > 0: {self.time}")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss of variant {self.name!r} must be in [0, 1]: {self.loss}")


@dataclass(frozen=True)
class Network:
    """A network as it is described in ``networks.yaml``."""

    stages: tuple[NetworkStage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a network needs at least one stage")

    def counts(self, key: str) -> Floats:
        """One of ``macs_m``, ``bytes_mb``, ``kernels`` for every stage, [K]."""
        return np.array([getattr(stage, key) for stage in self.stages], dtype=np.float64)


@dataclass(frozen=True)
class NetworkFile:
    """All networks, and the variants that each of them has."""

    variants: tuple[NetworkVariant, ...]
    networks: dict[str, Network]

    def __post_init__(self) -> None:
        if not self.variants or self.variants[0].loss != 0.0:
            raise ValueError("variants: the first one must be the full network, with loss 0")
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError(f"variants: each name once: {', '.join(names)}")

    def losses(self, network: str) -> Floats:
        """Accuracy lost by each stage in each variant, [V, K].

        Derived: the loss of a whole variant is shared out among its stages by their operations,
        since that is what a decomposition takes away.
        """
        macs = self.networks[network].counts("macs_m")
        loss = np.array([variant.loss for variant in self.variants])
        shares: Any = loss[:, np.newaxis] * (macs / macs.sum())
        return np.asarray(shares, dtype=np.float64)

    def times(self) -> Floats:
        """Time of each variant relative to the full network, [V]."""
        return np.array([variant.time for variant in self.variants])
