# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Functions of the CUDA driver that torch and the versions of cuda-python do not share.

The driver's library is on every machine with a device and has a stable C interface. Calls are made
in the device's primary context, which the runtime uses too, and so torch and cuda-python.
"""

from __future__ import annotations

import ctypes
from typing import Any

from jetson_dnn_rt.backends.cuda.device import CudaError, DeviceProperties
from jetson_dnn_rt.errors import BackendUnavailableError

_LIBRARY = "libcuda.so.1"

# CUdevice_attribute in cuda.h.
_INTEGRATED = 18
_CAN_MAP_HOST_MEMORY = 19
_MAJOR, _MINOR = 75, 76

Launch = tuple[int, int, int]
"""Blocks, or threads of a block, along x, y, z."""


class CudaDriver:
    """The driver in the primary context of the first device; failed calls raise `CudaError`.

    `library` provides the driver's functions, by default ``libcuda.so.1``.
    `BackendUnavailableError` where there is no driver, or no device.
    """

    def __init__(self, library: Any = None) -> None:
        if library is None:
            try:
                library = ctypes.CDLL(_LIBRARY)
            except OSError as error:
                raise BackendUnavailableError(f"there is no CUDA driver ({error})") from error
        self._library = library
        self._device = ctypes.c_int()
        self._context = ctypes.c_void_p()
        try:
            self.call("cuInit", ctypes.c_uint(0))
            self.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        except CudaError as error:
            raise BackendUnavailableError(f"the CUDA driver offers no device ({error})") from error

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; `CudaError` where its status is an error."""
        status = int(getattr(self._library, name)(*arguments))
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'error').decode()} ({status})")

    def enter(self) -> None:
        """Make the context current in the calling thread: a new thread has none."""
        self.call("cuCtxSetCurrent", self._context)

    def properties(self) -> DeviceProperties:
        """Properties of the device."""
        found = []
        for kind in (_INTEGRATED, _CAN_MAP_HOST_MEMORY, _MAJOR, _MINOR):
            value = ctypes.c_int()
            arguments = (ctypes.byref(value), ctypes.c_int(kind), self._device)
            self.call("cuDeviceGetAttribute", *arguments)
            found.append(value.value)
        integrated, maps, major, minor = found
        return DeviceProperties(bool(integrated), bool(maps), (major, minor))

    def device_address(self, host_address: int) -> int:
        """Device address of page-locked host memory; `CudaError` where it is not mapped."""
        self.enter()
        found = ctypes.c_void_p()
        arguments = (ctypes.byref(found), ctypes.c_void_p(host_address), ctypes.c_uint(0))
        self.call("cuMemHostGetDevicePointer_v2", *arguments)
        return int(found.value or 0)

    def load_kernel(self, image: bytes, name: str) -> Kernel:
        """Load a kernel by its C name; it stays loaded until the process exits.

        `image` is a cubin, or PTX that ends with a zero byte. `CudaError` where this driver cannot
        run it.
        """
        self.enter()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return Kernel(self, function)


class Kernel:
    """A loaded kernel: its handle and the driver that loaded it."""

    def __init__(self, driver: CudaDriver, function: Any) -> None:
        self._driver, self._function = driver, function

    def launch(
        self, grid: Launch, block: Launch, stream: int, arguments: ctypes.Structure
    ) -> None:
        """Queue the kernel with one argument, a structure, which is copied before this returns."""
        self._driver.enter()
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        sides = (ctypes.c_uint(side) for side in (*grid, *block, 0))
        call = self._driver.call
        call("cuLaunchKernel", self._function, *sides, ctypes.c_void_p(stream), parameters, None)
