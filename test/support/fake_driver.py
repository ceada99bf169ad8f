# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The CUDA driver's functions, as ctypes calls them, without a device.

As unkind as the driver: a thread that did not make the context current has none, memory that is
not mapped has no device address, and a launch of an impossible size is refused.
"""

# ruff: noqa: N802 - the names are the library's
from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

INVALID_VALUE, INVALID_CONTEXT = 1, 201
MAX_THREADS = 1024
"""Of a block, on every device."""
NAMES = {
    INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE",
    100: b"CUDA_ERROR_NO_DEVICE",
    200: b"CUDA_ERROR_INVALID_IMAGE",
    INVALID_CONTEXT: b"CUDA_ERROR_INVALID_CONTEXT",
}


class FakeDriver:
    """Functions return a status, and write what they give through the pointers they get."""

    def __init__(self, attributes: dict[int, int] | None = None) -> None:
        self.attributes = attributes or {18: 1, 19: 1, 75: 8, 76: 7}
        self.fail: dict[str, int] = {}
        self.mapped: dict[int, int] = {}
        self.calls: list[str] = []
        self._threads: set[int] = set()
        """Those with a current context."""
        self.launches: list[dict[str, Any]] = []
        self.on_launch: Callable[[int], object] = lambda address: None
        """Takes the address of the launched kernel's only parameter."""

    def _status(self, name: str) -> int:
        self.calls.append(name)
        return self.fail.get(name, 0)

    def _status_in_context(self, name: str) -> int:
        current = threading.get_ident() in self._threads
        return self._status(name) or (0 if current else INVALID_CONTEXT)

    def cuGetErrorName(self, status: ctypes.c_int, text: Any) -> int:
        text._obj.value = NAMES.get(status.value, b"CUDA_ERROR_UNKNOWN")
        return 0

    def cuInit(self, flags: ctypes.c_uint) -> int:
        return self._status("cuInit")

    def cuDeviceGet(self, device: Any, ordinal: ctypes.c_int) -> int:
        device._obj.value = ordinal.value
        return self._status("cuDeviceGet")

    def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:
        context._obj.value = 4711
        return self._status("cuDevicePrimaryCtxRetain")

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        assert context.value == 4711
        self._threads.add(threading.get_ident())
        return self._status("cuCtxSetCurrent")

    def cuDeviceGetAttribute(self, value: Any, kind: ctypes.c_int, device: ctypes.c_int) -> int:
        value._obj.value = self.attributes[kind.value]
        return self._status("cuDeviceGetAttribute")

    def cuMemHostGetDevicePointer_v2(
        self, found: Any, host: ctypes.c_void_p, flags: ctypes.c_uint
    ) -> int:
        found._obj.value = address = self.mapped.get(host.value or 0, 0)
        status = self._status_in_context("cuMemHostGetDevicePointer_v2")
        return status or (0 if address else INVALID_VALUE)

    def cuModuleLoadData(self, module: Any, image: ctypes.c_char_p) -> int:
        module._obj.value = 1
        return self._status_in_context("cuModuleLoadData")

    def cuModuleGetFunction(self, function: Any, module: ctypes.c_void_p, name: bytes) -> int:
        function._obj.value = 2
        return self._status_in_context("cuModuleGetFunction")

    def cuLaunchKernel(self, function: ctypes.c_void_p, *arguments: Any) -> int:
        *sides, stream, parameters, extra = arguments
        assert extra is None
        status = self._status_in_context("cuLaunchKernel")
        *grid_and_block, _ = (side.value for side in sides)
        if min(grid_and_block) < 1 or math.prod(grid_and_block[3:]) > MAX_THREADS:
            status = status or INVALID_VALUE
        if not status:
            self.launches.append(
                {
                    "function": function.value,
                    "sides": tuple(side.value for side in sides),
                    "stream": stream.value,
                }
            )
            self.on_launch(parameters[0])
        return status
