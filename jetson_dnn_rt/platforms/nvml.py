# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""A discrete NVIDIA GPU, read through NVML; nothing is set.

NVML comes with the driver; its Python module is ``pynvml`` of the package ``nvidia-ml-py``, which
is optional.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import Any

from jetson_dnn_rt.errors import PlatformError
from jetson_dnn_rt.platforms.boards import make_options, make_space
from jetson_dnn_rt.platforms.clocks import ClockConfiguration, ClockOption
from jetson_dnn_rt.platforms.platform import Platform, Power


def load_nvml() -> Any:
    """Load NVML; PlatformError, with the fix, when the module or the driver is missing."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise PlatformError(f"NVML needs pip install 'jetson_dnn_rt[nvml]': {error}") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise PlatformError(f"NVML finds no driver of NVIDIA: {error}") from error
    return nvml


class NvmlPlatform(Platform):
    """A machine of which only the GPU is visible, number `device` of `load_nvml`.

    Its domains are "gpu" (shader clock) and "emc" (the GPU's memory). PlatformError: there is no
    such GPU, or it does not report its clocks.
    """

    name = "nvml"

    def __init__(self, nvml: Any, device: int = 0) -> None:
        self._nvml = nvml
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(device)
        except nvml.NVMLError as error:
            raise PlatformError(f"NVML has no GPU {device}: {error}") from error
        self._first_mj = self._read_int("nvmlDeviceGetTotalEnergyConsumption")
        name = nvml.nvmlDeviceGetName(self._handle)
        self.title = name.decode() if isinstance(name, bytes) else str(name)
        self.reason = (
            "through NVML clocks are only read (the administrator's way: nvidia-smi -lgc)"
        )
        if self._read_int("nvmlDeviceGetPowerUsage") is None:
            self.notes = ("power: this GPU does not report its power to NVML",)
        try:
            self.space = make_space(
                gpu=make_options(self._list_clocks("gpu")),
                emc=make_options(self._list_clocks("emc")),
            )
        except nvml.NVMLError as error:
            raise PlatformError(f"{self.title} does not report its clocks: {error}") from error

    def _list_clocks(self, domain: str) -> list[int]:
        nvml = self._nvml
        try:
            memory = sorted(set(nvml.nvmlDeviceGetSupportedMemoryClocks(self._handle)))
            if domain == "emc":
                return memory
            return sorted(set(nvml.nvmlDeviceGetSupportedGraphicsClocks(self._handle, memory[-1])))
        except nvml.NVMLError:
            # Consumer GPUs report only the highest.
            kind = nvml.NVML_CLOCK_SM if domain == "gpu" else nvml.NVML_CLOCK_MEM
            return [nvml.nvmlDeviceGetMaxClockInfo(self._handle, kind)]

    def read(self) -> ClockConfiguration:
        """The present clocks; those of an idle GPU are below everything in `space`."""
        try:
            kinds = (self._nvml.NVML_CLOCK_SM, self._nvml.NVML_CLOCK_MEM)
            clocks = [self._nvml.nvmlDeviceGetClockInfo(self._handle, kind) for kind in kinds]
        except self._nvml.NVMLError as error:
            raise PlatformError(f"cannot read the clocks of {self.title}: {error}") from error
        return tuple(ClockOption(round(mhz * 1e6)) for mhz in clocks)

    def power(self) -> Power:
        """Power of the GPU with its memory and board; the driver's mean over some milliseconds."""
        milliwatts = self._read_int("nvmlDeviceGetPowerUsage")
        if milliwatts is None:
            return Power()
        return Power(milliwatts * 1e-3, MappingProxyType({"gpu": milliwatts * 1e-3}))

    def energy_j(self) -> float | None:
        """Energy since the platform was made; None for a GPU older than Volta."""
        now_mj = self._read_int("nvmlDeviceGetTotalEnergyConsumption")
        if now_mj is None or self._first_mj is None:
            return None
        return (now_mj - self._first_mj) * 1e-3

    def _read_int(self, name: str) -> int | None:
        try:
            return int(getattr(self._nvml, name)(self._handle))
        except self._nvml.NVMLError:
            return None
