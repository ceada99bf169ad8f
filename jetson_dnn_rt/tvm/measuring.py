"""Candidates of a kernel, compiled and timed: here, or on a board over TVM's RPC.

MetaSchedule's own builder starts its processes again for every batch, 14 s of each 16 trials on
two cores. Here a candidate is compiled by LLVM in this process, on as many threads as there are
cores, and run from memory: 0.3 s a trial. `jetson-dnn-rt build` is a process of its own, which is
what a candidate could take with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jetson_dnn_rt.errors import BackendUnavailableError, ConfigurationError
from jetson_dnn_rt.tvm.exponential import vectorise_exp
from jetson_dnn_rt.tvm.target import TvmTarget, make_target

if TYPE_CHECKING:
    import tvm

REPEATS = 3
_LEAST_MS = 5
"""A time is the least of `REPEATS` means over runs of so many milliseconds together."""

_HOPELESS = 2.0
"""Whatever took so many times the best time in its first run is not run again."""


class Measurer(ABC):
    """Compiles candidates of one target, and times them.

    `failures` says why candidates of the last `measure` could not be compiled or run.
    """

    def __init__(self, target: TvmTarget, device: Any) -> None:
        self._target = target.to_tvm()
        self._device = device
        self._values = _Values(device)
        self.failures: list[str] = []

    def measure(
        self, modules: Sequence[tvm.IRModule], arguments: Sequence[Sequence[Any]], best_s: float
    ) -> list[float | None]:
        """Compile and time candidates.

        Parameters
        ----------
        modules : sequence of tvm.IRModule
            Scheduled kernels, each with one function ``main``.
        arguments : sequence of sequence of ArgInfo
            Shapes and types of the arguments of each; weights differ in their order.
        best_s : float
            Best time so far in seconds, or infinity.

        Returns
        -------
        list of float or None
            Seconds; None where a candidate cannot be compiled or run.
        """
        self.failures = []
        times: list[float | None] = []
        for built, infos in zip(self._build_all(modules), arguments, strict=True):
            seconds = None
            if built is not None:
                seconds = self._time(built, self._values.give(infos), best_s)
            best_s = min(best_s, math.inf if seconds is None else seconds)
            times.append(seconds)
        return times

    def _build_all(self, modules: Sequence[tvm.IRModule]) -> Iterable[Any]:
        return map(self._build, modules)

    def _build(self, module: tvm.IRModule) -> Any:
        return build_candidate(module, self._target, self.failures)

    @abstractmethod
    def _time(self, built: Any, values: list[Any], best_s: float) -> float | None: ...

    @abstractmethod
    def close(self) -> None:
        """Free what it holds."""


class LocalMeasurer(Measurer):
    """Compiles and runs in this process; the target must be this machine."""

    def __init__(self, target: TvmTarget) -> None:
        import tvm

        super().__init__(target, tvm.device(target.device))
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "tvm-build")

    def _build_all(self, modules: Sequence[tvm.IRModule]) -> Iterable[Any]:
        return list(self._pool.map(self._build, modules))  # nothing compiles beside the timing

    def _time(self, built: Any, values: list[Any], best_s: float) -> float | None:
        return time_kernel(built, self._device, values, best_s, self.failures)

    def close(self) -> None:
        """See `Measurer`."""
        self._pool.shutdown(cancel_futures=True)


class RpcMeasurer(Measurer):
    """Compiles here and runs on a board that has ``python3 -m tvm.exec.rpc_server`` running.

    Kernels travel as object files; the board links them with its C compiler. `address` is
    ``HOST:PORT`` of its server, and the target must be the board (`find_remote_target`). Errors as
    `connect`.
    """

    def __init__(self, address: str, target: TvmTarget) -> None:
        self._session = connect(address)
        super().__init__(target, self._session.device(target.device))
        self._folder = tempfile.TemporaryDirectory(prefix="jetson_dnn_rt-rpc-")
        self._count = 0

    def _time(self, built: Any, values: list[Any], best_s: float) -> float | None:
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
            return time_kernel(remote, self._device, values, best_s, self.failures)
        finally:
            with contextlib.suppress(Exception):
                self._session.remove(path.name)

    def close(self) -> None:
        """See `Measurer`."""
        self._folder.cleanup()


def connect(address: str) -> Any:
    """Open a session with the RPC server at ``HOST:PORT``.

    Raises `ConfigurationError` when the address is none, `BackendUnavailableError` when nobody
    answers there.
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
    """Ask the board what it is; it needs a TVM with LLVM, as PyPI has it.

    Errors as `connect`, and `BackendUnavailableError` when its TVM cannot tell.
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
    cuda = session.cuda(0)
    arch = f"sm_{str(cuda.compute_version).replace('.', '')}" if cuda.exist else ""
    return make_target(cpu, triple, arch, threads)


def build_candidate(module: tvm.IRModule, target: tvm.target.Target, failures: list[str]) -> Any:
    """Compile a scheduled kernel as MetaSchedule does; None where that fails."""
    from tvm import tirx
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    vectorise_exp()
    try:
        return tirx.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module), target)
    except Exception as error:  # TVM's errors have no class in common
        failures.append(f"it cannot be compiled: {error}")
        return None


def time_kernel(
    built: Any, device: Any, values: list[Any], best_s: float, failures: list[str]
) -> float | None:
    """Seconds that a compiled kernel takes; None where it cannot be run."""
    try:
        first = built.time_evaluator("main", device, number=1, repeat=1)(*values).min
        if first > _HOPELESS * best_s:
            return float(first)
        evaluate = built.time_evaluator(
            "main", device, number=1, repeat=REPEATS, min_repeat_ms=_LEAST_MS
        )
        return float(evaluate(*values).min)
    except Exception as error:  # TVM's errors have no class in common
        failures.append(f"it cannot be run: {error}")
        return None


class _Values:
    """Arguments of one kernel's candidates; those of the last one are kept for the next."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._kept: dict[tuple[str, tuple[int, ...]], list[Any]] = {}

    def give(self, infos: Sequence[Any]) -> list[Any]:
        """Tensors of these shapes and types, none of them twice."""
        before, self._kept = self._kept, {}
        values = []
        for info in infos:
            _, kind, sides = info.as_json()
            key = str(kind), tuple(int(side) for side in sides)
            known = before.get(key)
            value = known.pop() if known else _make_value(*key, self._device)
            self._kept.setdefault(key, []).append(value)
            values.append(value)
        return values


def _make_value(kind: str, shape: tuple[int, ...], device: Any) -> Any:
    """Values as a network has them; whole numbers are positions, of which 0 always is one."""
    import tvm

    if kind.startswith("float"):
        values = np.random.default_rng(0).random(shape, np.float32).astype(kind)
    else:
        values = np.zeros(shape, kind)
    return tvm.runtime.tensor(values, device)
