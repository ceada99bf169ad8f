# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""The functions of the CUDA runtime as cuda-python gives them, on host memory.

As unkind as the runtime: streams do not wait for each other, an event covers what was on its
stream when it was recorded and nothing if it never was, a graph has its own steps, an error of
queued work comes with the wait and stays, and a capture allows neither allocation nor waiting.
"""

# ruff: noqa: N802, N803, N815 - the names are the library's
from __future__ import annotations

import ctypes
import enum
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Status(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35
    cudaErrorIllegalAddress = 700
    cudaErrorStreamCaptureUnsupported = 900


_OK = (Status.cudaSuccess,)
_ALIGNMENT = 256


class FakeCudart:
    """Functions return a status and their values; what is queued runs when it is waited for."""

    cudaStreamNonBlocking = 1
    cudaEventBlockingSync = 1
    cudaEventDisableTiming = 2
    cudaHostAllocDefault = 0
    cudaHostAllocMapped = 2
    cudaDeviceAttr = SimpleNamespace(
        cudaDevAttrIntegrated=18,
        cudaDevAttrCanMapHostMemory=19,
        cudaDevAttrComputeCapabilityMajor=75,
        cudaDevAttrComputeCapabilityMinor=76,
    )
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)

    def __init__(self, devices: int = 1) -> None:
        self.devices = devices
        self.attributes = {18: 1, 19: 1, 75: 8, 76: 7}
        self.mapped: set[int] = set()
        self.memory: dict[int, Any] = {}
        self.queues: dict[int, list[Callable[[], object]]] = {}
        """Work by stream, in order."""
        self.fault: Status | None = None
        """Set by work that fails: what each later call returns."""
        self._marks: dict[int, tuple[int, int]] = {}  # of events: stream, length of its queue
        self._graphs: dict[int, list[Callable[[], object]]] = {}
        self.recorded: list[Callable[[], object]] | None = None
        self.alive: set[int] = set()
        self.event_flags = 0
        self.priorities: dict[int, int] = {}
        self._handles = itertools.count(1_000_000)  # unlike those of `FakeCuda`

    def _make(self) -> int:
        handle = next(self._handles)
        self.alive.add(handle)
        return handle

    def submit(self, work: Callable[[], object], stream: int) -> tuple[Status]:
        """Queue work, or record it while a graph is captured."""
        if self.fault is not None:
            return (self.fault,)
        queue = self.queues.setdefault(stream, []) if self.recorded is None else self.recorded
        queue.append(work)
        return _OK

    def cudaMalloc(self, size: int) -> tuple[Status, int]:
        if self.fault is not None:
            return self.fault, 0
        if self.recorded is not None:
            return Status.cudaErrorStreamCaptureUnsupported, 0
        if size > 1 << 30:
            return Status.cudaErrorMemoryAllocation, 0
        buffer = ctypes.create_string_buffer(b"\x55" * (size + _ALIGNMENT), size + _ALIGNMENT)
        address = ctypes.addressof(buffer)
        address += -address % _ALIGNMENT
        self.memory[address] = buffer
        return Status.cudaSuccess, address

    def cudaGetDeviceCount(self) -> tuple[Status, int]:
        return Status.cudaSuccess, self.devices

    def cudaGetLastError(self) -> tuple[Status]:
        return _OK

    def cudaDeviceGetStreamPriorityRange(self) -> tuple[Status, int, int]:
        return Status.cudaSuccess, 0, -2

    def cudaStreamCreateWithPriority(self, flags: int, priority: int) -> tuple[Status, int]:
        assert flags == self.cudaStreamNonBlocking
        handle = self._make()
        self.priorities[handle] = priority
        return Status.cudaSuccess, handle

    def cudaStreamDestroy(self, stream: int) -> tuple[Status]:
        self.alive.remove(stream)
        return _OK if self.fault is None else (self.fault,)

    cudaEventDestroy = cudaGraphExecDestroy = cudaStreamDestroy

    def cudaEventCreateWithFlags(self, flags: int) -> tuple[Status, int]:
        self.event_flags = flags
        return Status.cudaSuccess, self._make()

    def cudaEventRecord(self, event: int, stream: int) -> tuple[Status]:
        self._marks[event] = stream, len(self.queues.get(stream, ()))
        return _OK

    def cudaEventSynchronize(self, event: int) -> tuple[Status]:
        if self.fault is not None:
            return (self.fault,)
        if self.recorded is not None:
            return (Status.cudaErrorStreamCaptureUnsupported,)
        stream, count = self._marks.pop(event, (0, 0))
        queue = self.queues.get(stream, [])
        now, queue[:] = queue[:count], queue[count:]
        for work in now:
            if isinstance(found := work(), Status):
                self.fault = found
                return (found,)
        return _OK

    def cudaFree(self, devPtr: int) -> tuple[Status]:
        del self.memory[devPtr]
        return _OK

    cudaFreeHost = cudaFree

    def cudaDeviceGetAttribute(self, attr: int, device: int) -> tuple[Status, int]:
        return Status.cudaSuccess, self.attributes[attr]

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[Status, int]:
        status, address = self.cudaMalloc(size)
        if flags == self.cudaHostAllocMapped:
            self.mapped.add(address)
        return status, address

    def cudaHostGetDevicePointer(self, pHost: int, flags: int) -> tuple[Status, int]:
        if pHost not in self.mapped:
            return Status.cudaErrorInvalidValue, 0
        return Status.cudaSuccess, pHost

    def cudaMemsetAsync(self, devPtr: int, value: int, count: int, stream: int) -> tuple[Status]:
        return self.submit(lambda: ctypes.memset(devPtr, value, count), stream)

    def cudaMemcpyAsync(
        self, dst: int, src: int, count: int, kind: Any, stream: int
    ) -> tuple[Status]:
        assert kind == 4
        return self.submit(lambda: ctypes.memmove(dst, src, count), stream)

    def cudaStreamBeginCapture(self, stream: int, mode: Any) -> tuple[Status]:
        self.recorded = []
        return _OK

    def cudaStreamEndCapture(self, stream: int) -> tuple[Status, Any]:
        recorded, self.recorded = self.recorded, None
        return Status.cudaSuccess, recorded

    def cudaGraphInstantiateWithFlags(self, graph: Any, flags: int) -> tuple[Status, Any]:
        handle = self._make()
        self._graphs[handle] = list(graph)
        return Status.cudaSuccess, handle

    def cudaGraphDestroy(self, graph: Any) -> tuple[Status]:
        return _OK

    def cudaGraphLaunch(self, graphExec: Any, stream: int) -> tuple[Status]:
        if self.fault is not None:
            return (self.fault,)
        self.queues.setdefault(stream, []).extend(self._graphs[graphExec])
        return _OK
