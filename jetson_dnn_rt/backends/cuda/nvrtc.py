# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compiles CUDA source for the device with NVRTC, CUDA's runtime compiler library.

NVRTC comes with torch, cuda-python and the CUDA toolkit (on a Jetson with JetPack), as one library
with a stable C interface. It needs neither a driver nor a C++ compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jetson_dnn_rt.errors import BackendUnavailableError

FIX = "pip install nvidia-cuda-nvrtc (on Jetson: it comes with JetPack's CUDA toolkit)"

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
_TOOLKIT = Path("/usr/local/cuda/lib64")


def find_libraries() -> Iterator[str]:
    """Paths and names of NVRTC; those shipped with torch and cuda-python come first."""
    patterns = {"nvidia": "*/lib/libnvrtc.so.*", "torch": "lib/libnvrtc[-.]*so*"}
    for package, pattern in patterns.items():
        try:
            found = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            yield from (str(path) for path in sorted(Path(folder).glob(pattern)))
    yield from _NAMES
    yield from (str(path) for path in sorted(_TOOLKIT.glob("libnvrtc.so.*")))


def open_libraries() -> Iterator[Any]:
    """Libraries of `find_libraries` that can be loaded."""
    for name in find_libraries():
        try:
            if name.startswith("/"):
                _load_builtins(Path(name).parent)
            yield ctypes.CDLL(name)
        except OSError:
            continue


def _load_builtins(folder: Path) -> None:
    """Load what NVRTC opens by name alone when it compiles.

    The wheel of CUDA 13 has no RUNPATH, so its NVRTC would not find the file in its own folder. It
    finds what is loaded: torch loads it, cuda-python does not.
    """
    for path in sorted(folder.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(path))


class Nvrtc:
    """One loaded NVRTC library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def _call(self, name: str, *arguments: Any) -> None:
        status = int(getattr(self._library, name)(*arguments))
        if status:
            self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
            text = self._library.nvrtcGetErrorString(ctypes.c_int(status)) or b"error"
            raise BackendUnavailableError(f"{name}: {text.decode()}")

    @property
    def version(self) -> tuple[int, int]:
        """CUDA version, e.g. (12, 6)."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def architectures(self) -> tuple[int, ...]:
        """Target architectures, e.g. 87 for compute capability 8.7; ascending."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return tuple(sorted(found))

    def compile(self, source: str, name: str, capability: tuple[int, int]) -> bytes:
        """Compile CUDA C++ source without includes for a device of that compute capability.

        Returns a cubin where the library supports the device; else PTX of the latest architecture
        that it supports and the device runs, which the driver translates. `CudaDriver.load_kernel`
        loads either. `name` identifies the source in messages. `BackendUnavailableError`, with the
        compiler's log, where it does not compile or the device is too old.
        """
        wanted = capability[0] * 10 + capability[1]
        known = [arch for arch in self.architectures() if arch <= wanted]
        if not known:
            raise BackendUnavailableError(
                f"NVRTC {self.version} does not compile for a device of capability {capability}"
            )
        own = wanted in known
        kind = f"sm_{wanted}" if own else f"compute_{known[-1]}"
        # No fused multiply-add, as in numpy.
        options = [f"--gpu-architecture={kind}".encode(), b"--fmad=false", b"--std=c++14"]
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program), source.encode(), name.encode(), 0, None, None,
        )  # fmt: skip
        try:
            try:
                self._call(
                    "nvrtcCompileProgram",
                    program, len(options), (ctypes.c_char_p * len(options))(*options),
                )  # fmt: skip
            except BackendUnavailableError as error:
                log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode()
                raise BackendUnavailableError(f"{name}: {error}: {log}") from None
            return self._read(program, "nvrtcGetCUBIN" if own else "nvrtcGetPTX")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self._call(name, program, data)
        return data.raw


def compile_with_any(
    source: str, name: str, capability: tuple[int, int], libraries: Sequence[Any] | None = None
) -> Iterator[bytes]:
    """Compile with each NVRTC in turn: a driver may reject the output of a newer one.

    `BackendUnavailableError`, with the reasons, where there is none or all fail.
    """
    reasons = []
    compiled = False
    for library in libraries if libraries is not None else open_libraries():
        try:
            image = Nvrtc(library).compile(source, name, capability)
        except (BackendUnavailableError, AttributeError) as error:  # old ones lack functions
            reasons.append(str(error))
            continue
        compiled = True
        yield image
    if not compiled:
        raise BackendUnavailableError(
            f"NVRTC cannot be used ({'; '.join(reasons) or 'it is not installed'}): {FIX}"
        )
