"""Expressions in C against NumPy: compiled and run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="apache-tvm is not installed")

from jetson_dnn_rt.tvm.export_c.kernels import write_kernel
from jetson_dnn_rt.tvm.export_c.program import lower_kernels

WHOLE = np.arange(-64, 64, dtype=np.int32)
Expression = Callable[[Any], Any]


def compute(expression: Expression, values: np.ndarray, folder: Path) -> np.ndarray:
    """Element by element, by a kernel of TVM's written as C."""
    import tvm
    from tvm import te

    given = te.placeholder(values.shape, str(values.dtype), "given")
    found = te.compute(values.shape, lambda index: expression(given[index]), "found")
    module = tvm.IRModule({"kernel": te.create_prim_func([given, found])})
    kernel = write_kernel("kernel", lower_kernels(module)["kernel"], "net", 0)
    (folder / "kernel.c").write_text(f"#include <math.h>\n#include <stdint.h>\n{kernel.text}")
    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "kernel.so", "kernel.c"],
        cwd=folder, check=True,
    )  # fmt: skip
    result = np.empty(values.shape, str(found.dtype))
    ctypes.CDLL(str(folder / "kernel.so")).net_kernel(
        ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(result.ctypes.data)
    )
    return result


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Powers of two become shifts and masks, of numbers below zero as well.
        (lambda x: x // 8, lambda x: x // 8),
        (lambda x: x % 8, lambda x: x % 8),
        (lambda x: x // 7 * 100 + x % 7, lambda x: x // 7 * 100 + x % 7),
        (lambda x: (x << 3) | 5, lambda x: (x << 3) | 5),
        (lambda x: (x >> 2) ^ (x & 12), lambda x: (x >> 2) ^ (x & 12)),
        (lambda x: ~x, lambda x: ~x),
    ],
)
def test_whole_numbers(
    expression: Expression, expected: Callable[[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    assert np.array_equal(compute(expression, WHOLE, tmp_path), expected(WHOLE))
