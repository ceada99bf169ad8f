# Copyright 2026 jetson_dnn_rt authors
# SPDX-License-Identifier: Apache-2.0

"""Compiles and times candidates of a kernel, here or on a board over TVM's RPC.

MetaSchedule's own builder restarts its processes for every batch, 14 s of each 16 trials on two
cores. Here a candidate is compiled by LLVM in this process, on as many threads as there are cores,
and run from memory: 0.3 s per trial. A candidate that crashes takes down only `jetson-dnn-rt
build`, which is a process of its own.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.tvm.exponential import vectorise_exp
from jetson_dnn_rt.tvm.target import TvmTarget, make_target, read_arch

if TYPE_CHECKING:
    import tvm

REPEATS = 3
_LEAST_MS = 5
"""A time is the least of `REPEATS` means, each over runs of this many milliseconds in total."""

_HOPELESS = 2.0
"""A candidate that takes this many times the best time in its first run is not run again."""


class Measurer:
    """Compiles candidates of one target, and times them on this machine, which must be the target.

    `failures` has the reasons why candidates of the last `measure` could not be compiled or run.
    """

    def __init__(self, target: TvmTarget, device: Any = None) -> None:
        import tvm

        self._target = target.to_tvm()
        self._device = device or tvm.device(target.device)
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "tvm-build")
        self._kept: dict[tuple[str, tuple[int, ...]], list[Any]] = {}
        self.failures: list[str] = []

    def measure(self, candidates: Sequence[Any], best_s: float) -> list[float]:
        """Compile and time MetaSchedule's candidates of one kernel.

        `best_s` is the best time so far; a time is infinite where a candidate cannot be compiled
        or run.
        """
        self.failures = []
        times: list[float] = []
        # Nothing compiles during the timing. Weights differ in layout.
        built = list(self._pool.map(self._build, [one.sch.mod for one in candidates]))
        for kernel, candidate in zip(built, candidates, strict=True):
            values = self._make_values(candidate.args_info)
            times.append(math.inf if kernel is None else self._time(kernel, values, best_s))
            best_s = min(best_s, times[-1])
        return times

    def _build(self, module: tvm.IRModule) -> Any:
        try:
            return build_candidate(module, self._target)
        except Exception as error:  # TVM's errors have no class in common
            self.failures.append(f"it cannot be compiled: {error}")
            return None

    def _make_values(self, infos: Sequence[Any]) -> list[Any]:
        """Tensors of these shapes and types, all distinct; earlier ones are reused."""
        before, self._kept = self._kept, {}
        values = []
        for info in infos:
            _, kind, sides = info.as_json()
            key = str(kind), tuple(int(side) for side in sides)
            known = before.get(key)
            values.append(known.pop() if known else _make_value(*key, self._device))
            self._kept.setdefault(key, []).append(values[-1])
        return values

    def _time(self, built: Any, values: list[Any], best_s: float) -> float:
        try:
            first = built.time_evaluator("main", self._device, number=1, repeat=1)(*values).min
            if first > _HOPELESS * best_s:
                return float(first)
            evaluate = built.time_evaluator(
                "main", self._device, number=1, repeat=REPEATS, min_repeat_ms=_LEAST_MS
            )
            return float(evaluate(*values).min)
        except Exception as error:  # TVM's errors have no class in common
            self.failures.append(f"it cannot be run: {error}")
            return math.inf

    def close(self) -> None:
        """Stop the compile threads."""
        self._pool.shutdown(cancel_futures=True)


class RpcMeasurer(Measurer):
    """Compiles here and runs on a board that has ``python3 -m tvm.exec.rpc_server`` running.

    Kernels are sent as object files; the board links them with its C compiler. `address` is
    ``HOST:PORT`` of its server, and the target must be the board (`find_remote_target`). Raises
    what `connect` raises.
    """

    def __init__(self, address: str, target: TvmTarget) -> None:
        self._session = connect(address)
        super().__init__(target, self._session.device(target.device))
        self._folder = tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-rpc-")
        self._count = 0

    def _time(self, built: Any, values: list[Any], best_s: float) -> float:
        from tvm.support.tar import tar

        self._count += 1
        path = Path(self._folder.name, f"kernel{self._count}.tar")
        built.export_library(str(path), fcompile=tar)
        self._session.upload(bytearray(path.read_bytes()), path.name)
        path.unlink()
        try:
            remote = self._session.load_module(path.name)
        except Exception as error:  # TVM's errors have no class in common
            raise BackendUnavailableError(
                f"the board cannot load a kernel: {error}; it needs a C compiler (sudo apt "
                "install g++) and the same TVM"
            ) from error
        try:
            return super()._time(remote, values, best_s)
        finally:
            with contextlib.suppress(Exception):
                self._session.remove(path.name)

    def close(self) -> None:
        """See `Measurer`."""
        super().close()
        self._folder.cleanup()


def connect(address: str) -> Any:
    """Open a session with the RPC server at ``HOST:PORT``.

    Raises `ConfigurationError` when the address is invalid, `BackendUnavailableError` when there
    is no answer.
    """
    from tvm import rpc

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"tvm_rpc must be HOST:PORT: {address!r}")
    try:
        return rpc.connect(host, int(port))
    except Exception as error:  # TVM's errors have no class in common
        raise BackendUnavailableError(
            f"no RPC server answers at {address} ({error}): on the board, run python3 -m "
            f"tvm.exec.rpc_server --host 0.0.0.0 --port {port}"
        ) from error


def find_remote_target(address: str, threads: int) -> TvmTarget:
    """Ask the board for its target; it needs a TVM with LLVM, such as PyPI's.

    Raises what `connect` raises, and `BackendUnavailableError` when its TVM cannot tell.
    """
    session = connect(address)
    try:
        cpu = str(session.get_function("target.llvm_get_system_cpu")())
        triple = str(session.get_function("target.llvm_get_system_triple")())
    except Exception as error:  # TVM's errors have no class in common
        raise BackendUnavailableError(
            f"the TVM at {address} does not say what CPU it runs on ({error}): install the same "
            "apache-tvm there"
        ) from error
    return make_target(cpu, triple, read_arch(session.cuda(0)), threads)


def build_candidate(module: tvm.IRModule, target: tvm.target.Target) -> Any:
    """Compile a scheduled kernel as MetaSchedule does."""
    from tvm import tirx
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    vectorise_exp()
    return tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)


def _make_value(kind: str, shape: tuple[int, ...], device: Any) -> Any:
    """Values like those of a network; integers are indices, for which 0 is always valid."""
    import tvm

    if kind.startswith("float"):
        values = np.random.default_rng(0).random(shape, np.float32).astype(kind)
    else:
        values = np.zeros(shape, kind)
    return tvm.runtime.tensor(values, device)
