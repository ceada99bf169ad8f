# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""CUDA kernels of this package on the host: compiled by the C++ compiler, launched by a fake."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_cuda import FakeCuda

from jetson_dnn_rt.backends.cuda import input as cuda_input


def compile_for_host(folder: Path) -> Any:
    """Compile the input pass with g++; skips where there is none."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile the kernel for the host")
    library = folder / "input_pass.so"
    subprocess.run(
        [
            compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off",
            # Some accesses that x86 forgives end a kernel on a device: here the process.
            "-fsanitize=alignment,bounds", "-fsanitize-undefined-trap-on-error",
            "-shared", "-fPIC", "-x", "c++", str(cuda_input.SOURCE), "-o", str(library), "-lm",
        ],
        check=True,
    )  # fmt: skip
    return ctypes.CDLL(str(library)).input_pass_host


class HostKernel:
    """Stands for `Kernel`: a launch is queued on the fake stream, and runs on the host."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.launches = 0
        self.error: Exception | None = None

    def launch(self, grid: Any, block: Any, stream: int, arguments: ctypes.Structure) -> None:
        if self.error is not None:
            raise self.error
        assert grid[0] * block[0] >= arguments.width
        assert grid[1] * block[1] >= arguments.height
        self.launches += 1
        # Parameters are copied at the launch.
        copy = type(arguments).from_buffer_copy(arguments)
        FakeCuda.streams[stream].submit("kernel", lambda: self._function(ctypes.byref(copy)))
