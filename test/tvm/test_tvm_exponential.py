"""``exp`` as TVM's kernels compute it on CPUs, beside NumPy's in double precision."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from jetson_dnn_rt.tvm.exponential import LEAST, MOST
from jetson_dnn_rt.tvm.measuring import build_candidate
from jetson_dnn_rt.tvm.target import TvmTarget, find_local_target, parse_target

LANES = 16


def compile_exp(target: TvmTarget, count: int, kind: str, lanes: int) -> Any:
    """A kernel of `count` numbers, `lanes` of them at a time; built as every candidate is."""
    from tvm import s_tir, te, tirx

    numbers = te.placeholder((count,), kind, "numbers")
    powers = te.compute((count,), lambda index: tirx.exp(numbers[index]), "powers")
    kernel = te.create_prim_func([numbers, powers])
    schedule = s_tir.Schedule(kernel)
    (loop,) = schedule.get_loops(schedule.get_sblock("powers"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    failures: list[str] = []
    built = build_candidate(schedule.mod, target.to_tvm(), failures)
    assert built is not None, failures
    return built


def compute_exp(values: np.ndarray, lanes: int = LANES) -> np.ndarray:
    """Run it here."""
    import tvm

    built = compile_exp(find_local_target(1), len(values), str(values.dtype), lanes)
    powers = tvm.runtime.tensor(np.empty_like(values))
    built["main"](tvm.runtime.tensor(values), powers)
    return np.array(powers.numpy())


@pytest.mark.parametrize("lanes", [1, LANES])
def test_as_near_as_libm(lanes: int) -> None:
    dense = np.linspace(LEAST + 1e-4, MOST - 1e-4, 1 << 20).astype(np.float32)
    tiny = np.logspace(-40, 0, 1 << 10).astype(np.float32)
    values = np.concatenate([dense, tiny, -tiny])
    true = np.exp(values.astype(np.float64))
    assert np.max(np.abs(compute_exp(values, lanes) - true) / true) < 2e-7


def test_ends_and_what_is_no_number() -> None:
    values = np.zeros(LANES, np.float32)
    values[:8] = [0, -0.0, np.nan, np.inf, -np.inf, 1e30, -1e30, 88.8]
    powers = compute_exp(values)
    assert list(powers[:2]) == [1, 1]
    assert np.isnan(powers[2])
    assert list(powers[3:8]) == [np.inf, 0, np.inf, 0, np.inf]


def test_half_precision_is_computed_wide() -> None:
    values = np.linspace(-12, 11, 1 << 12).astype(np.float16)
    true = np.exp(values.astype(np.float64)).astype(np.float16)
    assert np.mean(compute_exp(values) == true) > 0.99
    np.testing.assert_allclose(compute_exp(values), true, rtol=1e-3, atol=6e-8)


def test_double_precision_stays_with_libm() -> None:
    values = np.linspace(-700, 700, 1 << 10)
    np.testing.assert_allclose(compute_exp(values), np.exp(values), rtol=1e-15)


def test_threads_may_be_the_first_at_the_same_time() -> None:
    """A pool of threads compiles candidates; in a process of its own, where nobody was before."""
    code = """
import sys, threading
from jetson_dnn_rt.tvm.exponential import vectorise_exp
import tvm.tirx
sys.setswitchinterval(1e-6)
errors, barrier = [], threading.Barrier(8)
def call():
    barrier.wait()
    try:
        vectorise_exp()
    except Exception as error:
        errors.append(error)
threads = [threading.Thread(target=call) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(f"{errors}" if errors else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_called_one_by_one() -> None:
    """A call of libm in a board's code would be one for each element."""
    target = parse_target("aarch64:cortex-a78ae", 1)
    assembly = compile_exp(target, LANES, "float32", LANES).inspect_source("s")
    assert "fmla" in assembly or "fmul" in assembly
    assert "expf" not in assembly
